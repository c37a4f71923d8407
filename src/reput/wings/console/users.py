"""Identify users of the console, by token or through a proxy, and check their permissions."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from starlette.requests import HTTPConnection

from reput.errors import ReputError, UsageError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_MOST_NAME = 200
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ForbiddenError(ReputError):
    """Raised if the roles of the user do not allow the request."""


class Permission(StrEnum):
    """A permission of a user. In the file of users, a permission is called a role."""

    SEARCH = "search"
    BODIES = "bodies"
    DOWNLOAD = "download"


EVERY_PERMISSION = frozenset(Permission)


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """The user who sent a request.

    Attributes:
        name: The name for the audit log; empty if the server does not distinguish users.
        permissions: The user's permissions.
    """

    name: str = ""
    permissions: frozenset[Permission] = EVERY_PERMISSION


ANYBODY, NOBODY = ConsoleUser(), ConsoleUser(permissions=frozenset())
CURRENT: ContextVar[ConsoleUser] = ContextVar("user", default=NOBODY)
"""The user of the request that is being answered. Code outside the context of a request has no permissions."""


def may(permission: Permission) -> bool:
    """Return whether the user of this request has a permission."""
    return permission in CURRENT.get().permissions


def demand(*permissions: Permission) -> None:
    """Raise ForbiddenError unless the user of this request has all these permissions."""
    lacking = [permission for permission in permissions if not may(permission)]
    if lacking:
        raise ForbiddenError(f"this request needs the role {' and '.join(lacking)}")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A reverse proxy that authenticates users, for example with OIDC, and passes their names in a header.

    Attributes:
        networks: Addresses of the proxy. Headers from other addresses are ignored.
        user_header: Name of the header with the user's name.
        groups_header: Name of the header with the user's groups, separated by commas; None if groups are not used.
        groups: Permissions by group.
        default: Permissions that every user has, regardless of groups.
    """

    networks: tuple[Network, ...]
    user_header: str
    groups_header: str | None = None
    groups: Mapping[str, frozenset[Permission]] = field(default_factory=dict)
    default: frozenset[Permission] = frozenset()

    def is_peer(self, connection: HTTPConnection) -> bool:
        """Return whether a request comes directly from the proxy."""
        try:
            address = ipaddress.ip_address(connection.client.host if connection.client else "")
        # A peer on a Unix socket has no IP address.
        except ValueError:
            return False
        # A socket for both IP versions shows IPv4 peers as ::ffff:a.b.c.d.
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)

    def user(self, connection: HTTPConnection) -> ConsoleUser | None:
        """Return the user whom the proxy names; None if the request has no name, or does not come from the proxy."""
        if not self.is_peer(connection):
            return None
        names = connection.headers.getlist(self.user_header)
        # The proxy sends one header with the name of the user. If there are several, the client may have added one.
        if len(names) != 1 or not names[0].strip():
            return None
        permissions = set(self.default)
        if self.groups_header is not None:
            lines = connection.headers.getlist(self.groups_header)
            # If there are several headers with groups, the client may have added one to get more permissions.
            if len(lines) > 1:
                return None
            for group in ",".join(lines).split(","):
                permissions |= self.groups.get(group.strip(), frozenset())
        return ConsoleUser(names[0].strip()[:_MOST_NAME], frozenset(permissions))


class Users:
    """All users of a server."""

    def __init__(self, tokens: Mapping[str, ConsoleUser], proxy: Proxy | None = None) -> None:
        """Define the users. `tokens` maps the SHA-256 of each token, in hexadecimal digits, to its user."""
        self._tokens, self.proxy = dict(tokens), proxy

    @classmethod
    def of_token(cls, token: str) -> Users:
        """Create the `Users` of a server that has one token, with all permissions, for everybody."""
        return cls({digest_of(token): ANYBODY})

    @property
    def has_tokens(self) -> bool:
        """Return whether people can sign in with a token."""
        return bool(self._tokens)

    def of(self, connection: HTTPConnection, cookie_name: str) -> ConsoleUser | None:
        """Return the user who sent a request; None if unknown."""
        scheme, _, credentials = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self.with_token(credentials.strip())
        else:
            user = self.with_token(_token_in(connection.cookies.get(cookie_name, "")))
        # Even an unknown bearer token is no reason to refuse: it may be meant for the proxy, not for this server.
        if user is None and self.proxy is not None:
            user = self.proxy.user(connection)
        return user

    def with_token(self, token: str) -> ConsoleUser | None:
        """Return the user with this token.

        Only digests are compared, so the elapsed time reveals nothing about a token.
        """
        return self._tokens.get(digest_of(token))


def digest_of(token: str) -> str:
    """Return the digest of a token. The server keeps digests, not tokens."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def cookie_of(token: str) -> str:
    """Return the value of a browser's cookie: the token itself.

    The file of users contains only digests of tokens. If a cookie were derived from a digest, everybody who may read
    this file could compute it.
    """
    return urlsafe_b64encode(token.encode("utf-8", "surrogateescape")).decode().rstrip("=")


def _token_in(cookie: str) -> str:
    """Return the token in a cookie; an empty text if `cookie_of` cannot have returned this value."""
    try:
        token = urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
    except (Base64Error, ValueError):
        return ""
    return token.decode("utf-8", "surrogateescape")


def parse_users(data: bytes, place: str) -> Users:
    """Parse a file of users.

    Args:
        data: TOML with a table `[[user]]` for each user (`name`, `token_sha256`, `roles`), and perhaps `[proxy]`
            (`addresses`, `user_header`, `groups_header`, `roles`) with `[proxy.groups]` (roles by group).
        place: The name of the file, for errors.

    Raises:
        UsageError: The file is not valid.
    """

    def wrong(problem: str) -> UsageError:
        return UsageError(f"{place}: {problem}", arguments=["http_users"])

    def roles_of(table: Mapping[str, Any], name: str, where: str) -> frozenset[Permission]:
        roles = table.get(name, [])
        if not isinstance(roles, list) or any(entry not in tuple(Permission) for entry in roles):
            raise wrong(
                f"{where}: {name} must be a list; each item must be one of {', '.join(Permission)}"
            )
        return frozenset(map(Permission, roles))

    def checked_table(table: Any, where: str, *names: str) -> Mapping[str, Any]:
        if not isinstance(table, dict):
            raise wrong(f"{where} must be a table")
        for name in table.keys() - set(names):
            raise wrong(f"{where}: unknown setting {name!r}; the settings are {', '.join(names)}")
        return table

    try:
        parsed = checked_table(tomllib.loads(data.decode("utf-8")), "the file", "user", "proxy")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(str(error)) from None
    entries = parsed.get("user", [])
    if not isinstance(entries, list):
        raise wrong("each user must be a table [[user]], with two brackets")
    tokens: dict[str, ConsoleUser] = {}
    for number, entry in enumerate(entries, 1):
        table = checked_table(entry, f"user {number}", "name", "token_sha256", "roles")
        name, digest = table.get("name"), table.get("token_sha256")
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise wrong(f"user {number}: name must be a text")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise wrong(f"user {name}: token_sha256 must be 64 hexadecimal digits in lower case")
        if digest in tokens:
            raise wrong(f"user {name}: another user has the same token")
        tokens[digest] = ConsoleUser(name[:_MOST_NAME], roles_of(table, "roles", f"user {name}"))
    proxy = None
    if "proxy" in parsed:
        names = ("addresses", "user_header", "groups_header", "roles", "groups")
        table = checked_table(parsed["proxy"], "proxy", *names)
        headers = [table.get("user_header", "X-Forwarded-User"), table.get("groups_header")]
        for header in headers:
            if header is not None and not (isinstance(header, str) and _HEADER.fullmatch(header)):
                raise wrong(
                    "proxy: user_header and groups_header may contain only letters, digits and hyphens"
                )
        groups = table.get("groups", {})
        if not isinstance(groups, dict):
            raise wrong("proxy: groups must be a table of the roles of each group")
        permissions = {name: roles_of(groups, name, "proxy.groups") for name in groups}
        networks = _networks(table.get("addresses"), wrong)
        proxy = Proxy(
            networks, headers[0], headers[1], permissions, roles_of(table, "roles", "proxy")
        )
    if not tokens and proxy is None:
        raise wrong("names neither a user nor a proxy")
    return Users(tokens, proxy)


def _networks(values: Any, wrong: Any) -> tuple[Network, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise wrong(
            "proxy: addresses must list the IP addresses or networks of the proxy, such as 10.1.0.0/16"
        )
    try:
        return tuple(ipaddress.ip_network(str(value)) for value in values)
    except ValueError as error:
        raise wrong(f"proxy: addresses: {error}") from None
