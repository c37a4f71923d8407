"""What is this file, and what does it hold? For a store, and for any single file of one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from os import PathLike, fspath

from reput.config import StoreConfig
from reput.errors import FormatError, StoreAccessError, StoreNotFoundError, UsageError
from reput.files.reader import FileReader
from reput.format import checkpoint
from reput.format.commit_log import (
    BLANK_MAGIC,
    MAGIC_POSITION,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    read_size_and_magic,
)
from reput.format.consume_queue import ENTRY_BYTES, decode_entry
from reput.format.file_names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    LOCK_FILE,
    is_index_file_name,
    parse_offset_file_name,
)
from reput.store.index_geometry import DEFAULT_GEOMETRY, GeometryFinder, IndexGeometry
from reput.verify.commit_log_inspection import CommitLogInspection, inspect_commit_log_file
from reput.verify.consume_queue_inspection import ConsumeQueueInspection, inspect_consume_queue_file
from reput.verify.index_inspection import IndexInspection, inspect_index_file
from reput.verify.marker_inspection import (
    CheckpointInspection,
    MarkerInspection,
    inspect_abort,
    inspect_checkpoint,
    inspect_config,
    inspect_lock,
)
from reput.verify.store_inspection import StoreInspection, inspect_store

Inspection = (
    StoreInspection
    | CommitLogInspection
    | ConsumeQueueInspection
    | IndexInspection
    | CheckpointInspection
    | MarkerInspection
)
_INDEX_NAME_DIGITS = 17


def inspect(
    path: str | PathLike[str],
    config: StoreConfig | None = None,
    hash_slots: int | None = None,
    index_items: int | None = None,
) -> Inspection:
    """Find out what `path` is, by its place and name or else by its contents, and read it whole.

    Slots and items of an IndexFile are worked out from it where they are not given. What is damaged
    inside is in the result's `problems`.

    Raises StoreNotFoundError, StoreAccessError, FormatError for a file that is none of a store's,
    UsageError for an IndexFile whose slots and items cannot be told.
    """
    path = fspath(path)
    mode, size = _mode_and_size(path)
    if stat.S_ISDIR(mode):
        return inspect_store(path)
    if not stat.S_ISREG(mode):
        raise FormatError(path, 0, "not a regular file")
    if special := _SPECIAL_NAMES.get(os.path.basename(path)):
        return special(path)
    kind = _kind_by_place(path) or _kind_by_contents(path, size)
    if kind == COMMIT_LOG_FOLDER:
        return inspect_commit_log_file(path, config or StoreConfig())
    if kind == CONSUME_QUEUE_FOLDER:
        return inspect_consume_queue_file(path)
    if kind == INDEX_FOLDER:
        return inspect_index_file(path, *_index_geometry(path, size, hash_slots, index_items))
    if kind == CHECKPOINT_FILE:
        return inspect_checkpoint(path)
    if path.endswith(".json"):
        return inspect_config(path)
    raise FormatError(
        path, 0, "no file of a RocketMQ store, neither by its name nor by what it holds"
    )


def _mode_and_size(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreNotFoundError(f"{path}: there is no such file or directory") from None
    except OSError as error:
        raise StoreAccessError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_mode, status.st_size


_SPECIAL_NAMES: dict[str, Callable[[str], CheckpointInspection | MarkerInspection]] = {
    CHECKPOINT_FILE: inspect_checkpoint,
    ABORT_FILE: inspect_abort,
    LOCK_FILE: inspect_lock,
}


def _kind_by_place(path: str) -> str | None:
    folders = os.path.abspath(path).split(os.sep)[:-1]
    name = os.path.basename(path)
    if parse_offset_file_name(name) is not None:
        if folders[-1:] == [COMMIT_LOG_FOLDER]:
            return COMMIT_LOG_FOLDER
        return CONSUME_QUEUE_FOLDER if folders[-3:-2] == [CONSUME_QUEUE_FOLDER] else None
    return INDEX_FOLDER if folders[-1:] == [INDEX_FOLDER] and is_index_file_name(name) else None


def _kind_by_contents(path: str, size: int) -> str | None:
    """For a copy outside its store."""
    with FileReader(path) as reader:
        head = reader.read(0, min(size, checkpoint.CHECKPOINT_BYTES))
    if len(head) >= MAGIC_POSITION + 4:
        magic = read_size_and_magic(head, 0)[1]
        if magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC):
            return COMMIT_LOG_FOLDER
    name = os.path.basename(path)
    if len(name) == _INDEX_NAME_DIGITS and is_index_file_name(name):
        return INDEX_FOLDER
    if size == checkpoint.CHECKPOINT_BYTES and not any(head[24:]):
        return CHECKPOINT_FILE
    if size and size % ENTRY_BYTES == 0 and decode_entry(head).is_written:
        return CONSUME_QUEUE_FOLDER
    return None


def _index_geometry(
    path: str, size: int, hash_slots: int | None, index_items: int | None
) -> IndexGeometry:
    """As given, or as the file shows, or as the files beside it do, for one that holds little."""
    if hash_slots is not None and index_items is not None:
        given = IndexGeometry(hash_slots, index_items)
        if given.file_bytes == size:
            return given
        sizes = f"{hash_slots} slots and {index_items} items take {given.file_bytes}"
        raise FormatError(path, min(size, given.file_bytes), f"{size} bytes, but {sizes}")
    folder = os.path.dirname(os.path.abspath(path))
    beside = sorted(
        (entry.path, entry.stat().st_size)
        for entry in os.scandir(folder)
        if entry.is_file() and is_index_file_name(entry.name)
    )
    known = GeometryFinder(hash_slots, index_items).find([*beside, (path, size)])
    if size in known:
        return known[size]
    if size == DEFAULT_GEOMETRY.file_bytes and hash_slots is None and index_items is None:
        return DEFAULT_GEOMETRY
    if known:
        usual = ", ".join(str(other) for other in known)
        raise FormatError(path, size, f"{size} bytes, but the files beside it have {usual}")
    raise UsageError(
        f"{path}: no entries that show how many slots and items it has; "
        "give --hash-slots and --index-items, or --broker-config"
    )
