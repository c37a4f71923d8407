"""What a store's own rates suggest: sizes of IndexFiles, and when the disk is full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reput.errors import StoreAccessError
from reput.examine.measuring.figures import DAY_MS, IndexFileFigures, Sizing
from reput.examine.measuring.log_figures import LogFigures
from reput.files.disk import Disk
from reput.files.storage import LOCAL
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.index_file import file_bytes
from reput.query.message_store import MessageStore

_LEAST_SPAN_MS = 60_000
_ITEMS_PER_SLOT = 4  # as in the broker's default sizes
_LEAST_ITEMS, _MOST_ITEMS = 1_000, 100_000_000


def sizing_of(
    store: MessageStore,
    log: LogFigures,
    index_files: Sequence[IndexFileFigures],
    span_ms: int,
) -> Sizing:
    """Advice from the rates over the whole log, which spans `span_ms`."""
    used = sum(file_bytes(one.hash_slots, one.entries + 1) for one in index_files)
    of_queues = ENTRY_BYTES * log.messages
    ratio = (log.size_bytes + of_queues + used) / log.size_bytes if log.size_bytes else 1.0
    used_bytes, free = _disk_usage(store)
    if span_ms < _LEAST_SPAN_MS:
        return Sizing(None, None, ratio, None, None, None, used_bytes, free, None)
    keys, size = (count * DAY_MS / span_ms for count in (log.index_entries, log.size_bytes))
    items = _rounded_up(min(max(int(keys) + 1, _LEAST_ITEMS), _MOST_ITEMS))
    full = index_files[-1].index_items - 1 if index_files else store.config.index_items - 1
    return Sizing(
        keys_per_day=keys,
        log_bytes_per_day=size,
        store_bytes_per_log_byte=ratio,
        index_items=items,
        hash_slots=items // _ITEMS_PER_SLOT,
        hours_per_index_file=24 * full / keys if keys else None,
        used_bytes=used_bytes,
        free_bytes=free,
        days_until_full=free / (size * ratio) if free is not None and size else None,
    )


def _rounded_up(count: int) -> int:
    """To two significant digits."""
    step = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // step) * step


def _disk_usage(store: MessageStore) -> tuple[int, int] | tuple[None, None]:
    """Bytes of the store's disk that are used and free."""
    if store.storage is not LOCAL and not store.storage.is_local:
        return None, None
    try:
        return Disk().usage(Path(store.path))
    except StoreAccessError:
        return None, None
