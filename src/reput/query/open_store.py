"""Opening a store, to read it or to own it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

from reput.config import StoreConfig
from reput.errors import UsageError
from reput.query.message_store import MessageStore

if TYPE_CHECKING:  # whoever only reads does not wait for the kernels
    from reput.query.living_store import LivingStore


@overload
def open_store(
    path: str | PathLike[str],
    mode: Literal["r"] = "r",
    *,
    config: StoreConfig | None = None,
    broker_config: str | PathLike[str] | None = None,
    hash_slots: int | None = None,
    index_items: int | None = None,
    index: str | PathLike[str] | None = None,
) -> MessageStore: ...


@overload
def open_store(
    path: str | PathLike[str],
    mode: Literal["rw"],
    *,
    config: StoreConfig | None = None,
    broker_config: str | PathLike[str] | None = None,
    **settings: Any,
) -> LivingStore: ...


def open_store(
    path: str | PathLike[str],
    mode: str = "r",
    *,
    config: StoreConfig | None = None,
    broker_config: str | PathLike[str] | None = None,
    **settings: Any,
) -> MessageStore | LivingStore:
    """Open a store: that of a stopped or running broker, or a copy of one; or make one.

    path           the directory that holds commitlog/
    mode           'r': nothing is written into it; 'rw': this process owns it as a broker would, and makes it where
                   there is none (see LivingStore)
    config         the broker's settings, or
    broker_config  the file that has them (broker.conf)

    With mode 'r': hash_slots, index_items of the IndexFiles go before the settings, and are worked out from the files
    where nothing tells them; index is another directory that holds index/, a rebuilt one for instance. With mode 'rw':
    flush ('async' or 'sync') and the other fields of reput.store.store_writer.WriterSettings.

    Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError; with mode 'rw' StoreLockedError, too.
    """
    if mode == "r":
        return MessageStore(path, config=config, broker_config=broker_config, **settings)
    if mode != "rw":
        raise UsageError(f"mode {mode!r}: 'r' to read, 'rw' to own the store")
    from reput.query.living_store import LivingStore

    return LivingStore.open(path, config, broker_config, **settings)
