"""Open the web console beside other servers: the face of this wing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from reput.engine.writer import MissingStore, SharedStore
from reput.errors import StoreNotFoundError, UsageError
from reput.format.host import Host
from reput.io import FileReader
from reput.wings.console.app import create_app
from reput.wings.console.server import HttpServer, host_names
from reput.wings.console.users import Users, parse_users
from reput.wings.serve import Traffic

_MOST_TOKEN_BYTES, _MOST_USERS_BYTES = 4096, 1 << 20


def console(
    stores: Callable[[], Mapping[str, SharedStore]],
    missing: Callable[[], Sequence[MissingStore]],
    address: Host,
    token_file: str | None,
    hosts: Sequence[str] = (),
    tls: tuple[str, str | None] | None = None,
    audit: Callable[[dict[str, object]], None] | None = None,
    traffic: Traffic | None = None,
    users_file: str | None = None,
) -> HttpServer:
    """Return a server of the console, which the caller must start.

    Args:
        stores: The existing stores, by name.
        missing: The configured stores that do not exist yet.
        address: The address to listen at.
        token_file: A file with the token that clients must send; None to require no token.
        hosts: Further names of this server that browsers may use.
        tls: Files of the certificate chain and its key; None for plain HTTP.
        audit: Called with the audit record of each request.
        traffic: Counts of requests of RocketMQ's clients, which the console shows.
        users_file: A file of users, in place of a token.

    Raises:
        UsageError, StoreAccessError.
    """
    users = None
    if users_file is not None:
        data = _content_of(users_file, _MOST_USERS_BYTES, "http_users")
        users = parse_users(data, f"http_users {users_file}")
    elif token_file is not None:
        users = Users.of_token(_token(token_file))
    app = create_app(
        _Current(stores), missing=missing, audit=audit, traffic=traffic, users=users,
        hosts=host_names(address, hosts) if users is None else None,
    )  # fmt: skip
    return HttpServer(app, address, tls=tls)


def _token(path: str) -> str:
    data = _content_of(path, _MOST_TOKEN_BYTES, "http_token_file")
    token = data.decode("utf-8", "replace").strip()
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise UsageError(
            f"http_token_file {path}: write one word of printable ASCII characters into it",
            arguments=["http_token_file"],
        )
    return token


def _content_of(path: str, most_bytes: int, argument: str) -> bytes:
    try:
        return FileReader.content_of(path, most_bytes)
    except StoreNotFoundError:
        raise UsageError(f"{argument} {path}: no such file", arguments=[argument]) from None


class _Current(Mapping[str, SharedStore]):
    """A mapping of the current stores. Each look-up asks the service again, because stores appear and disappear."""

    def __init__(self, stores: Callable[[], Mapping[str, SharedStore]]) -> None:
        self._stores = stores

    def __getitem__(self, name: str) -> SharedStore:
        return self._stores()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores())

    def __len__(self) -> int:
        return len(self._stores())
