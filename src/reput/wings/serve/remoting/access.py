"""Check permissions against the accounts of a `plain_acl.yml`, which is read as a broker reads it.

Mirrors `PlainAccessValidator`, `PlainPermissionManager`, `RemoteAddressStrategyFactory` and `AclUtils` (tag
rocketmq-all-4.9.3). A request contains the account's access key, and a signature of its fields and body with the
account's secret. As in RocketMQ, requests to a name server need no permission.

A resource is a topic or a group. `requests` has the resources for which each request needs a permission.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from reput.base import require
from reput.errors import StoreAccessError, UsageError
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.requests import needed_rights
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
        yaml = require("yaml", "acl needs PyYAML: pip install 'reput[serve]'")
        try:
            content = yaml.safe_load(Path(path).read_bytes()) or {}
            accounts = [_account(item) for item in content.get("accounts") or ()]
            white_list = [str(item) for item in content.get("globalWhiteRemoteAddresses") or ()]
        except OSError as error:
            raise StoreAccessError(f"{fspath(path)}: cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise UsageError(f"{fspath(path)}: not a list of accounts: {reason}") from None
        return cls({item.access_key: item for item in accounts}, white_list)

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
        sent_signature = request.optional_text("Signature") or ""
        # Compare in constant time: the duration must not reveal how much of a guessed signature is right.
        if not hmac.compare_digest(signature(request, account.secret), sent_signature.encode()):
            raise AccessError(f"Check signature failed for accessKey={key}")
        rights = Rights(account)
        for resource, permission in needed_rights(request):
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
        return any(matches(alternative, address) for alternative in pattern.split(","))
    if pattern in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
        return True
    ranges, parts = pattern.split("."), address.split(".")
    if len(ranges) != len(parts) or len(parts) != 4:
        return pattern.lower() == address.lower()
    return all(
        _matches_part(part_range, part) for part_range, part in zip(ranges, parts, strict=True)
    )


def _matches_part(pattern: str, part: str) -> bool:
    first, dash, last = pattern.partition("-")
    if dash:
        numbers = (first, last, part)
        return all(number.isdigit() for number in numbers) and int(first) <= int(part) <= int(last)
    return pattern == "*" or part in pattern.strip("{}").split(",")


def _account(fields: Mapping[str, Any]) -> Account:
    key, secret = str(fields["accessKey"]), str(fields["secretKey"])
    if len(key) <= 6 or len(secret) <= 6:
        raise ValueError(
            f"the accessKey and the secretKey of {key} must be longer than 6 characters"
        )
    return Account(
        key, secret.encode(), str(fields.get("whiteRemoteAddress") or ""),
        bool(fields.get("admin", False)), _permission(fields.get("defaultTopicPerm")),
        _permission(fields.get("defaultGroupPerm")), _permissions(fields.get("topicPerms")),
        _permissions(fields.get("groupPerms")),
    )  # fmt: skip


def _permission(text: Any) -> int:
    """Return the permission that a text names. Like a broker, return DENY for an unknown text."""
    return _PERMISSIONS.get(str(text).strip(), 0)


def _permissions(texts: Any) -> dict[str, int]:
    permissions = {}
    for text in texts or ():
        name, equals, permission = str(text).partition("=")
        if not equals or permission.strip() not in _PERMISSIONS:
            raise ValueError(f"{text!r}: must be NAME=PERMISSION, with PUB, SUB, PUB|SUB or DENY")
        permissions[name.strip()] = _PERMISSIONS[permission.strip()]
    return permissions
