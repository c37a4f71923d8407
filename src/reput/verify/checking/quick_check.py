"""The quick check: headers, ends and samples, in about the time that a command takes to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from reput.errors import StoreNotFoundError
from reput.files.reader import FileReader
from reput.findings import Finding, Kind
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
)
from reput.format.file_names import INDEX_FOLDER
from reput.index.set_reader import IndexFileSetReader
from reput.index.trust import spot_check
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.verify.checking.checked_store import CheckedStore
from reput.verify.checking.quick_queues import last_entries


def quick_findings(store: CheckedStore) -> Iterator[Finding]:
    """What the first record of each log file, the last entry of each queue and samples of each IndexFile show.

    Raises StoreAccessError.
    """
    for file in store.files[: store.last_file + 1]:
        try:
            yield from _first_record(file)
        except StoreNotFoundError:
            if not store.is_live:  # else it expired
                raise
    with closing(CommitLogReader(StoreLog(store.path))) as log:
        yield from last_entries(store, log)
        if store.knows_index_sizes:
            yield from _index(store, log)


def _first_record(file: CommitLogFile) -> Iterator[Finding]:
    with FileReader(file.path) as reader:
        head = reader.read(file.gap, min(MIN_RECORD_BYTES, max(file.size - file.gap, 0)))
    magic = read_size_and_magic(head, 0)[1] if len(head) >= BLANK_BYTES else None
    if magic == BLANK_MAGIC:
        return
    is_message = magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and len(head) == MIN_RECORD_BYTES
    if not is_message or read_size_and_physical_offset(head, 0)[1] != file.start + file.gap:
        yield file.lost(file.start, file.start, "the file does not begin with its first record")


def _index(store: CheckedStore, log: CommitLogReader) -> Iterator[Finding]:
    config = store.config
    files = IndexFileSetReader(store.path / INDEX_FOLDER, config.hash_slots, config.index_items)
    with closing(files):
        yield from files.problems
        current = files.current()
        for file in current:
            last = file.next_item - 1
            verdict = spot_check(file, log, last, None, len(current))
            if verdict.problem:
                yield Finding(Kind.INDEX_HEADER, file.path, verdict.problem)
            elif last and not store.is_live and file.offset(last) >= store.end:
                detail = f"leads to offset {file.offset(last)}, the log ends at {store.end}"
                yield Finding(Kind.INDEX_AHEAD_OF_LOG, file.path, detail)
