"""The console beside a running service: its address, its token, its stores as they come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from reput.errors import MissingExtraError, UsageError
from reput.files.reader import read_file
from reput.format.host import Host
from reput.query.shared_store import SharedStore

if TYPE_CHECKING:
    from reput.console.server import HttpServer

_MOST_TOKEN_BYTES = 4096


def console(
    stores: Callable[[], Mapping[str, SharedStore]], address: Host, token_file: str | None
) -> HttpServer:
    """A server of the console, not started. Raises UsageError, MissingExtraError, StoreAccessError."""
    try:
        from reput.console.server import HttpServer
    except ImportError:
        raise MissingExtraError("http needs starlette: pip install 'reput[serve]'") from None
    token = None if token_file is None else _token(token_file)
    return HttpServer(_Current(stores), address, token)


def _token(path: str) -> str:
    token = read_file(path, _MOST_TOKEN_BYTES).decode("utf-8", "replace").strip()
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise UsageError(
            f"http_token_file {path}: write one word of printable ASCII characters into it",
            arguments=["http_token_file"],
        )
    return token


class _Current(Mapping[str, SharedStore]):
    """The stores that are there whenever somebody asks."""

    def __init__(self, stores: Callable[[], Mapping[str, SharedStore]]) -> None:
        self._stores = stores

    def __getitem__(self, name: str) -> SharedStore:
        return self._stores()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores())

    def __len__(self) -> int:
        return len(self._stores())
