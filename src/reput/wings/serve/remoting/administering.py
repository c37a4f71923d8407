"""Answer requests of tools that change a broker: topics, groups and the offsets of groups.

Mirrors `AdminBrokerProcessor` and `Broker2Client.resetOffset` (tags rocketmq-all-4.9.3 and rocketmq-all-5.3.3). Offsets
are reset as by a broker of the store's version. A 4.9 broker asks the members of a group to reset their offsets. A 5.3
broker resets the offsets itself, and members learn of the reset with their next pull.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from reput.errors import ReputError
from reput.format.java_string import parse_int64
from reput.format.message_id import decode_offset_id
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.broker.groups import Client, group_of_tool
from reput.wings.serve.broker.limits import LimitError, NameRefusedError, check_name
from reput.wings.serve.broker.locks import MessageQueue
from reput.wings.serve.broker.topics import TopicConfig
from reput.wings.serve.remoting.bodies import decode_body, queue_as_json, queue_map
from reput.wings.serve.remoting.commands import (
    Command,
    FieldError,
    Refusal,
    ResponseCode,
    encode_body,
    request,
)
from reput.wings.serve.remoting.handling import Answer, InThread, Later, Peer, answers
from reput.wings.serve.remoting.requests import RequestCode

_MOST_PERM = 7
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
_Attributes = Mapping[str, tuple[str, ...] | range]
_MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_ATTRIBUTES: _Attributes = {
    "cleanup.policy": ("DELETE",),
    "message.type": _MESSAGE_TYPES,
    "queue.type": ("SimpleCQ",),
    "reserve.time": range(-1, 1 << 63),
}
"""Supported attributes of topics and their values (`TopicAttributes`, 5.3.3)."""
_ATTRIBUTES_SINCE_5_4: _Attributes = {
    **_ATTRIBUTES,
    "message.type": (*_MESSAGE_TYPES, "PRIORITY", "LITE"),
    "lite.topic.expiration": range(-1, 30 * 24 * 60 + 1),
}
# Matches a JSON map whose keys are queues. Each queue is a JSON object itself, so JSON parsers refuse such a map.
# Possessive quantifiers (++, *+) prevent a hostile body from causing exponential backtracking.
_STATUS = re.compile(rb'"messageQueueTable":(\{(?:\{[^{}]*+\}:-?[0-9]++,?)*+\})')
_CHANGEABLE = ("message.type", "reserve.time", "lite.topic.expiration")
_MOST_DIGITS = 20
_PATIENCE_S = 4.0
"""Maximum wait during the deletion of a topic, in seconds. mqadmin waits 5 s for the answer."""
_NOT_SET = "not set any response code"  # A broker sends this remark in some answers, and all tools accept it.


class Administering:
    """Handles requests that change the topics, groups and offsets of one broker. Its store is writable."""

    def __init__(self, broker: ServedBroker, on_reset: Callable[[str, str], None]) -> None:
        """Handle requests to `broker`.

        `on_reset` is called with group and topic after the broker has reset the group's offsets.
        """
        self._broker, self._on_reset = broker, on_reset
        is_since_5_4 = broker.store.config.is_since_5_4
        self._attributes = _ATTRIBUTES_SINCE_5_4 if is_since_5_4 else _ATTRIBUTES

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC)
    def _update_topic(self, request: Command, peer: Peer) -> Answer:
        topic = request.text("topic")
        self._check_changeable(topic)
        read, write = request.int32("readQueueNums"), request.int32("writeQueueNums")
        most, perm = self._broker.limits.topic_queues, request.int32("perm")
        if not 0 <= min(read, write) <= max(read, write) <= most:
            raise LimitError(f"topic[{topic}] must have 0 to {most} queues, not {read} and {write}")
        if not 0 <= perm <= _MOST_PERM:
            raise FieldError(f"perm must be 0 to {_MOST_PERM}, not {perm}")
        filter_type = request.optional_text("topicFilterType") or _FILTER_TYPES[0]
        if filter_type not in _FILTER_TYPES:
            raise FieldError(f"topicFilterType must be {' or '.join(_FILTER_TYPES)}")
        config = TopicConfig(
            topic, read, write, perm, request.int32("topicSysFlag", 0),
            request.boolean("order"), filter_type,
        )  # fmt: skip
        current_config = self._broker.topics.get(topic)
        other_fields = {} if current_config is None else dict(current_config.other_fields)
        if self._broker.is_five:
            current = {} if current_config is None else current_config.attributes
            changes = request.optional_text("attributes") or ""
            other_fields["attributes"] = _changed_attributes(
                changes, current, current_config is None, self._attributes
            )
        config = replace(config, other_fields=other_fields)

        def work() -> Command:
            self._broker.topics.update(config)
            self._broker.topics.save()  # Confirm a change only after it is durable.
            return request.answer(remark=_NOT_SET)

        return InThread(work)

    def _check_changeable(self, topic: str) -> None:
        """Raise Refusal if a topic is invalid or internal."""
        code = ResponseCode.INVALID_PARAMETER if self._broker.is_five else ResponseCode.SYSTEM_ERROR
        try:
            check_name(topic, "topic")
        except NameRefusedError as error:
            raise Refusal(str(error), code) from None
        if self._broker.topics.is_internal(topic):
            raise Refusal(f"The topic[{topic}] is conflict with system topic.", code)

    @answers(RequestCode.DELETE_TOPIC_IN_BROKER)
    def _delete_topic(self, request: Command, peer: Peer) -> Answer:
        topic = request.text("topic")
        self._check_changeable(topic)

        def work() -> Command:
            broker = self._broker
            # Wait, so that the recorded ends of the queues include all messages that were sent before the deletion.
            if not broker.wait_dispatched(timeout_s=_PATIENCE_S):
                remark = f"{broker.name} dispatches messages of the topic; try again"
                raise Refusal(remark, ResponseCode.SYSTEM_BUSY)
            broker.delete_topic(topic)
            broker.topics.save()
            broker.offsets.save()
            return request.answer()

        return InThread(work, self._forget_pulls(lambda of, group: of == topic))

    def _forget_pulls(self, predicate: Callable[[str, str], bool]) -> Callable[[Command], Command]:
        """Return a function that removes offsets of pulls after a deletion, as brokers of 5.4 and later do."""

        def forget(answer: Command) -> Command:
            if answer.code == ResponseCode.SUCCESS:
                self._broker.pulled.remove(predicate)
            return answer

        return forget

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    def _update_group(self, request: Command, peer: Peer) -> Answer:
        try:
            config = group_of_tool(decode_body(request))
        except ValueError as error:
            raise FieldError(f"the body is not the configuration of a group: {error}") from None

        def work() -> Command:
            self._broker.subscriptions.update(config)
            self._broker.subscriptions.save()
            return request.answer()

        return InThread(work)

    @answers(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    def _delete_group(self, request: Command, peer: Peer) -> Answer:
        group = request.text("groupName")
        # The field is removeOffset in 4.9.3, and cleanOffset in 5.3.3.
        is_forgotten = request.boolean("removeOffset") or request.boolean("cleanOffset")

        def work() -> Command:
            self._broker.subscriptions.delete(group)
            self._broker.subscriptions.save()
            if is_forgotten:
                self._broker.offsets.remove(lambda topic, of: of == group)
                self._broker.offsets.save()
            return request.answer()

        forget = self._forget_pulls(lambda topic, of: is_forgotten and of == group)
        return InThread(work, forget)

    @answers(RequestCode.CLONE_GROUP_OFFSET)
    def _clone(self, request: Command, peer: Peer) -> Answer:
        group, target = request.text("srcGroup"), request.text("destGroup")
        topic = (request.optional_text("topic") or "").strip()
        check_name(target, "group")
        offsets = self._broker.offsets

        def work() -> Command:
            for name in [topic] if topic else offsets.topics_of(group):
                if self._broker.topics.get(name) is not None:
                    offsets.clone(group, target, name)
            offsets.save()
            return request.answer()

        return InThread(work)

    @answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    def _reset(self, request: Command, peer: Peer) -> Answer:
        topic, group = request.text("topic"), request.text("group")
        config = self._broker.topics.get(topic)
        if self._broker.is_five:
            return self._reset_in_broker(request, topic, group, config)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            raise Refusal(remark)
        return self._have_reset(request, group, config)

    def _have_reset(self, call: Command, group: str, config: TopicConfig) -> Answer:
        """Reset offsets as a 4.9 broker does: the members of the group reset their offsets, and commit them."""
        topic, timestamp = config.name, call.int64("timestamp")
        is_forced, is_c = call.boolean("isForce"), call.language == "CPP"
        offsets = self._broker.offsets
        offsets_by_queue: dict[MessageQueue, int] = {}

        def work() -> Command:
            for queue_id in range(config.write_queues):
                committed = offsets.committed(group, topic, queue_id)
                if committed is None:
                    raise Refusal(f"THe consumer group <{group}> not exist")
                offset = self._offset_at(topic, queue_id, timestamp)
                if not is_forced and offset >= committed:
                    offset = committed
                offsets_by_queue[MessageQueue(topic, self._broker.name, queue_id)] = offset
            return call.answer(remark=_NOT_SET, body=_offset_table(offsets_by_queue))

        def then(answer: Command) -> Command:
            if answer.code != ResponseCode.SUCCESS:
                return answer
            if self._broker.groups.consumer_group(group) is None:
                remark = (
                    f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                    f"Timestamp: {timestamp}"
                )
                return call.answer(ResponseCode.CONSUMER_NOT_ONLINE, remark)
            body = _offset_list(offsets_by_queue) if is_c else answer.body
            fields = {"topic": topic, "group": group, "timestamp": timestamp, "isForce": "false"}
            notice = request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
            for client in asked_members(self._broker, group, len(body)):
                peer_of(client).push(notice)
            return answer

        return InThread(work, then)

    def _reset_in_broker(
        self, request: Command, topic: str, group: str, config: TopicConfig | None
    ) -> Answer:
        """Reset offsets as a 5.3 broker does: in the broker, without asking the members of the group to reset them."""
        if config is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if not self._broker.subscriptions.has_config(group):
            remark = f"Group {group} does not exist"
            raise Refusal(remark, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        queue_id, timestamp = request.int32("queueId", -1), request.int64("timestamp")
        offset = request.int64("offset", -1)
        if queue_id >= max(config.read_queues, config.write_queues):
            raise FieldError(f"queueId[{queue_id}] is illegal, topic:[{topic}]")

        def work() -> Command:
            offsets_by_queue: dict[MessageQueue, int] = {}
            for number in range(config.read_queues) if queue_id < 0 else (queue_id,):
                to = offset
                if queue_id < 0 or offset == -1:
                    to = self._offset_at(topic, number, timestamp)
                least = self._broker.min_offset(topic, number, check=False)
                most = self._broker.max_offset(topic, number)
                if not least <= to <= most + 1:
                    raise Refusal(f"Target offset {to} not in consume queue range [{least}-{most}]")
                offsets_by_queue[MessageQueue(topic, self._broker.name, number)] = to
            if not offsets_by_queue:
                return request.answer(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
            for queue, to in offsets_by_queue.items():
                self._broker.offsets.reset(group, topic, queue.queue_id, to)
            self._broker.offsets.save()
            return request.answer(body=_offset_table(offsets_by_queue))

        def then(answer: Command) -> Command:
            if answer.code == ResponseCode.SUCCESS:
                self._on_reset(group, topic)
            return answer

        return InThread(work, then)

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset at a time, or the queue's end for a time below 0."""
        if timestamp < 0:
            return self._broker.max_offset(topic, queue_id)
        return self._broker.offset_by_time(topic, queue_id, timestamp)

    @answers(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    def _consume_directly(self, call: Command, peer: Peer) -> Answer:
        """Ask a consumer to consume a message, and pass on its answer."""
        group, client_id = call.text("consumerGroup"), call.text("clientId")
        try:
            offset = decode_offset_id(call.text("msgId")).physical_offset
        except (ValueError, ReputError):
            raise FieldError("msgId is not the id of a stored message") from None
        record: list[bytes] = []

        def work() -> Command:
            record.append(self._broker.store.get_record(offset))
            return call.answer()

        def then(answer: Command) -> Command | Later:
            if not record:
                return answer
            fields = {**call.fields, "brokerName": self._broker.name}
            return ask_member(self._broker, call, group, client_id, fields, record[0])

        return InThread(work, then)


class ClientQueries:
    """Handles requests for the state and progress of clients. Like a broker, it passes them on to the clients."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    @answers(RequestCode.GET_CONSUMER_RUNNING_INFO)
    def _running_info(self, request: Command, peer: Peer) -> Answer:
        group, client_id = request.text("consumerGroup"), request.text("clientId")
        return ask_member(self._broker, request, group, client_id, request.fields, b"")

    @answers(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    def _status(self, call: Command, peer: Peer) -> Answer:
        """Return the progress of each member. Like a broker, exclude members that do not answer."""
        group, topic = call.text("group"), call.text("topic")
        wanted_id = (call.optional_text("clientAddr") or "").strip()
        everybody = asked_members(self._broker, group)
        if not everybody:
            raise Refusal(f"No Any Consumer online in the consumer group: [{group}]")
        members = [member for member in everybody if wanted_id in ("", member.client_id)]
        later, tables, pending = Later(), dict[str, bytes](), len(members)
        most_bytes = self._broker.limits.body_bytes

        def take(client: Client, answer: Command | None) -> None:
            nonlocal pending
            pending -= 1
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                tables[client.client_id] = answer.body
            if not pending:
                later.resolve(_joined_status(call, tables, most_bytes))

        for client in members:
            fields = {"topic": topic, "group": group}
            command = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields=fields)
            peer_of(client).ask(command, partial(take, client))
        return later if members else _joined_status(call, {}, most_bytes)


def asked_members(broker: ServedBroker, group: str, body_bytes: int = 0) -> list[Client]:
    """Return the members of a group, so that the caller can send a request to each member.

    `body_bytes` is the size of the request's body. Raises LimitError if the group has too many members, or if the
    copies of the body for all members are too large together.
    """
    consumers = broker.groups.consumer_group(group)
    members = list(consumers.clients.values()) if consumers is not None else []
    limits, size = broker.limits, body_bytes * len(members)
    if len(members) > limits.asked_members:
        most = limits.asked_members
        raise LimitError(
            f"group {group} has {len(members)} members, but a request can be passed on to at most {most}"
        )
    if size > limits.client_bytes:
        most = limits.client_bytes
        raise LimitError(
            f"the request takes {size} bytes for all members of group {group}, but at most {most} are allowed"
        )
    return members


def ask_member(
    broker: ServedBroker,
    call: Command,
    group: str,
    client_id: str,
    fields: Mapping[str, Any],
    body: bytes,
) -> Command | Later:
    """Pass a request on to a member of a group, and pass the member's answer back (`callConsumer`)."""
    consumers = broker.groups.consumer_group(group)
    members = consumers.clients.values() if consumers is not None else ()
    client = next((member for member in members if member.client_id == client_id), None)
    if client is None:
        remark = f"The Consumer <{group}> <{client_id}> not online"
        return call.answer(ResponseCode.SYSTEM_ERROR, remark)
    later = Later()

    def take(answer: Command | None) -> None:
        if answer is None:
            remark = f"consumer <{group}> <{client_id}> Timeout: it does not answer"
            later.resolve(call.answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark))
        else:
            later.resolve(call.answer(answer.code, answer.remark, answer.fields, answer.body))

    shared_fields = {name: value for name, value in fields.items() if name not in _SECRETS}
    peer_of(client).ask(Command(call.code, fields=shared_fields, body=body), take)
    return later


_SECRETS = ("AccessKey", "Signature", "SecurityToken")
"""Fields with secrets of the requesting client. They are removed before a request is passed on to another client."""


def peer_of(client: Client) -> Peer:
    """Return the connection of a member of a group."""
    return client.connection  # type: ignore[return-value]  # the Peer of a heartbeat


def _offset_table(offsets: dict[MessageQueue, int]) -> bytes:
    return encode_body({"offsetTable": queue_map(offsets.items())})


def _offset_list(offsets: dict[MessageQueue, int]) -> bytes:
    """Return the offsets as a list, for clients in C++: they cannot read a map whose keys are JSON objects."""
    rows = [queue_as_json(queue) | {"offset": offset} for queue, offset in offsets.items()]
    return encode_body({"offsetTable": rows})


def _joined_status(call: Command, tables: dict[str, bytes], most_bytes: int) -> Command:
    """Join the answers of several members.

    Each answer has a map whose keys are JSON objects. JSON parsers refuse such maps, so they are copied as text.
    """
    size = sum(map(len, tables.values()))
    if size > most_bytes:
        remark = f"the members answer with {size} bytes, but at most {most_bytes} are allowed"
        return call.answer(ResponseCode.SYSTEM_ERROR, remark)
    parts = [
        encode_body(client_id) + b":" + match[1]
        for client_id, body in tables.items()
        if (match := _STATUS.search(body)) is not None
    ]
    body = b'{"consumerTable":{' + b",".join(parts) + b'},"messageQueueTable":{}}'
    return call.answer(remark=_NOT_SET, body=body)


def _changed_attributes(
    changes: str, current: dict[str, str], is_new: bool, allowed: _Attributes
) -> dict[str, str]:
    """Apply changes `+name=value,-name` to attributes (`AttributeParser`, `AttributeUtil`). Raises FieldError."""
    attributes = dict(current)
    for change in filter(None, changes.split(",")):
        sign, (name, equals, value) = change[:1], change[1:].partition("=")
        if sign not in ("+", "-") or (sign == "+") != bool(equals):
            raise FieldError(f"attributes: specify +name=value or -name, not {change[:64]!r}")
        if name not in allowed:
            raise FieldError(f"unsupported key: {name[:64]}")
        if not is_new and name not in _CHANGEABLE and attributes.get(name) != value:
            raise FieldError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            attributes.pop(name, None)
        elif _is_attribute(allowed[name], value):
            attributes[name] = value
        else:
            raise FieldError(f"value is not in set: {allowed[name]}")
    return attributes


def _is_attribute(allowed: tuple[str, ...] | range, value: str) -> bool:
    if isinstance(allowed, tuple):
        return value in allowed
    try:
        # Check the length first: leading zeros are allowed, so the text may be very long.
        return len(value) <= _MOST_DIGITS and parse_int64(value) in allowed
    except ValueError:
        return False
