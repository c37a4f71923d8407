"""What the files that a rebuild replaces still tell: the sizes to use, and queues whose messages have expired."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.errors import ReputError, StoreError, UsageError
from reput.files.storage import LOCAL
from reput.files.writer import link, make_folder
from reput.format.batch_consume_queue import BATCH_ENTRY_BYTES
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    INDEX_FOLDER,
    parse_offset_file_name,
)
from reput.format.properties import LMQ_PREFIX
from reput.format.record_crc import stated_record_crc
from reput.index.set_reader import IndexFileSetReader
from reput.log.dispatch_batch import Queue
from reput.log.folders import ledger_folders, log_folders
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.queues.batch_reader import BatchQueueReader
from reput.queues.reader import ConsumeQueueReader
from reput.queues.rocksdb_database import RocksDatabase, is_database, was_database
from reput.queues.rocksdb_writer import require_library
from reput.store.parts import parts_of


def config_of(store: str | os.PathLike[str]) -> StoreConfig:
    """The settings that the store's own queues and IndexFiles show, the broker's defaults for the rest.

    Sizes are taken where they are certain. Queues named %LMQ%... are made by a broker with enableLmq and
    enableMultiDispatch only. Raises StoreAccessError.
    """
    config = StoreConfig()
    sizes = {file.stat().st_size for queue in _queue_folders(Path(store)) for file in _files(queue)}
    if len(sizes) == 1 and (size := sizes.pop()) and size % ENTRY_BYTES == 0:
        config = replace(config, queue_entries=size // ENTRY_BYTES)
    batches = {file.stat().st_size for file in Path(store).glob(f"{BATCH_QUEUE_FOLDER}/*/*/*")}
    if len(batches) == 1 and (size := batches.pop()) >= BATCH_ENTRY_BYTES:
        config = replace(config, batch_queue_file_bytes=size)
    extensions = {file.stat().st_size for file in Path(store).glob(f"{EXTENSION_FOLDER}/*/*/*")}
    if len(extensions) == 1 and (size := extensions.pop()) >= _LEAST_EXTENSION_BYTES:
        config = replace(config, extension_file_bytes=size)
    topics = {folder.parent.name for folder in _queue_folders(Path(store))}
    if any(topic.startswith(LMQ_PREFIX) for topic in topics | _topics_in_rocksdb(Path(store))):
        config = replace(config, enable_lmq=True, enable_multi_dispatch=True)
    geometries = _index_geometries(Path(store))
    if len(geometries) == 1:
        hash_slots, index_items = geometries.pop()
        config = replace(config, hash_slots=hash_slots, index_items=index_items)
    if (form := form_of(store)) is not None:
        config = replace(config, store_version="5.3", append_record_crc=form.has_crc)
    return config


class FormOfFive(NamedTuple):
    """How records of a 5.x store are written: whether the first has its own CRC."""

    has_crc: bool


def form_of(store: str | os.PathLike[str]) -> FormOfFive | None:
    """None for a store in which nothing shows that it is of 5.x. Raises StoreAccessError."""
    if parts_of(os.fspath(store), LOCAL).version != "5.x":
        return None
    try:
        with closing(CommitLogReader(StoreLog(store))) as log:
            first = log.get(log.first_offset)
    except ReputError:  # there is none
        return FormOfFive(has_crc=False)
    return FormOfFive(stated_record_crc(first.properties_bytes) is not None)


_LEAST_EXTENSION_BYTES = 64


def _topics_in_rocksdb(store: Path) -> set[str]:
    """None where there is no database, or it cannot be read here."""
    folder = str(store / CONSUME_QUEUE_FOLDER)
    if not is_database(folder, LOCAL):
        return set()
    try:
        with closing(RocksDatabase(folder)) as database:
            return {end.topic for end in database.ends()}
    except ReputError:
        return set()


def with_version(config: StoreConfig, store: str | os.PathLike[str]) -> StoreConfig:
    """The same settings, with the version of the broker where only the store shows it. Raises StoreAccessError."""
    if config.store_version is None and parts_of(os.fspath(store), LOCAL).version == "5.x":
        return replace(config, store_version="5.3")
    return config


def shows_index_sizes(store: str | os.PathLike[str]) -> bool:
    """Whether the store's IndexFiles tell `config_of` their numbers of slots and items."""
    return len(_index_geometries(Path(store))) == 1


def _index_geometries(store: Path) -> set[tuple[int, int]]:
    try:
        index = IndexFileSetReader(store / INDEX_FOLDER)
    except ReputError:
        return set()
    geometries = {(file.hash_slots, file.index_items) for file in index.current()}
    index.close()
    return geometries


def has_queue_folders(store: Path) -> bool:
    """Whether the store has a queue in files. Raises StoreAccessError."""
    return next(_queue_folders(store), None) is not None


def refuse_to_write(store: Path) -> None:
    """Raises UsageError for a store that has parts which reput only reads."""
    held = None
    if is_database(str(store / CONSUME_QUEUE_FOLDER), LOCAL):
        held = "keeps its queues in RocksDB"
    if held is None and (store / EXTENSION_FOLDER).is_dir():
        held = "has ConsumeQueue extension files"
    folders = log_folders(str(store), LOCAL)
    if held is None and folders != (str(store / COMMIT_LOG_FOLDER),):
        held = "has its CommitLog in other folders than commitlog/"
    if held is not None:
        raise UsageError(f"{store}: {held}: such a store is read-only")


def refuse_to_repair(store: Path) -> None:
    """Raises UsageError for a store that is not repaired, with what to do instead."""
    folders = log_folders(str(store), LOCAL)
    plain = (str(store / COMMIT_LOG_FOLDER),)
    if folders != plain and folders != ledger_folders(str(store), LOCAL):
        raise UsageError(
            f"{store}: has its CommitLog in several folders, perhaps on several disks, which no repair can swap: "
            "rebuild its indexes into another folder with reput rebuild, and restore files of the log from a replica"
        )
    queues = store / CONSUME_QUEUE_FOLDER
    if was_database(str(queues), LOCAL):
        require_library()
        if has_queue_folders(store):
            raise UsageError(
                f"{store}: keeps its queues in files and in RocksDB: reput rebuild makes them of one kind"
            )


def keep_expired_queues(
    output: Path, new: Path, log_begin: int, kind: str = CONSUME_QUEUE_FOLDER
) -> int:
    """Link queues of which the CommitLog holds no message any more into the new store; return how many.

    A broker keeps the last file of such a queue: it is what tells the next message its queue offset. Only a
    queue whose every entry lies before the log's beginning is kept.

    Args:
        output: has the queues.
        new: gets them.
        log_begin: physical offset.
        kind: the folder of the queues: consumequeue/, or batchconsumequeue/.

    Raises:
        StoreAccessError.
    """
    kept = 0
    for folder in _queue_folders(output, kind):
        target = new / kind / folder.parent.name / folder.name
        if target.exists() or not _has_expired(folder, log_begin):
            continue
        make_folder(target)
        for file in _files(folder):
            link(file, target / file.name)
        kept += 1
    return kept


def expired_queue_ends(store: Path, log_begin: int) -> Iterator[tuple[Queue, tuple[int, int]]]:
    """Of the queues whose every entry lies before the log: physical offset and queue offset of the last entry.

    Raises StoreAccessError.
    """
    for folder in chain(
        expired_queues(store, log_begin), expired_queues(store, log_begin, BATCH_QUEUE_FOLDER)
    ):
        if folder.name.isascii() and folder.name.isdigit():
            with closing(_reader(folder)) as reader:
                last = reader.max_queue_offset() - 1
                place = reader.entry(last).physical_offset, last
            yield Queue(folder.parent.name, int(folder.name)), place


def expired_queues(store: Path, log_begin: int, kind: str = CONSUME_QUEUE_FOLDER) -> Iterator[Path]:
    """Folders of the queues whose every entry lies before the log's beginning. Raises StoreAccessError."""
    return (folder for folder in _queue_folders(store, kind) if _has_expired(folder, log_begin))


def _has_expired(folder: Path, log_begin: int) -> bool:
    """Whether the queue has entries and the newest of them, and so all, lie before the log."""
    try:
        with closing(_reader(folder)) as queue:
            last = queue.max_queue_offset() - 1
            return last >= 0 and queue.entry(last).physical_offset < log_begin
    except StoreError:
        return False


def _reader(folder: Path) -> ConsumeQueueReader | BatchQueueReader:
    is_batch = folder.parent.parent.name == BATCH_QUEUE_FOLDER
    return (BatchQueueReader if is_batch else ConsumeQueueReader)(str(folder))


def _queue_folders(store: Path, kind: str = CONSUME_QUEUE_FOLDER) -> Iterator[Path]:
    root = store / kind
    if root.is_dir():
        for topic in sorted(root.iterdir()):
            if topic.is_dir():
                yield from (queue for queue in sorted(topic.iterdir()) if queue.is_dir())


def _files(queue: Path) -> list[Path]:
    return [file for file in queue.iterdir() if parse_offset_file_name(file.name) is not None]
