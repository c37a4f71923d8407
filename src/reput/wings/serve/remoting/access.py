"""Check permissions against the accounts of a `plain_acl.yml`, which is read as a broker reads it.

Mirrors `PlainAccessValidator`, `PlainPermissionManager`, `RemoteAddressStrategyFactory` and `AclUtils` (tag
rocketmq-all-4.9.3). A request contains the account's access key, and a signature of its fields and body with the
account's secret. As in RocketMQ, requests to a name server need no permission.

A resource is a topic or a group. `_NEEDS` lists the resources for which each kind of request needs a permission, as in
`DefaultAuthorizationContextBuilder` (tag rocketmq-all-5.3.3). If a request reads messages, its handler also checks the
topic of each message, with the `Rights` of the request.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from reput.errors import MissingExtraError, StoreAccessError, UsageError
from reput.format.properties import (
    INNER_MULTI_DISPATCH,
    MULTI_DISPATCH_SEPARATOR,
    RETRY_TOPIC_PREFIX,
    decode_properties,
)
from reput.wings.serve.remoting.bodies import decode_body, objects_of
from reput.wings.serve.remoting.codes import RequestCode
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.rights import FREE, PUB, SUB, AccessError, Account, Rights

_PERMISSIONS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": 0}
# Fields that a client does not sign (`PlainAccessValidator.parse`).
_UNSIGNED = {"Signature", "_UNIQUE_KEY_QUERY"}


class AccessList:
    """The accounts, and the addresses that need no account."""

    def __init__(self, accounts: Mapping[str, Account], white_list: list[str]) -> None:
        self._accounts, self._white_list = accounts, white_list

    @classmethod
    def read(cls, path: str | PathLike[str]) -> AccessList:
        """Read a plain_acl.yml. Raises UsageError, StoreAccessError, MissingExtraError."""
        try:
            import yaml
        except ImportError:
            raise MissingExtraError("acl needs PyYAML: pip install 'reput[serve]'") from None
        try:
            content = yaml.safe_load(Path(path).read_bytes()) or {}
            accounts = [_account(each) for each in content.get("accounts") or ()]
            white_list = [str(each) for each in content.get("globalWhiteRemoteAddresses") or ()]
        except OSError as error:
            raise StoreAccessError(f"{fspath(path)}: cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise UsageError(f"{fspath(path)}: not a list of accounts: {reason}") from None
        return cls({each.access_key: each for each in accounts}, white_list)

    def check(self, request: Command, address: str) -> Rights:
        """Return the rights of a request's sender. Raises AccessError if the request is not allowed."""
        if any(matches(pattern, address) for pattern in self._white_list):
            return FREE
        key = request.optional_text("AccessKey")
        if key is None:
            raise AccessError("No accessKey is configured")
        account = self._accounts.get(key)
        if account is None:
            raise AccessError(f"No acl config for {key}")
        if account.addresses and matches(account.addresses, address):
            return FREE
        given = request.optional_text("Signature") or ""
        # Compare in constant time: the duration must not reveal how much of a guessed signature is right.
        if not hmac.compare_digest(signature(request, account.secret), given.encode()):
            raise AccessError(f"Check signature failed for accessKey={key}")
        rights = Rights(account)
        # A request that is not listed needs an administrator, so no request is open by mistake.
        needs = _NEEDS.get(request.code, _administration)
        for resource, permission in needs(request):
            is_allowed = rights.is_admin if resource is None else rights.may(resource, permission)
            if not is_allowed:
                # A broker sends the same error message (`PlainPermissionManager.checkPerm`).
                raise AccessError(f"No default permission for {resource or 'administration'}")
        return rights


def signature(request: Command, secret: bytes) -> bytes:
    """Return a request's valid `Signature`: the HMAC-SHA1 of its fields, in the order of their names, and its body."""
    names = sorted(request.fields.keys() - _UNSIGNED)
    content = "".join(request.optional_text(name) or "" for name in names).encode()
    signing = hmac.new(secret, content, hashlib.sha1)
    signing.update(request.body)
    return b64encode(signing.digest())


def matches(pattern: str, address: str) -> bool:
    """Return whether an address matches a pattern: `*`, `10.0.*.*`, `10.0.0.1-99`, `10.0.0.{1,7}`, or a list."""
    pattern = pattern.strip()
    if "{" not in pattern and "," in pattern:
        return any(matches(each, address) for each in pattern.split(","))
    if pattern in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
        return True
    wanted, parts = pattern.split("."), address.split(".")
    if len(wanted) != len(parts) or len(parts) != 4:
        return pattern.lower() == address.lower()
    return all(_matches_part(one, part) for one, part in zip(wanted, parts, strict=True))


def _matches_part(pattern: str, part: str) -> bool:
    first, dash, last = pattern.partition("-")
    if dash:
        numbers = (first, last, part)
        return all(each.isdigit() for each in numbers) and int(first) <= int(part) <= int(last)
    return pattern == "*" or part in pattern.strip("{}").split(",")


_Needs = Iterator[tuple[str | None, int]]
"""The permissions that a request needs: pairs of resource and permission.

The resource is a topic, the retry topic of a group, or None for an administrator's request.
"""


def _sends(request: Command) -> _Needs:
    is_long = request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    yield request.text("topic" if is_long else "b"), PUB
    properties = request.optional_text("properties" if is_long else "i") or ""
    # The message also enters the queues of INNER_MULTI_DISPATCH, so the sender needs permission for each of them.
    further = decode_properties(properties).get(INNER_MULTI_DISPATCH, "")
    for queue in filter(None, further.split(MULTI_DISPATCH_SEPARATOR)):
        yield queue, PUB


def _recalls(request: Command) -> _Needs:
    yield request.text("topic"), PUB


def _topic(request: Command) -> _Needs:
    yield request.text("topic"), SUB


def _group(request: Command) -> _Needs:
    yield _retry_topic(request.text("consumerGroup")), SUB


def _topic_and_group(request: Command) -> _Needs:
    yield from _topic(request)
    yield from _group(request)


def _group_of_span(request: Command) -> _Needs:
    yield from _topic(request)
    yield _retry_topic(request.text("group")), SUB


def _group_and_any_topic(request: Command) -> _Needs:
    yield from _group(request)
    if topic := (request.optional_text("topic") or "").strip():
        yield topic, SUB


def _topic_and_any_group(request: Command) -> _Needs:
    yield from _topic(request)
    yield from _any_group(request)


def _any_group(request: Command) -> _Needs:
    if (group := request.optional_text("consumerGroup")) is not None:
        yield _retry_topic(group), SUB


def _heartbeat(request: Command) -> _Needs:
    for data in objects_of(decode_body(request), "consumerDataSet"):
        yield _retry_topic(str(data.get("groupName"))), SUB
        for each in objects_of(data, "subscriptionDataSet"):
            yield str(each.get("topic")), SUB


def _named_group(request: Command) -> _Needs:
    yield _retry_topic(request.text("group")), SUB


def _assigned(request: Command) -> _Needs:
    body = decode_body(request)
    yield _retry_topic(str(body.get("consumerGroup"))), SUB
    yield str(body.get("topic")), SUB


def _locks(request: Command) -> _Needs:
    body = decode_body(request)
    yield _retry_topic(str(body.get("consumerGroup"))), SUB
    for topic in {str(each.get("topic")) for each in objects_of(body, "mqSet")}:
        yield topic, SUB


def _send_back(request: Command) -> _Needs:
    yield _retry_topic(request.text("group")), SUB


def _administration(request: Command) -> _Needs:
    yield None, 0


def _nothing(request: Command) -> _Needs:
    """Require no permission: the answer names no topics or groups, or only those that the client may read."""
    yield from ()


_NEEDS: Mapping[int, Callable[[Command], _Needs]] = {
    RequestCode.SEND_MESSAGE: _sends,
    RequestCode.SEND_MESSAGE_V2: _sends,
    RequestCode.SEND_BATCH_MESSAGE: _sends,
    RequestCode.RECALL_MESSAGE: _recalls,
    RequestCode.SEND_REPLY_MESSAGE: _sends,
    RequestCode.SEND_REPLY_MESSAGE_V2: _sends,
    RequestCode.PULL_MESSAGE: _topic_and_group,
    RequestCode.LITE_PULL_MESSAGE: _topic_and_group,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _administration,
    RequestCode.DELETE_TOPIC_IN_BROKER: _administration,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _administration,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _administration,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _administration,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _administration,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _administration,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _administration,
    RequestCode.CLONE_GROUP_OFFSET: _administration,
    RequestCode.VIEW_BROKER_STATS_DATA: _administration,
    RequestCode.GET_BROKER_CONSUME_STATS: _administration,
    RequestCode.GET_ALL_PRODUCER_INFO: _administration,
    RequestCode.PUT_KV_CONFIG: _administration,
    RequestCode.DELETE_KV_CONFIG: _administration,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _administration,
    RequestCode.GET_TOPIC_CONFIG: _topic,
    RequestCode.GET_ALL_DELAY_OFFSET: _nothing,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _named_group,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _named_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _group_of_span,
    RequestCode.QUERY_ASSIGNMENT: _assigned,
    RequestCode.QUERY_MESSAGE: _topic,
    RequestCode.QUERY_CONSUMER_OFFSET: _topic_and_group,
    RequestCode.UPDATE_CONSUMER_OFFSET: _topic_and_group,
    RequestCode.GET_ALL_TOPIC_CONFIG: _nothing,
    RequestCode.GET_BROKER_CONFIG: _nothing,
    RequestCode.GET_BROKER_RUNTIME_INFO: _nothing,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _topic,
    RequestCode.GET_MAX_OFFSET: _topic,
    RequestCode.GET_MIN_OFFSET: _topic,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _topic,
    RequestCode.VIEW_MESSAGE_BY_ID: _nothing,  # The handler checks the topic of the message.
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _any_group,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.END_TRANSACTION: _nothing,  # The handler checks the topic of the prepared message.
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _group,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _nothing,
    RequestCode.CHECK_CLIENT_CONFIG: _nothing,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _nothing,
    RequestCode.GET_TOPIC_STATS_INFO: _topic,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _group,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _administration,
    RequestCode.GET_CONSUME_STATS: _group_and_any_topic,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _topic,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _group_of_span,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _nothing,
    RequestCode.QUERY_CONSUME_QUEUE: _topic_and_any_group,
}


def _retry_topic(group: str) -> str:
    return f"{RETRY_TOPIC_PREFIX}{group}"


def _account(found: Mapping[str, Any]) -> Account:
    key, secret = str(found["accessKey"]), str(found["secretKey"])
    if len(key) <= 6 or len(secret) <= 6:
        raise ValueError(
            f"the accessKey and the secretKey of {key} must be longer than 6 characters"
        )
    return Account(
        key, secret.encode(), str(found.get("whiteRemoteAddress") or ""),
        bool(found.get("admin", False)), _permission(found.get("defaultTopicPerm")),
        _permission(found.get("defaultGroupPerm")), _permissions(found.get("topicPerms")),
        _permissions(found.get("groupPerms")),
    )  # fmt: skip


def _permission(text: Any) -> int:
    """Return the permission that a text names. Like a broker, return DENY for an unknown text."""
    return _PERMISSIONS.get(str(text).strip(), 0)


def _permissions(texts: Any) -> dict[str, int]:
    found = {}
    for text in texts or ():
        name, equals, permission = str(text).partition("=")
        if not equals or permission.strip() not in _PERMISSIONS:
            raise ValueError(f"{text!r}: must be NAME=PERMISSION, with PUB, SUB, PUB|SUB or DENY")
        found[name.strip()] = _PERMISSIONS[permission.strip()]
    return found
