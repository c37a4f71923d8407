"""The register of requests (`RequestCode`, tags rocketmq-all-4.9.3 and rocketmq-all-5.3.3).

A row of `RequestCode` has all that the server knows of a request before a handler answers it: number and name, the
rights that the sender needs, what its body may be, and whether the audit log records it. A method of a handler states
with `handling.answers` which requests it answers. A request without such a method is refused as unknown; of some, this
server is the sender.

The rights are those of `DefaultAuthorizationContextBuilder` (5.3.3). A row without rights needs an administrator, so no
request is open by mistake. If a request reads messages, its handler also checks the topic of each message, with the
`Rights` of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, IntEnum, auto
from typing import Self

from reput.format.properties import (
    INNER_MULTI_DISPATCH,
    MULTI_DISPATCH_SEPARATOR,
    RETRY_TOPIC_PREFIX,
    decode_properties,
)
from reput.wings.serve.remoting.bodies import decode_body, objects_of
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.rights import PUB, SUB

Needs = Iterator[tuple[str | None, int]]
"""The permissions that a request needs: pairs of resource and permission (PUB, SUB).

The resource is a topic, the retry topic of a group, or None for an administrator's request.
"""


def _administration(request: Command) -> Needs:
    yield None, 0


def _free(request: Command) -> Needs:
    """Require no permission: the answer names no topics or groups, or only those that the account may read."""
    yield from ()


def _sends(request: Command) -> Needs:
    is_long = request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    yield request.text("topic" if is_long else "b"), PUB
    properties = request.optional_text("properties" if is_long else "i") or ""
    # The message also enters the queues of INNER_MULTI_DISPATCH, so the sender needs permission for each of them.
    further = decode_properties(properties).get(INNER_MULTI_DISPATCH, "")
    for queue in filter(None, further.split(MULTI_DISPATCH_SEPARATOR)):
        yield queue, PUB


def _sends_to_topic(request: Command) -> Needs:
    yield request.text("topic"), PUB


def _topic(request: Command) -> Needs:
    yield request.text("topic"), SUB


def _consumer_group(request: Command) -> Needs:
    yield _retry_topic(request.text("consumerGroup")), SUB


def _group(request: Command) -> Needs:
    yield _retry_topic(request.text("group")), SUB


def _any_group(request: Command) -> Needs:
    if (group := request.optional_text("consumerGroup")) is not None:
        yield _retry_topic(group), SUB


def _any_topic(request: Command) -> Needs:
    if topic := (request.optional_text("topic") or "").strip():
        yield topic, SUB


def _heartbeat(request: Command) -> Needs:
    for data in objects_of(decode_body(request), "consumerDataSet"):
        yield _retry_topic(str(data.get("groupName"))), SUB
        for subscription in objects_of(data, "subscriptionDataSet"):
            yield str(subscription.get("topic")), SUB


def _assignment(request: Command) -> Needs:
    body = decode_body(request)
    yield _retry_topic(str(body.get("consumerGroup"))), SUB
    yield str(body.get("topic")), SUB


def _locks(request: Command) -> Needs:
    body = decode_body(request)
    yield _retry_topic(str(body.get("consumerGroup"))), SUB
    for topic in {str(queue.get("topic")) for queue in objects_of(body, "mqSet")}:
        yield topic, SUB


def _retry_topic(group: str) -> str:
    return f"{RETRY_TOPIC_PREFIX}{group}"


class BodyKind(Enum):
    """What the body of a request may be."""

    NONE = auto()
    JSON = auto()
    """An object of at most `Limits.body_bytes`."""
    MESSAGES = auto()
    """A message or a batch, whose size the store limits. The request only puts it."""
    REPLY = auto()
    """A message that is also passed on to another client."""


class AuditRule(Enum):
    """When the audit log records a request."""

    ALWAYS = auto()
    IF_READ = auto()
    """Consumers pull all the time. Record a pull only if it read messages, was forbidden or failed."""
    NEVER = auto()
    """The request is frequent, and reads no message."""


_Row = tuple[int, tuple[Callable[[Command], Needs], ...] | None, BodyKind, AuditRule]


def _row(
    number: int,
    *rights: Callable[[Command], Needs],
    body: BodyKind = BodyKind.NONE,
    audit: AuditRule = AuditRule.ALWAYS,
) -> _Row:
    return number, rights or (_administration,), body, audit


def _of_name_server(number: int, audit: AuditRule = AuditRule.ALWAYS) -> _Row:
    """Return the row of a request to the name server. As in RocketMQ, it needs no account."""
    return number, None, BodyKind.NONE, audit


class RequestCode(IntEnum):
    """The requests, by name and number.

    Attributes:
        rights: Functions that yield the permissions that the sender needs; None if it needs no account.
        body: What the body of the request may be.
        audit: When the audit log records the request.
    """

    rights: tuple[Callable[[Command], Needs], ...] | None
    body: BodyKind
    audit: AuditRule

    def __new__(
        cls,
        number: int,
        rights: tuple[Callable[[Command], Needs], ...] | None = (_administration,),
        body: BodyKind = BodyKind.NONE,
        audit: AuditRule = AuditRule.ALWAYS,
    ) -> Self:
        code = int.__new__(cls, number)
        code._value_ = number
        code.rights, code.body, code.audit = rights, body, audit
        return code

    SEND_MESSAGE = _row(10, _sends, body=BodyKind.MESSAGES)
    PULL_MESSAGE = _row(11, _topic, _consumer_group, audit=AuditRule.IF_READ)
    QUERY_MESSAGE = _row(12, _topic)
    QUERY_CONSUMER_OFFSET = _row(14, _topic, _consumer_group, audit=AuditRule.NEVER)
    UPDATE_CONSUMER_OFFSET = _row(15, _topic, _consumer_group, audit=AuditRule.NEVER)
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = _row(21, _free)
    GET_BROKER_CONFIG = _row(26, _free)
    GET_BROKER_RUNTIME_INFO = _row(28, _free)
    SEARCH_OFFSET_BY_TIMESTAMP = _row(29, _topic)
    GET_MAX_OFFSET = _row(30, _topic, audit=AuditRule.NEVER)
    GET_MIN_OFFSET = _row(31, _topic, audit=AuditRule.NEVER)
    GET_EARLIEST_MSG_STORETIME = _row(32, _topic)
    VIEW_MESSAGE_BY_ID = _row(33, _free)  # The handler checks the topic of the message.
    HEART_BEAT = _row(34, _heartbeat, body=BodyKind.JSON, audit=AuditRule.NEVER)
    UNREGISTER_CLIENT = _row(35, _any_group, audit=AuditRule.NEVER)
    CONSUMER_SEND_MSG_BACK = _row(36, _group)
    END_TRANSACTION = _row(37, _free)  # The handler checks the topic of the prepared message.
    GET_CONSUMER_LIST_BY_GROUP = _row(38, _consumer_group, audit=AuditRule.NEVER)
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = _row(41, _locks, body=BodyKind.JSON, audit=AuditRule.NEVER)
    UNLOCK_BATCH_MQ = _row(42, _locks, body=BodyKind.JSON, audit=AuditRule.NEVER)
    GET_ALL_CONSUMER_OFFSET = _row(43, _free)
    GET_ALL_DELAY_OFFSET = _row(45, _free)
    CHECK_CLIENT_CONFIG = _row(46, _free, body=BodyKind.JSON, audit=AuditRule.NEVER)
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = _of_name_server(101)
    DELETE_KV_CONFIG = 102
    GET_ROUTEINFO_BY_TOPIC = _of_name_server(105, AuditRule.NEVER)
    GET_BROKER_CLUSTER_INFO = _of_name_server(106)
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = _row(200, body=BodyKind.JSON)
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = _row(201, _free)
    GET_TOPIC_STATS_INFO = _row(202, _topic)
    GET_CONSUMER_CONNECTION_LIST = _row(203, _consumer_group)
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = _of_name_server(206)
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = _row(208, _consumer_group, _any_topic)
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = _of_name_server(219)
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = _of_name_server(224)
    QUERY_TOPIC_CONSUME_BY_WHO = _row(300, _topic)
    QUERY_CONSUME_TIME_SPAN = _row(303, _topic, _group)
    GET_SYSTEM_TOPIC_LIST_FROM_NS = _of_name_server(304)
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = _row(305, _free)
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = _row(310, _sends, body=BodyKind.MESSAGES)
    GET_UNIT_TOPIC_LIST = _of_name_server(311)
    GET_HAS_UNIT_SUB_TOPIC_LIST = _of_name_server(312)
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = _of_name_server(313)
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    GET_BROKER_CONSUME_STATS = 317
    GET_NAMESRV_CONFIG = _of_name_server(319)
    SEND_BATCH_MESSAGE = _row(320, _sends, body=BodyKind.MESSAGES)
    QUERY_CONSUME_QUEUE = _row(321, _topic, _any_group)
    SEND_REPLY_MESSAGE = _row(324, _sends, body=BodyKind.REPLY)
    SEND_REPLY_MESSAGE_V2 = _row(325, _sends, body=BodyKind.REPLY)
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    GET_ALL_PRODUCER_INFO = 328
    QUERY_TOPICS_BY_CONSUMER = _row(343, _group)
    QUERY_SUBSCRIPTION_BY_CONSUMER = _row(345, _topic, _group)
    GET_TOPIC_CONFIG = _row(351, _topic)
    GET_SUBSCRIPTIONGROUP_CONFIG = _row(352, _group)
    LITE_PULL_MESSAGE = _row(361, _topic, _consumer_group, audit=AuditRule.IF_READ)
    RECALL_MESSAGE = _row(370, _sends_to_topic)
    QUERY_ASSIGNMENT = _row(400, _assignment, body=BodyKind.JSON, audit=AuditRule.NEVER)


REQUESTS: Mapping[int, RequestCode] = {int(code): code for code in RequestCode}


def needed_rights(request: Command) -> Needs:
    """Yield the permissions that a request needs. Raises FieldError."""
    code = REQUESTS.get(request.code)
    for right in (_administration,) if code is None else code.rights or ():
        yield from right(request)


PLAIN_SENDS = frozenset(code for code in RequestCode if code.body is BodyKind.MESSAGES)
"""Requests that only put messages. The answer is sent after the messages were put."""
SENDS = frozenset(code for code in RequestCode if code.body in (BodyKind.MESSAGES, BodyKind.REPLY))
"""Requests whose bodies are messages."""
WITH_JSON = frozenset(code for code in RequestCode if code.body is BodyKind.JSON)
OF_NAME_SERVER = frozenset(code for code in RequestCode if code.rights is None)
"""Requests that a name server answers, to any client."""
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
