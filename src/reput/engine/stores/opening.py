"""Open a store, to read it or to own it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from reput.base import StoreConfig, checked, refuse_unknown
from reput.core import MessageStore, ReaderOptions
from reput.errors import UsageError
from reput.io import Location

# Imported later, because writing needs the compiled kernels. They load slowly, and readers need not wait for them.
if TYPE_CHECKING:
    from reput.engine.writer import WritableStore, WriterOptions


@overload
def open_store(
    path: str | PathLike[str], mode: Literal["r"] = "r", **settings: Unpack[ReaderOptions]
) -> MessageStore: ...


@overload
def open_store(
    path: str | PathLike[str],
    mode: Literal["rw"],
    *,
    config: StoreConfig | None = None,
    broker_config: str | PathLike[str] | None = None,
    **settings: Unpack[WriterOptions],
) -> WritableStore: ...


@checked
def open_store(
    path: str | PathLike[str],
    mode: str = "r",
    *,
    config: StoreConfig | None = None,
    broker_config: str | PathLike[str] | None = None,
    **settings: Any,
) -> MessageStore | WritableStore:
    """Open the store of a stopped or running broker, a copy of a store, or (mode 'rw') a new store.

    Args:
        path: the directory that contains commitlog/; for reading, also a URL of any file system that
            pyarrow.fs or fsspec opens (s3://bucket/store)
        mode: 'r' writes nothing into the store; 'rw' makes this process the owner, as a broker would be, and creates
            the store if it does not exist (see WritableStore)
        config: the broker's settings; alternatively, pass `broker_config`
        broker_config: the path of a file with the broker's settings (broker.conf)

    Further settings of mode 'r': `hash_slots` and `index_items` describe the IndexFiles, and by default are derived
    from the files. `index` is a directory whose index/ (and consumequeue/, if it has one) is read instead of the
    store's own. `storage_options` are options of the URL's file system (`s3.endpoint_override`, `fsspec.NAME`, ...).
    With mode 'rw': the fields of reput.engine.writer.writer_settings.WriterSettings, which override `broker_config`.

    Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError; with mode 'rw' also StoreLockedError.
    """
    if mode == "r":
        refuse_unknown("open_store", settings, ReaderOptions.__annotations__)
        return MessageStore(path, config=config, broker_config=broker_config, **settings)
    if mode != "rw":
        raise UsageError(f"mode must be 'r' (read) or 'rw' (own the store), not {mode!r}")
    Location.refuse_url(path)
    from reput.engine.writer import WritableStore

    return WritableStore.open(path, config, broker_config, **settings)
