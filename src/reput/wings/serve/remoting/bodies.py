"""Decode bodies of requests, and encode parts of answers, in the JSON form of RocketMQ's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from reput.base import counted
from reput.wings.serve.broker.limits import LimitError
from reput.wings.serve.broker.locks import MessageQueue
from reput.wings.serve.remoting.commands import Command, FieldError, encode_body

_INT32 = 1 << 31


def decode_body(request: Command) -> dict[str, Any]:
    """Return a request's body, decoding it only once. Raises FieldError if it is not a JSON object."""
    if request.content is None:
        try:
            content = msgspec.json.decode(request.body)
        except msgspec.DecodeError as error:
            raise FieldError(f"the body is not JSON: {error}") from None
        except RecursionError:
            raise FieldError("the body is nested too deeply") from None
        if not isinstance(content, dict):
            raise FieldError("the body is not a JSON object")
        request.content = content
    return request.content


def objects_of(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the list of objects in a field of a body; an empty list if the body lacks the field. Raises FieldError."""
    objects = body.get(name) or []
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise FieldError(f"{name} is not a list of objects")
    return objects


def queue_map(values: Iterable[tuple[MessageQueue, Any]]) -> msgspec.Raw:
    """Return a JSON map whose keys are queues. Each key is a JSON object, as fastjson writes and reads such maps."""
    entries = (
        encode_body(queue_as_json(queue)) + b":" + encode_body(value) for queue, value in values
    )
    return msgspec.Raw(b"{" + b",".join(entries) + b"}")


def queue_as_json(queue: MessageQueue) -> dict[str, Any]:
    """Return a queue as the JSON object that clients expect."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queues_of(body: Mapping[str, Any], name: str, most: int) -> list[MessageQueue]:
    """Return the queues that a request contains. Raises FieldError, LimitError for more than `most`."""
    objects = objects_of(body, name)
    if len(objects) > most:
        raise LimitError(
            f"{name} has {counted(len(objects), 'queue')}, but at most {most} are allowed in one request"
        )
    try:
        queues = [
            MessageQueue(str(item["topic"]), str(item["brokerName"]), int(item["queueId"]))
            for item in objects
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FieldError(f"{name} is not a list of queues") from None
    if any(not -_INT32 <= queue.queue_id < _INT32 for queue in queues):
        raise FieldError(f"{name} has a queueId that does not fit into 32 bits")
    return queues
