"""What consumers need beside messages: heartbeats, members of a group, offsets, locks.

Mirrors `ClientManageProcessor`, `ConsumerManageProcessor`, `Broker2Client` and the locks of `AdminBrokerProcessor`
(tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from reput.broker.broker import Broker
from reput.broker.groups import TAG_TYPE, Client, ConsumerGroup, Subscription
from reput.errors import MessageNotFoundError
from reput.format.properties import RETRY_TOPIC_PREFIX
from reput.remoting.bodies import decode_body, encode_body, queue_as_json, queues_of
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.commands import Command, FieldError, request
from reput.remoting.handling import Handler, Peer


class Consuming:
    """The consumers and producers of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.groups.on_change = _notify

    def handlers(self) -> dict[int, Handler]:
        """By code."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def _heartbeat(self, request: Command, peer: Peer) -> Command:
        body = decode_body(request.body)
        client = Client(
            peer, str(body.get("clientID", "")), str(peer.address), request.language,
            request.version,
        )  # fmt: skip
        for data in _objects(body, "consumerDataSet"):
            group = _name(data)
            config = self._broker.subscriptions.get(group)
            self._broker.topics.create(f"{RETRY_TOPIC_PREFIX}{group}", config.retry_queues)
            found = ConsumerGroup(
                str(data.get("consumeType", "CONSUME_PASSIVELY")),
                str(data.get("messageModel", "CLUSTERING")),
                str(data.get("consumeFromWhere", "CONSUME_FROM_LAST_OFFSET")),
            )
            wanted = [_subscription(each) for each in _objects(data, "subscriptionDataSet")]
            self._broker.groups.register_consumer(group, client, found, wanted)
        for data in _objects(body, "producerDataSet"):
            self._broker.groups.register_producer(_name(data), client)
        return request.answer()

    def _unregister(self, request: Command, peer: Peer) -> Command:
        if (group := request.optional_text("producerGroup")) is not None:
            self._broker.groups.unregister_producer(group, peer)
        if (group := request.optional_text("consumerGroup")) is not None:
            self._broker.groups.unregister_consumer(group, peer)
        return request.answer()

    def _check_client(self, request: Command, peer: Peer) -> Command:
        wanted = decode_body(request.body).get("subscriptionData")
        if isinstance(wanted, dict) and not _subscription(wanted).is_by_tag:
            kind = wanted.get("expressionType")
            remark = f"The broker does not support consumer to filter message by {kind}"
            return request.answer(ResponseCode.SYSTEM_ERROR, remark)
        return request.answer()

    def _members(self, request: Command, peer: Peer) -> Command:
        group = request.text("consumerGroup")
        found = self._broker.groups.consumer_group(group)
        if found is None or not found.clients:
            remark = f"no consumer for this group, {group}"
            return request.answer(ResponseCode.SYSTEM_ERROR, remark)
        ids = [client.client_id for client in found.clients.values()]
        return request.answer(body=encode_body({"consumerIdList": ids}))

    def _offset(self, request: Command, peer: Peer) -> Command:
        group, topic = request.text("consumerGroup"), request.text("topic")
        queue_id = request.int32("queueId")
        offset = self._broker.offsets.committed(group, topic, queue_id)
        if (offset is None or offset < 0) and self._begins_at_zero(topic, queue_id):
            offset = 0
        if offset is None or offset < 0:
            return request.answer(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return request.answer(fields={"offset": str(offset)})

    def _begins_at_zero(self, topic: str, queue_id: int) -> bool:
        """Whether a group that is new to a queue begins at its first message, whatever it says.

        A broker has it so where the first message is still in memory. Nothing in an archive is; here it is so where
        the queue has all its messages: a consumer that asks an archive wants them.
        """
        try:
            return self._broker.store.min_queue_offset(topic, queue_id) <= 0
        except MessageNotFoundError:
            return True

    def _commit(self, request: Command, peer: Peer) -> Command:
        self._broker.offsets.commit(
            request.text("consumerGroup"), request.text("topic"), request.int32("queueId"),
            request.int64("commitOffset"),
        )  # fmt: skip
        return request.answer()

    def _lock(self, request: Command, peer: Peer) -> Command:
        body = decode_body(request.body)
        held = self._broker.locks.lock(
            str(body.get("consumerGroup", "")),
            str(body.get("clientId", "")),
            queues_of(body, "mqSet"),
        )
        content = {"lockOKMQSet": [queue_as_json(queue) for queue in held]}
        return request.answer(body=encode_body(content))

    def _unlock(self, request: Command, peer: Peer) -> Command:
        body = decode_body(request.body)
        self._broker.locks.unlock(
            str(body.get("consumerGroup", "")),
            str(body.get("clientId", "")),
            queues_of(body, "mqSet"),
        )
        return request.answer()


def _notify(group: str, connections: list[Hashable]) -> None:
    """Have the members of a group share its queues anew."""
    notice = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
    for connection in connections:
        connection.push(notice)  # type: ignore[attr-defined]  # the Peer of a heartbeat


def _objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise FieldError(f"{name} is not a list of objects")
    return found


def _name(data: Mapping[str, Any]) -> str:
    name = data.get("groupName")
    if not isinstance(name, str) or not name:
        raise FieldError("a group without a groupName")
    return name


def _subscription(data: dict[str, Any]) -> Subscription:
    try:
        version = int(data.get("subVersion", 0))
    except (TypeError, ValueError):
        raise FieldError("subVersion is not a number") from None
    return Subscription(
        str(data.get("topic", "")), str(data.get("subString") or "*"),
        str(data.get("expressionType") or TAG_TYPE), version, data,
    )  # fmt: skip
