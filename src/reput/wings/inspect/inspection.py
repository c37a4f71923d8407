"""Identify a store, or any single file of a store, and describe its content."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import TypeAlias

from reput import core
from reput.base import Finding, StoreConfig
from reput.engine import check
from reput.errors import FormatError, StoreNotFoundError, UsageError
from reput.format import checkpoint, commit_log, consume_queue, file_names
from reput.io import Location, Storage, listed_size, size_of, storage_of
from reput.wings.inspect import queue_inspection
from reput.wings.inspect.commit_log_inspection import CommitLogInspection, inspect_commit_log_file
from reput.wings.inspect.queue_listing import QueueListing, listing_of_file, listing_of_queue
from reput.wings.inspect.store_inspection import StoreInspection, inspect_store


@dataclass(slots=True)
class MarkerInspection:
    """A file `abort` or `lock`, or a file of config/. `meaning` explains it."""

    path: str
    size_bytes: int
    kind: str
    meaning: str
    findings: list[Finding] = field(default_factory=list)


Inspection: TypeAlias = (
    StoreInspection
    | queue_inspection.BatchQueueInspection
    | CommitLogInspection
    | queue_inspection.ConsumeQueueInspection
    | queue_inspection.QueueInspection
    | check.IndexInspection
    | check.CheckpointInspection
    | MarkerInspection
)
_INDEX_NAME_DIGITS = 17
# Bytes of all fields of a checkpoint file, including the fields that only 5.x writes. The rest of the file is zero.
_CHECKPOINT_FIELDS = 40


def inspect(
    path: str | PathLike[str],
    config: StoreConfig | None = None,
    hash_slots: int | None = None,
    index_items: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Inspection:
    """Identify `path` by its folder and name, or else by its content, and read it completely.

    Args:
        path: A path, a URL, or a pattern that matches exactly one path.
        config: Settings of the broker, for the walk over a log file.
        hash_slots: Number of slots of an IndexFile; None to derive it from the file.
        index_items: Number of items of an IndexFile; None to derive it from the file.
        storage_options: Options of the URL's file system (`s3.endpoint_override`, ...).

    Returns:
        The description. Damage is listed in its `findings`, and raises no error.

    Raises StoreNotFoundError, StoreAccessError, FormatError for a file that does not belong to a store,
    UsageError for an IndexFile whose numbers of slots and items are unknown.
    """
    storage, pattern = storage_of(path, storage_options)
    path = Location.only_match(storage, pattern)
    entry = storage.entry(path)
    if entry is None:
        raise StoreNotFoundError(f"{path}: no such file or directory")
    if entry.is_dir():
        return inspect_store(path, storage)
    if not entry.is_file():
        raise FormatError(path, 0, "not a regular file")
    size = entry.stat().st_size
    name = os.path.basename(path)
    if name == file_names.CHECKPOINT_FILE:
        return check.inspect_checkpoint(path, storage)
    if name in _MARKERS:
        return MarkerInspection(path, size, name, _MARKERS[name])
    kind = _kind_by_place(path)
    if kind is None and (description := _not_described(path)):
        raise UsageError(f"{path}: {description}, which inspect does not describe")
    kind = kind or _kind_by_contents(path, size, storage)
    if kind == file_names.COMMIT_LOG_FOLDER:
        return inspect_commit_log_file(path, config or StoreConfig(), storage)
    if kind == file_names.CONSUME_QUEUE_FOLDER:
        return queue_inspection.inspect_consume_queue_file(path, storage)
    if kind == file_names.BATCH_QUEUE_FOLDER:
        return queue_inspection.inspect_batch_queue_file(path, storage)
    if kind == file_names.INDEX_FOLDER:
        geometry = _index_geometry(path, size, hash_slots, index_items, storage)
        return check.inspect_index_file(path, *geometry, storage)
    if kind == file_names.CHECKPOINT_FILE:
        return check.inspect_checkpoint(path, storage)
    if path.endswith(".json"):
        return MarkerInspection(path, size, "file of config/", _CONFIG_MEANING)
    raise FormatError(path, 0, "not a file of a RocketMQ store, by its name and content")


def index_file_at(
    path: str | PathLike[str],
    hash_slots: int | None = None,
    index_items: int | None = None,
) -> tuple[str, core.IndexGeometry, Storage]:
    """Return path, geometry and storage of an IndexFile, for `reput.wings.inspect.index_listing`.

    The arguments are the same as for `inspect`.

    Raises:
        StoreNotFoundError, StoreAccessError: the file is missing, or cannot be read.
        FormatError: the file's length does not fit the given slots and items.
        UsageError: the file is not an IndexFile, or its numbers of slots and items are unknown.
    """
    storage, path = storage_of(path)
    if _kind_of(path, storage) != file_names.INDEX_FOLDER:
        raise UsageError(f"{path}: not an IndexFile, so it has no slots, items and chains")
    size = size_of(path, storage)
    return path, _index_geometry(path, size, hash_slots, index_items, storage), storage


def _kind_of(path: str, storage: Storage) -> str | None:
    """Return the kind of a file with data, by its place or its content; None if unknown.

    Raises StoreNotFoundError, StoreAccessError.
    """
    entry = storage.entry(path)
    if entry is None:
        raise StoreNotFoundError(f"{path}: no such file or directory")
    size = entry.stat().st_size if entry.is_file() else 0
    if not size or os.path.basename(path) in (file_names.CHECKPOINT_FILE, *_MARKERS):
        return None
    return _kind_by_place(path) or _kind_by_contents(path, size, storage)


@contextmanager
def queue_at(
    path: str | PathLike[str],
    queue: str | None = None,
    config: StoreConfig | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Iterator[tuple[QueueListing, queue_inspection.QueueInspection | None]]:
    """Open the listing of a queue for a `with` block.

    Args:
        path: A file of a ConsumeQueue or batch queue; with `queue`, a store.
        queue: Topic and queue id, as TOPIC/QUEUE.
        config: The broker's settings.
        storage_options: Options of the URL's file system.

    Yields:
        The listing; and for a queue of a store, its ends.

    Raises:
        StoreNotFoundError, StoreAccessError, FormatError: the file or store cannot be read.
        MessageNotFoundError: the store has no such queue.
        UsageError: the file does not belong to a queue, or `queue` is malformed.
    """
    if queue is None:
        storage, path = storage_of(path, storage_options)
        kind = _QUEUE_KINDS.get(_kind_of(path, storage) or "")
        if kind is None:
            raise UsageError(f"{path}: not a file of a queue, so it has no entries")
        listing = listing_of_file(path, kind, storage)
        try:
            yield listing, None
        finally:
            listing.close()
        return
    topic, _, name = queue.rpartition("/")
    queue_id = file_names.parse_queue_id(name)
    if not topic or queue_id is None:
        raise UsageError(f"{queue}: write a queue as TOPIC/QUEUE, for example orders/1")
    with core.StoreReader(path, config=config, storage_options=storage_options) as store:
        reader = store.queues.queue(topic, queue_id)
        extension = os.path.join(store.path, file_names.EXTENSION_FOLDER, topic, str(queue_id))
        listing = listing_of_queue(reader, topic, store.commit_log, extension, store.storage)
        first = reader.min_queue_offset(store.commit_log.min_offset)
        is_in_rocksdb = reader.kind.numbering is core.Numbering.KEY
        inspection = queue_inspection.QueueInspection(
            reader.folder, "queue in RocksDB" if is_in_rocksdb else reader.kind.name, topic,
            queue_id, len(listing.files), first, reader.max_queue_offset(),
        )  # fmt: skip
        if reader.kind.numbering is not core.Numbering.BASE:
            inspection.min_logical_offset = inspection.first * core.CONSUME_QUEUE.entry_bytes
            inspection.max_logical_offset = inspection.stop * core.CONSUME_QUEUE.entry_bytes
        yield listing, inspection


_QUEUE_KINDS = {kind.folder: kind for kind in (core.CONSUME_QUEUE, core.BATCH_QUEUE)}
_MARKERS = {
    file_names.ABORT_FILE: "a broker runs on this store, or its last one crashed; the next start recovers",
    file_names.LOCK_FILE: "locked by a broker while it runs; its content does not matter",
}
_CONFIG_MEANING = "settings or progress of the broker itself, as JSON; no message depends on it"


def _kind_by_place(path: str) -> str | None:
    whole = path if Location.is_url(path) else os.path.abspath(path)
    folders = whole.split("/")[:-1]
    name = os.path.basename(path)
    if file_names.parse_offset_file_name(name) is not None:
        if folders[-1:] == [file_names.COMMIT_LOG_FOLDER] or core.CommitLogFile.gap_of(whole):
            return file_names.COMMIT_LOG_FOLDER
        queues = folders[-3:-2]
        return (
            queues[0]
            if queues in ([file_names.CONSUME_QUEUE_FOLDER], [file_names.BATCH_QUEUE_FOLDER])
            else None
        )
    return (
        file_names.INDEX_FOLDER
        if folders[-1:] == [file_names.INDEX_FOLDER] and file_names.is_index_file_name(name)
        else None
    )


def _not_described(path: str) -> str | None:
    """Describe a file that `inspect` does not support, judged by its folder and name. Return None for other files."""
    name = os.path.basename(path)
    folders = (path if Location.is_url(path) else os.path.abspath(path)).split("/")[:-1]
    if name == file_names.TIMER_WHEEL_FILE or folders[-1:] == [file_names.TIMER_LOG_FOLDER]:
        return "a file of the timer (see reput timer)"
    if folders[-3:-2] == [file_names.EXTENSION_FOLDER]:
        return "a ConsumeQueue extension file"
    if folders[-3:-2] == [file_names.COMPACTION_QUEUE_FOLDER]:
        return "a queue of a compaction log (see reput compacted)"
    if name.endswith(".sst") or name.startswith(
        ("MANIFEST-", "OPTIONS-", file_names.DATABASE_SIGN)
    ):
        return "a file of a RocksDB database"
    if any(folder.startswith(file_names.LEDGER_PREFIX) for folder in folders[-2:]):
        return "a file of a DLedger log"
    return None


def _kind_by_contents(path: str, size: int, storage: Storage) -> str | None:
    """Return the kind of a file that was moved out of its store, judged by its content; None if unknown."""
    with storage.open(path) as reader:
        head = reader.read(0, min(size, checkpoint.CHECKPOINT_BYTES))
    if len(head) >= commit_log.BLANK_BYTES:
        magic = commit_log.read_size_and_magic(head, 0)[1]
        if magic in (commit_log.MESSAGE_MAGIC, commit_log.MESSAGE_MAGIC_V2, commit_log.BLANK_MAGIC):
            return file_names.COMMIT_LOG_FOLDER
    name = os.path.basename(path)
    if len(name) == _INDEX_NAME_DIGITS and file_names.is_index_file_name(name):
        return file_names.INDEX_FOLDER
    if size == checkpoint.CHECKPOINT_BYTES and not any(head[_CHECKPOINT_FIELDS:]):
        return file_names.CHECKPOINT_FILE
    # Test the stricter format first: an entry of a batch queue could also pass as one of a ConsumeQueue.
    if size and size % consume_queue.BATCH_ENTRY_BYTES == 0 and _is_batch_entry(head):
        return file_names.BATCH_QUEUE_FOLDER
    if (
        size
        and size % consume_queue.ENTRY_BYTES == 0
        and consume_queue.decode_entry(head).is_written
    ):
        return file_names.CONSUME_QUEUE_FOLDER
    return None


def _is_batch_entry(head: bytes) -> bool:
    entry = consume_queue.decode_batch_entry(head)
    is_batch = entry.batch_size > 0 and entry.compacted_offset == consume_queue.NOT_COMPACTED
    return entry.is_written and is_batch and entry.base_offset >= 0


def _index_geometry(
    path: str, size: int, hash_slots: int | None, index_items: int | None, storage: Storage
) -> core.IndexGeometry:
    """Return the given numbers of slots and items, or derive them from the file, or else from other files beside it."""
    if (hash_slots is not None and hash_slots < 1) or (index_items is not None and index_items < 2):
        raise UsageError(
            "hash_slots must be at least 1, and index_items at least 2",
            arguments=["hash_slots", "index_items"],
        )
    if hash_slots is not None and index_items is not None:
        geometry = core.IndexGeometry(hash_slots, index_items)
        if geometry.file_bytes == size:
            return geometry
        sizes = f"{hash_slots} slots and {index_items} items take {geometry.file_bytes}"
        raise FormatError(path, min(size, geometry.file_bytes), f"{size} bytes, but {sizes}")
    folder = os.path.dirname(path if Location.is_url(path) else os.path.abspath(path))
    beside = sorted(
        (entry.path, its_size)
        for entry in storage.list(folder)
        if file_names.is_index_file_name(entry.name)
        and (its_size := listed_size(entry)) is not None
    )
    geometries = core.GeometryFinder(hash_slots, index_items, storage).find([*beside, (path, size)])
    if size in geometries:
        return geometries[size]
    # The file's entries do not show for how many slots and items the file was created. But a file of this size almost
    # certainly comes from a broker with default settings.
    if (
        size == core.IndexGeometry.default().file_bytes
        and hash_slots is None
        and index_items is None
    ):
        return core.IndexGeometry.default()
    if geometries:
        usual = ", ".join(str(size_bytes) for size_bytes in geometries)
        raise FormatError(path, size, f"{size} bytes, but the files beside it have {usual}")
    raise UsageError(
        f"{path}: has too few entries to determine its numbers of slots and items; "
        "pass hash_slots and index_items, or broker_config",
        arguments=["hash_slots", "index_items", "broker_config"],
    )
