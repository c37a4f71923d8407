"""The recovery point of a store: messages before it need not be compared with the log when the store is opened.

The file `reput.known` states that all messages before one physical offset are in ConsumeQueues and IndexFiles, durably
and exactly once. It records where each queue and the index end at that offset, the modification times of the files that
are already full, and the modification time of the store's file `lock`. The file `reput.known` is replaced periodically
and when the store is closed. A clean shutdown adds a digest. The digest covers `checkpoint`, and the sizes and
modification times of the CommitLog files and of the queue files and IndexFiles that are not full yet. A file can be
exchanged for another one with the same size and modification time, so the last entry of each queue is read as well. It
need not be read if a second digest shows that the file with this entry has the same path, inode and ctime as before.

The point also names the folder of the queues' database (RocksDB), or says that the queues are in files. A point lists
no queue of a database, so it would otherwise agree with a store that has lost all its queues. If the database is gone,
this name tells in which form, and where, the queues are to be written again (`StoreFacts.lost_database`).

A recovery point is valid as long as the files that it names exist unchanged. A broker ignores `reput.known`, but each
start of a broker changes the modification time of `lock`, which makes an earlier recovery point invalid.

The indexes of `reput.engine.rebuild.follow.follower` have a recovery point under another name. The folder of these
indexes has no log and no `lock`, so its recovery point contains 0 as the time of `lock`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from reput.base import Finding, StoreConfig
from reput.core import (
    BatchEnd,
    CommitLogFile,
    OffsetRange,
    Queue,
    check_topic,
    index_paths,
    queue_folder,
)
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.engine.writer.survey import DATABASE_FIELD, recovery_file
from reput.errors import StoreError
from reput.format.checkpoint import CHECKPOINT_BYTES
from reput.format.consume_queue import BATCH_ENTRY_BYTES, ENTRY_BYTES, PRE_BLANK
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    LOCK_FILE,
    RECOVERY_POINT_FILE,
    offset_file_name,
    parse_offset_file_name,
)
from reput.format.index_file import HEADER_BYTES, decode_header
from reput.io import Disk, FileReader, Stamp, has_stamps
from reput.kernels.entry_checks import written_entries

_FORM = 2
_PIECE_ENTRIES = 1 << 16
# State of a full file: its name (for a ConsumeQueue, the position of its first entry), its modification time (ns), and
# the physical offset of its last entry, which shows whether the file may have expired.
Look = tuple[str | int, int, int]


@dataclass(frozen=True)
class RecoveryPoint:
    """States that all messages before physical offset `end` have their entries.

    queues       for each queue, the position after its last entry, and the physical offset after that entry's message
    begun        queues whose last file is empty, because their entries exactly fill the earlier files
    batches      the end of each batch queue (5.x)
    index_name   the last IndexFile, or an empty string
    index_count  number of the last item in this file, plus 1; items are numbered from 1
    lost         unreadable ranges of the log; like `refused`, they explain gaps in the queue offsets of later messages
    refused      for each queue, the total size of the messages that dispatch refused since the queue's last entry
    database     name of the folder with the queues' database; empty for queues in files; None if the file, which an
                 earlier reput wrote, does not tell
    """

    end: int
    queues: dict[Queue, tuple[int, int]]
    index_name: str = ""
    index_count: int = 1
    begun: frozenset[Queue] = frozenset()
    batches: dict[Queue, BatchEnd] = field(default_factory=dict)
    lost: tuple[OffsetRange, ...] = ()
    refused: dict[Queue, int] = field(default_factory=dict)
    database: str | None = ""


class RecoveryPointWriter:
    """Writes the recovery points of one open store."""

    def __init__(
        self, store: Path, config: StoreConfig, disk: Disk, name: str = RECOVERY_POINT_FILE
    ) -> None:
        self._store, self._config, self._disk, self._name = store, config, disk, name
        self._looks: dict[Path, Look] = {}  # Full files do not change, so each is read once.

    def write(self, point: RecoveryPoint, closing: bool = False) -> None:
        """Write `point`. Everything that it covers must be durable. Raises StoreAccessError."""
        folder, entries = str(self._store / CONSUME_QUEUE_FOLDER), self._config.queue_entries
        begun = {
            name
            for name, (position, _) in point.queues.items()
            if position % entries == 0 and os.path.exists(_queue_file(folder, name, position))
        }
        point = replace(point, begun=frozenset(begun))
        queues = [
            [*name, *end, self._full_queue_files(name, end[0]), name in begun]
            for name, end in sorted(point.queues.items())
        ]
        content: dict[str, Any] = {
            "form": _FORM,
            "end": point.end,
            "lock": locked_at(self._store),
            "queues": queues,
            "batches": [[*name, *end] for name, end in sorted(point.batches.items())],
            "index": [point.index_name, point.index_count, self._full_index_files(point)],
            "lost": point.lost,
            "refused": [[*name, size] for name, size in sorted(point.refused.items())],
            DATABASE_FIELD: point.database,
            "closed": _digest(self._store, point, self._config) if closing else "",
        }
        if closing:
            taken_ns = time.time_ns()
            digest, _ = _last_files(self._store, point, self._config, taken_ns)
            content["last_files"] = [taken_ns, digest]
        self._disk.replace(self._store / self._name, json.dumps(content).encode())

    def _full_queue_files(self, name: Queue, position: int) -> list[Look]:
        entries = self._config.queue_entries
        if position < entries:
            return []
        files = QueueFiles(queue_folder(self._store / CONSUME_QUEUE_FOLDER, *name), entries)
        looks = []
        for start in files.starts:
            if start + entries <= position:
                path = files.path(start)
                if path not in self._looks:
                    # Read the modification time before the content, so that a later change of the file is noticed.
                    changed = path.stat().st_mtime_ns
                    last = files.entry(start + entries - 1)
                    offset = -1 if last is None else last.physical_offset
                    self._looks[path] = (start, changed, offset)
                looks.append(self._looks[path])
        return looks

    def _full_index_files(self, point: RecoveryPoint) -> list[Look]:
        looks = []
        for path in index_paths(self._store / INDEX_FOLDER):
            if path.name < point.index_name:
                if path not in self._looks:
                    changed = path.stat().st_mtime_ns
                    with FileReader(str(path)) as reader:
                        header = decode_header(reader.read(0, HEADER_BYTES))
                    look = (path.name, changed, header.end_physical_offset)
                    self._looks[path] = look
                looks.append(self._looks[path])
        return looks


def delete_recovery_point(store: Path, disk: Disk, name: str = RECOVERY_POINT_FILE) -> None:
    """Delete the recovery point, durably. Do this before a change to files that it covers. Raises StoreAccessError."""
    disk.delete(store / name)
    disk.sync_folder(store)


def read_recovery_point(
    store: Path,
    config: StoreConfig,
    log_begin: int,
    queues: dict[Queue, QueueFiles],
    name: str = RECOVERY_POINT_FILE,
    may_be_touched: bool = True,
) -> tuple[RecoveryPoint | None, bool]:
    """Return the recovery point (None if invalid), and whether nothing has changed since a clean shutdown.

    If a clean shutdown wrote the point, but files changed later, the point is returned only with `may_be_touched`.
    """
    try:
        content = recovery_file(store / name)
        # A broker that started after the recovery point was written has locked `lock`, and may have changed every file.
        if content["form"] != _FORM or content["lock"] != locked_at(store):
            return None, False
        point = RecoveryPoint(
            int(content["end"]),
            {
                Queue(str(topic), int(queue_id)): (int(position), int(end))
                for topic, queue_id, position, end, _, _ in content["queues"]
            },
            str(content["index"][0]),
            int(content["index"][1]),
            frozenset(Queue(*row[:2]) for row in content["queues"] if row[5]),
            {
                Queue(str(topic), int(queue_id)): BatchEnd(*map(int, end))
                for topic, queue_id, *end in content.get("batches", [])
            },
            tuple(OffsetRange(int(start), int(stop)) for start, stop in content.get("lost", [])),
            {
                Queue(str(topic), int(queue_id)): int(size)
                for topic, queue_id, size in content.get("refused", [])
            },
            _database(content),
        )
        # The digest covers only files that the point names. So also check that no queue has a later file, and that no
        # other queue has files.
        is_unchanged = content["closed"] == _digest(store, point, config) and all(
            files.ends_at(point.queues[queue][0]) if queue in point.queues else not files.starts
            for queue, files in queues.items()
        )
        if content["closed"] and not (is_unchanged or may_be_touched):
            return None, False
        # A queue has entries of messages before the recovery point, but the point does not list it. So the queue was
        # copied into the store later.
        if any(
            files.has_before(point.end)
            for queue, files in queues.items()
            if queue not in point.queues
        ):
            return None, False
        untouched = _untouched_queues(store, point, config, content) if is_unchanged else set()
        for topic, queue_id, position, end, looks, _ in content["queues"]:
            queue = Queue(topic, queue_id)
            is_untouched = queue in untouched
            if not _queue_is_good(
                queues[queue], position, end, looks, log_begin, config, is_unchanged, is_untouched
            ):
                return None, False
        if not _index_is_good(store, point, content["index"][2], log_begin):
            return None, False
    # Without a valid recovery point, everything is compared with the log, which is slower but always right.
    except (OSError, ValueError, TypeError, LookupError, StoreError):
        return None, False
    return point, is_unchanged


def _database(content: Any) -> str | None:
    """Return `RecoveryPoint.database`. Only queues in files are listed, so a list of queues tells it as well."""
    is_listed = content["queues"] or content.get("batches")
    database = content.get(DATABASE_FIELD, "" if is_listed else None)
    return None if database is None else str(database)


def _queue_is_good(
    files: QueueFiles,
    position: int,
    end: int,
    looks: list[Look],
    log_begin: int,
    config: StoreConfig,
    is_unchanged: bool,
    is_untouched: bool,
) -> bool:
    """Return whether the queue's full files are unchanged and the written part of its last file is valid.

    `is_unchanged` and `is_untouched` state that the first digest and the second digest still match.
    """
    entries = config.queue_entries
    times = {start: time for start, time in files.times.items() if start + entries <= position}
    if not _same_but_expired(times, looks, log_begin) or files.stop < position:
        return False
    if is_untouched:
        return True
    if files.end_before(position) != end:
        return False
    # The modification time of the queue's last file is the same, and so is its last entry.
    if is_unchanged:
        return True
    last_file = max(position - position % entries, files.first)
    before = -1
    for begin in range(last_file, position, _PIECE_ENTRIES):
        part = files.read(begin, min(_PIECE_ENTRIES, position - begin))
        if written_entries(part, before) < len(part):
            return False
        last = files.entry(begin + len(part) - 1)
        # A pre-blank entry leads to no message, so it sets no lower bound for the next entries.
        before = -1 if last is None or last == PRE_BLANK else last.physical_offset
    return True


def _index_is_good(store: Path, point: RecoveryPoint, looks: list[Look], log_begin: int) -> bool:
    times = {
        path.name: path.stat().st_mtime_ns
        for path in index_paths(store / INDEX_FOLDER)
        if path.name < point.index_name
    }
    return _same_but_expired(times, looks, log_begin)


def _same_but_expired(times: dict[Any, int], looks: list[Look], log_begin: int) -> bool:
    """Return whether the files are the recorded files. Only the oldest files may be missing, if they have expired."""
    noted = {name: changed for name, changed, _ in looks}
    missing = [look for look in looks if look[0] not in times]
    oldest = [look[0] for look in looks[: len(missing)]] == [look[0] for look in missing]
    expired = all(last_offset < log_begin for _, _, last_offset in missing)
    return oldest and expired and all(noted.get(name) == time for name, time in times.items())


def _digest(store: Path, point: RecoveryPoint, config: StoreConfig) -> str:
    """Return a digest of a closed store. It changes when `checkpoint`, the log or a file that can grow is modified.

    Full ConsumeQueue files and IndexFiles are not part of it, because the recovery point has their modification times.
    """
    parts = [str(point.end), FileReader.content_of(store / CHECKPOINT_FILE, CHECKPOINT_BYTES).hex()]
    parts += [_look(path) for path in _files_that_grow(store, point, config)]
    # Names that are not UTF-8 come as surrogates from the operating system.
    return sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _untouched_queues(
    store: Path, point: RecoveryPoint, config: StoreConfig, content: dict[str, Any]
) -> set[Queue]:
    """Return the queues whose last file has certainly not changed since a clean shutdown."""
    # Earlier versions wrote no such digest.
    taken_ns, noted = content.get("last_files", (0, ""))
    digest, untouched = _last_files(store, point, config, taken_ns)
    return untouched if digest and digest == noted else set()


def _last_files(
    store: Path, point: RecoveryPoint, config: StoreConfig, taken_ns: int
) -> tuple[str, set[Queue]]:
    """Return a digest of path, inode, size and ctime of the file with the last entry of each queue.

    It is empty if the file system does not show all changes. Also return the queues for which every change of the file
    after `taken_ns` changes the digest.
    """
    folder = str(store / CONSUME_QUEUE_FOLDER)
    if not point.queues or not has_stamps(os.path.realpath(folder)):
        return "", set()
    parts, shown = list[str](), set[Queue]()
    for name, (position, _) in sorted(point.queues.items()):
        last = max(position - 1, 0)
        path = _queue_file(folder, name, last - last % config.queue_entries)
        try:
            stamp = Stamp.of(path)
        except FileNotFoundError:  # The file has expired.
            continue
        parts.append(f"{path[len(folder) :]} {stamp.inode} {stamp.size} {stamp.changed_ns}")
        if stamp.is_older_than(taken_ns):
            shown.add(name)
    return sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest(), shown


def _files_that_grow(store: Path, point: RecoveryPoint, config: StoreConfig) -> Iterator[str]:
    log = store / COMMIT_LOG_FOLDER
    names = os.listdir(log) if log.exists() else []  # A folder with only indexes has no log.
    yield from sorted(f"{log}/{name}" for name in names if parse_offset_file_name(name) is not None)
    queues = str(store / CONSUME_QUEUE_FOLDER)
    for name, (position, _) in sorted(point.queues.items()):
        start = position - position % config.queue_entries
        if start < position or name in point.begun:
            yield _queue_file(queues, name, start)
    file_bytes = config.batch_queue_file_bytes
    for name, batch in sorted(point.batches.items()):
        number = (batch.entries - 1) // (file_bytes // BATCH_ENTRY_BYTES)
        folder = queue_folder(store / BATCH_QUEUE_FOLDER, *name)
        yield f"{folder}/{offset_file_name(number * file_bytes)}"
    index = index_paths(store / INDEX_FOLDER)
    yield from (str(path) for path in index if path.name >= point.index_name)


def _queue_file(folder: str, name: Queue, start: int) -> str:
    """Return the path of a queue's file. Text, not a Path, because a store may have tens of thousands of queues."""
    check_topic(name.topic)
    return f"{folder}/{name.topic}/{name.queue_id}/{offset_file_name(start * ENTRY_BYTES)}"


def locked_at(store: Path) -> int:
    """Return the time (ns) at which `lock` was last taken; 0 if it is missing, as in a folder with only indexes."""
    path = store / LOCK_FILE
    return path.stat().st_mtime_ns if path.exists() else 0


def _look(path: str) -> str:
    status = os.stat(path)
    return f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}"


def expired_unindexed(
    first: CommitLogFile, point: RecoveryPoint | None, queues: Iterable[QueueFiles]
) -> Finding | None:
    """Return a finding if messages expired before they were indexed, else None.

    Such messages leave no trace except a gap: the indexes end before the start of the log's `first` file. The end
    of the indexes is the recovery `point`, or the end of the last message that has a ConsumeQueue entry if that
    is later. If neither exists, the indexes may be new, so there is no finding. Raises StoreAccessError.
    """
    # The usual case. The queues, of which a store may have thousands, need not be searched for their ends.
    if point is not None and point.end >= first.start:
        return None
    ends = [end for files in queues if (end := files.end_before(files.written)) >= 0]
    if point is not None:
        ends.append(point.end)
    end = max(ends, default=first.start)
    if end >= first.start:
        return None
    return replace(first.expired_before(end), detail="expired before they were indexed")
