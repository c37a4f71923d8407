"""Answer requests of consumers except pulls: heartbeats, members of a group, offsets, locks.

Mirrors `ClientManageProcessor`, `ConsumerManageProcessor`, `Broker2Client` and the locks of `AdminBrokerProcessor`
(tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from reput.base import counted
from reput.errors import MessageNotFoundError, UsageError
from reput.format.properties import RETRY_TOPIC_PREFIX
from reput.wings.serve.broker import groups
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.broker.limits import LimitError, check_name
from reput.wings.serve.broker.locks import MessageQueue
from reput.wings.serve.broker.sql_filter import SQL_TYPE, Matcher, compile_filter
from reput.wings.serve.remoting.bodies import decode_body, objects_of, queue_as_json, queues_of
from reput.wings.serve.remoting.commands import (
    Command,
    FieldError,
    Refusal,
    ResponseCode,
    encode_body,
    request,
)
from reput.wings.serve.remoting.handling import Answer, InThread, Peer, answers
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.rights import PUB

_MOST_CHARACTERS = 512
_STRATEGIES = ("AVG", "AVG_BY_CIRCLE")
_MOST_NOTICES = 500
"""Maximum number of clients that one call of `notify` informs about changed groups.

Without this limit, a change in a group with many members would delay all other clients.
"""


class Consuming:
    """Handles requests of the consumers and producers of one broker."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker
        self._changed: dict[str, dict[Hashable, None]] = {}
        broker.groups.on_change = self._note

    @answers(RequestCode.QUERY_ASSIGNMENT)
    def _assign(self, request: Command, peer: Peer) -> Answer:
        """Return the queues of a topic from which one member of a group shall pull (`QueryAssignmentProcessor`)."""
        body = decode_body(request)
        group, client_id = str(body.get("consumerGroup", "")), str(body.get("clientId", ""))
        topic, strategy = str(body.get("topic", "")), str(body.get("strategyName", "AVG"))
        config = self._broker.topics.get(topic)
        if strategy not in _STRATEGIES:
            raise FieldError(f"strategyName {strategy[:64]!r}: AVG and AVG_BY_CIRCLE are supported")
        consumers = self._broker.groups.consumer_group(group)
        clients = list(consumers.clients.values()) if consumers is not None else []

        def work() -> Command:
            # Sort, so that the answers to all members agree. Otherwise, two members could pull from the same queue.
            members = sorted({client.client_id for client in clients})
            queues = list(range(config.read_queues)) if config is not None else []
            if body.get("messageModel") != "BROADCASTING":
                queues = _share(queues, members, client_id, strategy)
            rows = [
                {
                    "messageQueue": queue_as_json(MessageQueue(topic, self._broker.name, number)),
                    "mode": "PULL",
                }
                for number in queues
            ]
            return request.answer_json({"messageQueueAssignments": rows})

        return InThread(work)

    def _note(self, group: str, connections: list[Hashable]) -> None:
        self._changed.setdefault(group, {}).update(dict.fromkeys(connections))

    def notify(self) -> None:
        """Notify the members of changed groups, so that they divide the queues again.

        Call this several times per second. Each member gets one notification for all changes since the last call.
        """
        budget = _MOST_NOTICES
        while self._changed and budget:
            group, connections = next(iter(self._changed.items()))
            notice = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
            for connection in list(islice(connections, budget)):
                del connections[connection]
                connection.push(notice)  # type: ignore[attr-defined]  # the Peer of a heartbeat
                budget -= 1
            if not connections:
                del self._changed[group]

    @answers(RequestCode.HEART_BEAT)
    def _heartbeat(self, request: Command, peer: Peer) -> Command:
        body = decode_body(request)
        client = groups.Client(
            peer, _short(body.get("clientID", "")), str(peer.address), _short(request.language),
            request.version, may_send=partial(request.rights.may, permission=PUB),
            owner=request.rights.owner,
        )  # fmt: skip
        consumers, producers = (
            objects_of(body, "consumerDataSet"),
            objects_of(body, "producerDataSet"),
        )
        if len(consumers) + len(producers) > self._broker.limits.groups:
            raise LimitError(
                f"a heartbeat has {counted(len(consumers) + len(producers), 'group')}, "
                f"but at most {self._broker.limits.groups} are allowed"
            )
        joining = [_joining(data) for data in consumers]
        self._broker.groups.register(client, joining, [_name(data) for data in producers])
        for join in joining:
            self._broker.subscriptions.note(join.group)
            self._create_retry_topic(join.group)
        return request.answer()

    def _create_retry_topic(self, group: str) -> None:
        config = self._broker.subscriptions.get(group)
        if self._broker.writable is not None:
            self._broker.topics.create(f"{RETRY_TOPIC_PREFIX}{group}", config.retry_queues)
            return
        # The store is read-only, so nothing is sent to the retry topic, and the group works even without this topic.
        with suppress(LimitError):
            self._broker.topics.create(f"{RETRY_TOPIC_PREFIX}{group}", config.retry_queues)

    @answers(RequestCode.UNREGISTER_CLIENT)
    def _unregister(self, request: Command, peer: Peer) -> Command:
        if (group := request.optional_text("producerGroup")) is not None:
            self._broker.groups.unregister_producer(group, peer)
        if (group := request.optional_text("consumerGroup")) is not None:
            self._broker.groups.unregister_consumer(group, peer)
        return request.answer()

    @answers(RequestCode.CHECK_CLIENT_CONFIG)
    def _check_client(self, request: Command, peer: Peer) -> Command:
        fields = decode_body(request).get("subscriptionData")
        if isinstance(fields, dict) and not (subscription := _subscription(fields)).is_by_tag:
            kind = subscription.expression_type
            if kind == SQL_TYPE and self._broker.has_sql_filters:
                try:
                    check_expression(self._broker, subscription.expression)
                except (UsageError, LimitError) as error:
                    return request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
                return request.answer()
            raise Refusal(f"The broker does not support consumer to filter message by {kind}")
        return request.answer()

    @answers(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def _members(self, request: Command, peer: Peer) -> Answer:
        group = request.text("consumerGroup")
        consumers = self._broker.groups.consumer_group(group)
        if consumers is None or not consumers.clients:
            raise Refusal(f"no consumer for this group, {group}")
        clients = list(consumers.clients.values())

        def work() -> Command:
            ids = [client.client_id for client in clients]
            return request.answer_json({"consumerIdList": ids})

        return InThread(work)

    @answers(RequestCode.QUERY_CONSUMER_OFFSET)
    def _offset(self, request: Command, peer: Peer) -> Answer:
        group, topic = request.text("consumerGroup"), request.text("topic")
        queue_id = request.int32("queueId")
        offset = self._broker.offsets.committed(group, topic, queue_id)
        if offset is None and (floor := self._broker.topics.floor(topic, queue_id)):
            # Messages before the queue offset `floor` belong to a deleted topic of the same name. So a group without a
            # committed offset begins at `floor`.
            offset = floor
        if offset is not None and offset >= 0:
            return request.answer(fields={"offset": str(offset)})

        def work() -> Command:
            if self._begins_at_zero(topic, queue_id):
                return request.answer(fields={"offset": "0"})
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            raise Refusal(remark, ResponseCode.QUERY_NOT_FOUND)

        return InThread(work)

    def _begins_at_zero(self, topic: str, queue_id: int) -> bool:
        """Return whether a group that has no offset in a queue begins at the first message, regardless of its settings.

        A broker does this if the first message is still in memory. Here, it is done if the queue still has all its
        messages, because consumers of an old store want to read them.
        """
        try:
            return self._broker.store.min_queue_offset(topic, queue_id, check=False) <= 0
        except MessageNotFoundError:
            return True

    @answers(RequestCode.UPDATE_CONSUMER_OFFSET)
    def _commit(self, request: Command, peer: Peer) -> Command:
        group, topic = request.text("consumerGroup"), request.text("topic")
        queue_id, offset = request.int32("queueId"), request.int64("commitOffset")
        config = self._broker.topics.get(topic)
        # Like a 5.x broker, refuse an offset of an unknown topic. Otherwise, clients could store offsets of a deleted
        # topic, and these would stay forever.
        if config is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= queue_id < max(config.read_queues, config.write_queues):
            raise Refusal(f"queueId[{queue_id}] is illegal, topic:[{topic}]")
        if self._broker.offsets.is_reset(group, topic, queue_id):
            return request.answer(remark="Offset has been previously reset")
        self._broker.offsets.commit(group, topic, queue_id, offset)
        return request.answer()

    @answers(RequestCode.LOCK_BATCH_MQ)
    def _lock(self, request: Command, peer: Peer) -> Command:
        locks = self._broker.locks.lock(*self._locking(request))
        content = {"lockOKMQSet": [queue_as_json(queue) for queue in locks]}
        return request.answer_json(content)

    @answers(RequestCode.UNLOCK_BATCH_MQ)
    def _unlock(self, request: Command, peer: Peer) -> Command:
        self._broker.locks.unlock(*self._locking(request))
        return request.answer()

    def _locking(self, request: Command) -> tuple[str, str, list[MessageQueue]]:
        body = decode_body(request)
        group, client_id = str(body.get("consumerGroup", "")), _short(body.get("clientId", ""))
        check_name(group, "group")
        queues = queues_of(body, "mqSet", self._broker.limits.locked_queues)
        for topic in {queue.topic for queue in queues}:
            check_name(topic, "topic")
        return group, client_id, queues


def _share(queues: list[int], members: list[str], client_id: str, strategy: str) -> list[int]:
    """Return the queues of one member (`AllocateMessageQueueAveragely`, `AllocateMessageQueueAveragelyByCircle`)."""
    if client_id not in members:
        return []
    index, count = members.index(client_id), len(members)
    if strategy == "AVG_BY_CIRCLE":
        return queues[index::count]
    size, more = divmod(len(queues), count)
    begin = index * size + min(index, more)
    return queues[begin : begin + size + (index < more)]


def _joining(data: dict[str, Any]) -> groups.Joining:
    settings = groups.ConsumerGroup(
        _short(data.get("consumeType", "CONSUME_PASSIVELY")),
        _short(data.get("messageModel", "CLUSTERING")),
        _short(data.get("consumeFromWhere", "CONSUME_FROM_LAST_OFFSET")),
    )
    subscriptions = [_subscription(fields) for fields in objects_of(data, "subscriptionDataSet")]
    return groups.Joining(_name(data), settings, subscriptions)


def _name(data: Mapping[str, Any]) -> str:
    name = data.get("groupName")
    if not isinstance(name, str) or not name:
        raise FieldError("a group has no groupName")
    return name


def check_expression(broker: ServedBroker, expression: str) -> Matcher:
    """Compile an SQL92 expression. Raises UsageError, LimitError."""
    most = broker.limits.expression_chars
    if len(expression) > most:
        raise LimitError(f"the expression is longer than {most} characters")
    return compile_filter(expression, broker.is_five).matches


def _short(value: object) -> str:
    """Return a value as a text of limited length, because it stays in memory while the client is connected."""
    return str(value)[:_MOST_CHARACTERS]


def _subscription(data: dict[str, Any]) -> groups.TopicSubscription:
    try:
        version = int(data.get("subVersion", 0))
    except (TypeError, ValueError, OverflowError):
        raise FieldError("subVersion is not a number") from None
    topic = str(data.get("topic", ""))
    check_name(topic, "topic")
    return groups.TopicSubscription(
        topic, str(data.get("subString") or "*"), _short(data.get("expressionType") or groups.TAG_TYPE),
        version, encode_body(data),
    )  # fmt: skip
