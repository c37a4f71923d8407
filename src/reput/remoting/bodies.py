"""Bodies of answers and requests, in JSON as RocketMQ's classes have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from reput.broker.locks import MessageQueue
from reput.format.java_json import parse_java_json
from reput.remoting.commands import FieldError

_encoder = msgspec.json.Encoder(order="deterministic")


def encode_body(content: object) -> bytes:
    """A body as JSON; the names of objects are in order."""
    return _encoder.encode(content)


def decode_body(body: bytes) -> dict[str, Any]:
    """A request's body. Raises FieldError for what is not a JSON object."""
    try:
        found = parse_java_json(body)
    except ValueError as error:
        raise FieldError(f"the body is {error}") from None
    if not isinstance(found, dict):
        raise FieldError("the body is not a JSON object")
    return found


def queue_map(values: Iterable[tuple[MessageQueue, Mapping[str, Any]]]) -> msgspec.Raw:
    """A map whose names are queues. They are objects in JSON, too: fastjson writes and reads that."""
    entries = (
        encode_body(queue_as_json(queue)) + b":" + encode_body(value) for queue, value in values
    )
    return msgspec.Raw(b"{" + b",".join(entries) + b"}")


def queue_as_json(queue: MessageQueue) -> dict[str, Any]:
    """A queue as clients have it."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queues_of(body: Mapping[str, Any], name: str) -> list[MessageQueue]:
    """The queues that a request names. Raises FieldError."""
    found = body.get(name) or []
    try:
        return [
            MessageQueue(str(each["topic"]), str(each["brokerName"]), int(each["queueId"]))
            for each in found
        ]
    except (KeyError, TypeError, ValueError):
        raise FieldError(f"{name} is not a list of queues") from None
