"""Who may do what: accounts of a `plain_acl.yml`, as a broker reads it.

Mirrors `PlainAccessValidator`, `PlainPermissionManager`, `RemoteAddressStrategyFactory` and `AclUtils` (tag
rocketmq-all-4.9.3). A request carries the account's access key, and a signature of its fields and body with the secret.
As at a broker, what a name server answers is for everybody. Beyond a broker, batches need the right to send, every
request that names a topic the right to read it, and a message by its offset the right to read any topic.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from reput.errors import MissingExtraError, RemotingError, StoreAccessError, UsageError
from reput.format.properties import RETRY_TOPIC_PREFIX
from reput.remoting.bodies import decode_body
from reput.remoting.codes import RequestCode
from reput.remoting.commands import Command

PUB, SUB = 4, 8
_PERMISSIONS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": 0}
_UNSIGNED = {"Signature", "_UNIQUE_KEY_QUERY"}
_ANY_TOPIC = ""


class AccessError(RemotingError):
    """A request that its sender may not make."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account; permissions by topic and by group, 0 for none."""

    access_key: str
    secret: bytes
    addresses: str = ""
    is_admin: bool = False
    default_topic: int = 0
    default_group: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)

    def may(self, resource: str, permission: int) -> bool:
        """Whether it may read or send; a group is named by its retry topic."""
        if resource.startswith(RETRY_TOPIC_PREFIX):
            group = resource.removeprefix(RETRY_TOPIC_PREFIX)
            owned = self.groups.get(group, self.default_group)
        else:
            owned = self.topics.get(resource, self.default_topic)
        is_free = self.is_admin and not (self.topics or self.groups)
        return is_free or bool(owned & permission)


class AccessList:
    """The accounts, and the addresses that need none."""

    def __init__(self, accounts: Mapping[str, Account], white_list: list[str]) -> None:
        self._accounts, self._white_list = accounts, white_list

    @classmethod
    def read(cls, path: str | PathLike[str]) -> AccessList:
        """From a plain_acl.yml. Raises UsageError, StoreAccessError, MissingExtraError."""
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

    def check(self, request: Command, address: str) -> None:
        """Raises AccessError for a request that may not be made from there."""
        if any(matches(pattern, address) for pattern in self._white_list):
            return
        key = request.optional_text("AccessKey")
        if key is None:
            raise AccessError("No accessKey is configured")
        account = self._accounts.get(key)
        if account is None:
            raise AccessError(f"No acl config for {key}")
        if account.addresses and matches(account.addresses, address):
            return
        given = request.optional_text("Signature") or ""
        if not hmac.compare_digest(signature(request, account.secret), given.encode()):
            raise AccessError(f"Check signature failed for accessKey={key}")
        for resource, permission in _needed(request):
            if resource == _ANY_TOPIC:
                is_allowed = account.is_admin or bool(account.default_topic & permission)
            else:
                is_allowed = account.may(resource, permission)
            if not is_allowed:
                raise AccessError(f"No default permission for {resource or 'any topic'}")


def signature(request: Command, secret: bytes) -> bytes:
    """What a request's `Signature` must be: the HMAC-SHA1 of its fields, in order of their names, and its body."""
    names = sorted(request.fields.keys() - _UNSIGNED)
    content = "".join(request.optional_text(name) or "" for name in names).encode() + request.body
    return b64encode(hmac.new(secret, content, hashlib.sha1).digest())


def matches(pattern: str, address: str) -> bool:
    """Whether an address is one of a pattern: `*`, `10.0.*.*`, `10.0.0.1-99`, `10.0.0.{1,7}`, or several."""
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


def _needed(request: Command) -> Iterator[tuple[str, int]]:
    """What a request needs: topics, and groups as retry topics, each with a permission."""
    text, code = request.optional_text, request.code
    if code == RequestCode.HEART_BEAT:
        for data in decode_body(request).get("consumerDataSet") or ():
            yield f"{RETRY_TOPIC_PREFIX}{data.get('groupName')}", SUB
            for each in data.get("subscriptionDataSet") or ():
                yield str(each.get("topic")), SUB
    elif code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        yield text("b") or text("topic") or "", PUB
    elif code == RequestCode.SEND_MESSAGE:
        yield text("topic") or "", PUB
    elif code == RequestCode.CONSUMER_SEND_MSG_BACK:
        yield text("originTopic") or "", PUB
        yield f"{RETRY_TOPIC_PREFIX}{text('group')}", SUB
    elif code == RequestCode.VIEW_MESSAGE_BY_ID:
        yield _ANY_TOPIC, SUB
    elif (topic := text("topic")) is not None:
        yield topic, SUB
    group = text("consumerGroup")
    if group is not None and code != RequestCode.CONSUMER_SEND_MSG_BACK:
        yield f"{RETRY_TOPIC_PREFIX}{group}", SUB


def _account(found: Mapping[str, Any]) -> Account:
    key, secret = str(found["accessKey"]), str(found["secretKey"])
    if len(key) <= 6 or len(secret) <= 6:
        raise ValueError(f"the accessKey and the secretKey of {key} must be longer than 6")
    return Account(
        key, secret.encode(), str(found.get("whiteRemoteAddress") or ""),
        bool(found.get("admin", False)), _permission(found.get("defaultTopicPerm")),
        _permission(found.get("defaultGroupPerm")), _permissions(found.get("topicPerms")),
        _permissions(found.get("groupPerms")),
    )  # fmt: skip


def _permission(text: Any) -> int:
    """DENY where it is nothing that is known, as at a broker."""
    return _PERMISSIONS.get(str(text).strip(), 0)


def _permissions(texts: Any) -> dict[str, int]:
    found = {}
    for text in texts or ():
        name, equals, permission = str(text).partition("=")
        if not equals or permission.strip() not in _PERMISSIONS:
            raise ValueError(f"{text!r}: write TOPIC=PUB|SUB")
        found[name.strip()] = _PERMISSIONS[permission.strip()]
    return found
