"""Present an archive as a `reput.io.storage.Storage`, so that readers of ordinary stores can read it.

The storage shows the broker's CommitLog files. Its ConsumeQueue files are computed from the queue index when they are
read, and its configuration files come from the newest snapshot. It shows no IndexFiles, because
`reput.wings.archive.key_search` searches the archive's key index.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from reput.base import Closing
from reput.errors import FormatError, StoreChangedError, StoreNotFoundError
from reput.format.archive import LogFile
from reput.format.archive_index import MOST_QUEUE_OFFSET, QueueRows
from reput.format.commit_log import MIN_RECORD_BYTES
from reput.format.consume_queue import BATCH_ENTRY_BYTES, ENTRY_BYTES, NOT_COMPACTED, PRE_BLANK
from reput.format.dtypes import BATCH_ENTRY_DTYPE, ENTRY_DTYPE
from reput.format.file_names import (
    ARCHIVE_MANIFEST,
    BATCH_QUEUE_FOLDER,
    CONFIG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    offset_file_name,
    parse_offset_file_name,
    parse_queue_id,
)
from reput.io.archive import Archive, ParquetIndex, opened, path_of
from reput.io.places import LOCAL_ARCHIVE

# Bytes per read in a search for a byte that is not zero.
_LEAST_STEP_BYTES = 1 << 20
# A damaged index could state any queue offset. A listing of all files up to this offset would exhaust memory and time.
_MOST_QUEUE_FILES = 1 << 17
"""Maximum number of queue files in an archived store, in addition to the first file of each queue.

With files of the default size, they have 39 billion entries.
"""
_MOST_GAPS = 1 << 20
"""Maximum number of entries of a queue without a message in the log, which no reader should have to pass."""
_QUEUE_FOLDERS = (CONSUME_QUEUE_FOLDER, BATCH_QUEUE_FOLDER)
_Read = Callable[[int, int], bytes]


class ArchiveEntry(NamedTuple):
    """A file or folder of the archived store; see `reput.io.storage.FolderEntry`."""

    path: str
    size: int
    is_folder: bool
    identity: int = 0

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)

    @property
    def st_size(self) -> int:
        return self.size

    @property
    def st_blocks(self) -> int:
        return -(-self.size // 512)

    def is_dir(self) -> bool:
        return self.is_folder

    def is_file(self) -> bool:
        return not self.is_folder

    def inode(self) -> int:
        return self.identity

    def stat(self) -> Self:
        return self


class ArchivedFile(Closing):
    """A `reput.io.reader.SparseReader` of one file of the archived store.

    All bytes from `data_bytes` on are zeros.
    """

    def __init__(self, path: str, size: int, data_bytes: int, read: _Read) -> None:
        self.path, self.size, self._data_bytes, self._read = path, size, data_bytes, read

    def close(self) -> None:
        """Do nothing, because no file is open."""

    def stop_read_ahead(self) -> None:
        """Do nothing, because nothing is read ahead."""

    def announce(self, positions: Sequence[int], length: int) -> None:
        """Do nothing: log files of an archive are not read in advance.

        Only parts of an archive's index are fetched in advance (`reput.wings.archive.key_search.prefetch`).
        """

    def read(self, position: int, length: int) -> bytes:
        """Return bytes of the file. Raises StoreChangedError, CorruptMessageError, StoreAccessError."""
        if position < 0 or position + length > self.size:
            raise StoreChangedError(
                f"{self.path}: ends at {self.size}, but bytes up to {position + length} were requested"
            )
        return self._read(position, length) if length else b""

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        buffer[:] = np.frombuffer(self.read(position, len(buffer)), np.uint8)

    def next_run(self, position: int) -> tuple[int, int] | None:
        return (position, self._data_bytes) if position < self._data_bytes else None

    def last_nonzero(self, size: int) -> int | None:
        stop = min(size, self._data_bytes)
        while stop > 0:
            start = max(stop - _LEAST_STEP_BYTES, 0)
            data = self.read(start, stop - start).rstrip(b"\0")
            if data:
                return start + len(data) - 1
            stop = start
        return None

    def has_data(self, position: int, stop: int) -> bool:
        stop = min(stop, self._data_bytes)
        while position < stop:
            length = min(stop - position, _LEAST_STEP_BYTES)
            if any(self.read(position, length)):
                return True
            position += length
        return False


class _QueueSpan(NamedTuple):
    """The rows of a queue in one of the archive's indexes. Each index covers consecutive log files."""

    source: ParquetIndex
    rows: QueueRows


@dataclass(frozen=True)
class _Queue:
    """One queue of the archived store: its rows in each index, in the order of the log."""

    spans: tuple[_QueueSpan, ...]

    @property
    def begin(self) -> int:
        return min(span.rows.least for span in self.spans)

    @property
    def end(self) -> int:
        return max(span.rows.greatest for span in self.spans) + 1

    @property
    def is_batch(self) -> bool:
        return any(span.rows.is_batch for span in self.spans)

    @property
    def count(self) -> int:
        return sum(span.rows.rows for span in self.spans)


@dataclass(frozen=True)
class ArchiveFiles:
    """A function that opens files of an archived store. It can be sent to another process."""

    place: str
    options: tuple[tuple[str, str], ...]
    generation: int

    def __call__(self, path: str) -> ArchivedFile:
        return storage_in(self).open(path)

    @property
    def archive(self) -> Archive:
        """Return the archive. Each process opens it only once."""
        return opened(self.place, self.options, self.generation)


class ArchiveStorage:
    """The store in an archive; see `reput.io.storage.Storage`.

    It does not show changes of the archive after it was opened.
    """

    is_local = False
    is_archive = True
    is_joined = False

    def __init__(self, archive: Archive) -> None:
        self.archive, self.root = archive, path_of(archive.place)
        self._entries_in_file = archive.config.queue_entries
        self._batches_in_file = archive.config.batch_queue_file_bytes // BATCH_ENTRY_BYTES

    @classmethod
    def of(cls, place: str, options: Mapping[str, str] | None = None) -> tuple[ArchiveStorage, str]:
        """Return the storage of an archive, and the path of its store. Raises as `Archive` does."""
        storage = cls(Archive(place.removeprefix(LOCAL_ARCHIVE).rstrip("/") or "/", options))
        return storage, storage.root

    def __reduce__(self) -> tuple[Any, ...]:
        return storage_in, (self.open_file,)

    @property
    def open_file(self) -> ArchiveFiles:
        archive = self.archive
        # The options must be hashable, because `opened` caches archives by them.
        options = tuple(sorted(archive.options.items()))
        return ArchiveFiles(archive.place, options, archive.manifest.generation)

    def list(self, folder: str) -> Sequence[ArchiveEntry]:
        """See `Storage.list`. Also raises FormatError."""
        inside = self._inside(folder)
        if inside is None:
            return []
        if inside.split("/")[0] in _QUEUE_FOLDERS:
            return list(self._queue_entries(inside))
        return list(self._tree_of(inside).get(inside, {}).values())

    def entry(self, path: str) -> ArchiveEntry | None:
        """See `Storage.entry`. Also raises FormatError."""
        inside = self._inside(path)
        if inside is None:
            return None
        if not inside:
            return ArchiveEntry(self.root, 0, True)
        parts = inside.split("/")
        if parts[0] in _QUEUE_FOLDERS and len(parts) > 1:
            folder = "/".join(parts[:-1])
            return next(self._queue_entries(folder, parts[-1]), None)
        folder, _, name = inside.rpartition("/")
        return self._tree_of(inside).get(folder, {}).get(name)

    def open(self, path: str) -> ArchivedFile:
        entry, inside = self.entry(path), self._inside(path)
        if entry is None or entry.is_folder or inside is None:
            raise StoreNotFoundError(f"{path}: no longer exists")
        if entry.size == 0:
            raise FormatError(path, 0, "the file is empty")
        if (file := self._log.get(inside)) is not None:
            return ArchivedFile(
                path,
                file.size,
                file.data_bytes,
                lambda at, length: self.archive.read(file, at, length),
            )
        parts = inside.split("/")
        if parts[0] in _QUEUE_FOLDERS:
            queue = self._queues[parts[1], int(parts[2])]
            return self._queue_file(path, queue, int(parts[3]))
        data = self._snapshot[inside]
        return ArchivedFile(path, len(data), len(data), lambda at, length: data[at : at + length])

    def queue_end(self, topic: str, queue_id: int, log_end: int) -> int | None:
        """Return the queue offset after a queue's last message in the archived log files that end by `log_end`.

        Return None if these log files have no message of the queue. Raises FormatError.
        """
        queue = self._queues.get((topic, queue_id), _Queue(()))
        spans = tuple(span for span in queue.spans if span.source.part.end <= log_end)
        return _Queue(spans).end if spans else None

    def watch(self, folder: str) -> _Unchanged:
        return _Unchanged()

    def _inside(self, path: str) -> str | None:
        """Return a path relative to the store's folder; None for a path outside this folder."""
        path = path.rstrip("/")
        if path == self.root:
            return ""
        return path.removeprefix(f"{self.root}/") if path.startswith(f"{self.root}/") else None

    @cached_property
    def _log(self) -> dict[str, LogFile]:
        return {file.path: file for file in self.archive.manifest.log}

    def _tree_of(self, inside: str) -> dict[str, dict[str, ArchiveEntry]]:
        """Return all folders and files except queues, by folder.

        Listing configuration files requires fetching them from the archive. So they are included only if `inside` is
        the store's folder, or lies in the folder of configuration files.
        """
        return self._whole_tree if inside.split("/")[0] in ("", CONFIG_FOLDER) else self._log_tree

    @cached_property
    def _log_tree(self) -> dict[str, dict[str, ArchiveEntry]]:
        tree: dict[str, dict[str, ArchiveEntry]] = {}
        # Archived files have no inode. Their digest takes its place, so readers notice a changed file.
        for file in self.archive.manifest.log:
            self._add(tree, file.path, file.size, int(file.sha256[:15], 16))
        # A store has this folder even if no queue was archived.
        self._add(tree, CONSUME_QUEUE_FOLDER, 0, is_folder=True)
        # Readers recognise a store of 5.x by its folder of batch queues.
        if self.archive.manifest.version == "5.x":
            self._add(tree, BATCH_QUEUE_FOLDER, 0, is_folder=True)
        return tree

    @cached_property
    def _whole_tree(self) -> dict[str, dict[str, ArchiveEntry]]:
        tree = {folder: dict(entries) for folder, entries in self._log_tree.items()}
        for path, data in self._snapshot.items():
            self._add(tree, path, len(data))
        return tree

    def _add(
        self, tree: dict[str, dict[str, ArchiveEntry]], path: str, size: int, identity: int = 0,
        *, is_folder: bool = False,
    ) -> None:  # fmt: skip
        folder, _, name = path.rpartition("/")
        if name in tree.setdefault(folder, {}):
            return
        tree[folder][name] = ArchiveEntry(f"{self.root}/{path}", size, is_folder, identity)
        if folder:
            self._add(tree, folder, 0, is_folder=True)

    @cached_property
    def _snapshot(self) -> dict[str, bytes]:
        """Return the broker's configuration files in the newest snapshot. Readers use no other files of a snapshot."""
        snapshots = self.archive.manifest.snapshots
        if not snapshots:
            return {}
        files = self.archive.snapshot(snapshots[-1])
        return {path: data for path, data in files.items() if path.startswith("config/")}

    @cached_property
    def _queues(self) -> dict[tuple[str, int], _Queue]:
        archive = self.archive
        spans: dict[tuple[str, int], tuple[_QueueSpan, ...]] = {}
        for index in archive.each(archive.index, archive.manifest.queues):
            for rows in index.queues:
                name = rows.topic, rows.queue_id
                spans[name] = (*spans.get(name, ()), _QueueSpan(index, rows))
        queues = {name: _Queue(queue_spans) for name, queue_spans in spans.items()}
        log = archive.manifest.log
        most = (log[-1].end - log[0].begin if log else 0) // MIN_RECORD_BYTES + _MOST_GAPS
        for (topic, queue_id), queue in queues.items():
            if not queue.is_batch and queue.end - queue.begin > most:
                raise FormatError(
                    archive.path(ARCHIVE_MANIFEST),
                    0,
                    f"queue {queue_id} of {topic!r} would have more than {most:,} entries",
                )
        files = sum(len(self._files_of(queue)) - 1 for queue in queues.values())
        if files > _MOST_QUEUE_FILES:
            raise FormatError(
                archive.path(ARCHIVE_MANIFEST),
                0,
                f"the queues would have {files:,} further files, more than {_MOST_QUEUE_FILES:,}",
            )
        return queues

    @cached_property
    def _folders(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return queue ids by topic, for each folder of queues."""
        folders: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in _QUEUE_FOLDERS}
        for (topic, queue_id), queue in self._queues.items():
            of_kind = folders[BATCH_QUEUE_FOLDER if queue.is_batch else CONSUME_QUEUE_FOLDER]
            of_kind[topic] = (*of_kind.get(topic, ()), queue_id)
        return folders

    def _queue_entries(self, inside: str, name: str | None = None) -> Iterator[ArchiveEntry]:
        """Yield the entries of a folder of queues, or only the entry with this name."""
        kind, *parts = inside.split("/")
        where, folders = f"{self.root}/{inside}", self._folders[kind]
        queue_ids = folders.get(parts[0], ()) if parts else ()
        if len(parts) < 2:
            for folder in map(str, queue_ids if parts else folders):
                if name in (None, folder):
                    yield ArchiveEntry(f"{where}/{folder}", 0, True)
            return
        queue_id = parse_queue_id(parts[1])
        if len(parts) > 2 or queue_id is None or queue_id not in queue_ids:
            return
        queue = self._queues[parts[0], queue_id]
        count, entry_bytes = self._layout(queue)
        size, numbers = count * entry_bytes, self._files_of(queue)
        if name is not None:
            offset = parse_offset_file_name(name)
            number, rest = divmod(-1 if offset is None else offset, size)
            numbers = range(number, number + 1) if number in numbers and not rest else range(0)
        for number in numbers:
            yield ArchiveEntry(f"{where}/{offset_file_name(number * size)}", size, False)

    def _files_of(self, queue: _Queue) -> range:
        """Return the numbers of a queue's files."""
        count, _ = self._layout(queue)
        # Entries of a ConsumeQueue are numbered by queue offset, entries of a batch queue consecutively.
        begin, end = (0, queue.count) if queue.is_batch else (queue.begin, queue.end)
        return range(begin // count, (end - 1) // count + 1)

    def _layout(self, queue: _Queue) -> tuple[int, int]:
        """Return the number of entries in a file of a queue, and the size of an entry."""
        if queue.is_batch:
            return self._batches_in_file, BATCH_ENTRY_BYTES
        return self._entries_in_file, ENTRY_BYTES

    def _queue_file(self, path: str, queue: _Queue, start: int) -> ArchivedFile:
        count, entry_bytes = self._layout(queue)
        size, base = count * entry_bytes, start // entry_bytes
        read_entries = self._batches if queue.is_batch else self._entries

        def read(position: int, length: int) -> bytes:
            first, last = position // entry_bytes, -(-(position + length) // entry_bytes)
            # Compute whole entries, but return only the requested bytes.
            entries = read_entries(queue, base + first, base + last).tobytes()
            at = position - first * entry_bytes
            return entries[at : at + length]

        end = queue.count if queue.is_batch else queue.end
        return ArchivedFile(path, size, min((end - base) * entry_bytes, size), read)

    def _batches(self, queue: _Queue, first: int, stop: int) -> npt.NDArray[np.void]:
        """Return the entries [first, stop) of a batch queue: one per archived row, and zeros after the last row."""
        entries = np.zeros(stop - first, BATCH_ENTRY_DTYPE)
        before = 0
        for index, rows in queue.spans:
            begin, end = max(first - before, 0), min(stop - before, rows.rows)
            for part, at in self._rows(index, rows.row + begin, rows.row + end):
                place = before + at - rows.row - first
                batches = entries[place : place + len(part)]
                for name in ("physical_offset", "size", "tags_code", "batch_size"):
                    batches[name] = part.column(name).to_numpy()
                batches["base_offset"] = part.column("queue_offset").to_numpy()
                times = part.column("store_timestamp").to_numpy()
                batches["store_timestamp"] = times.astype("datetime64[ms]").astype(np.int64)
                batches["compacted_offset"] = NOT_COMPACTED
            before += rows.rows
        return entries

    def _rows(self, index: ParquetIndex, begin: int, end: int) -> Iterator[tuple[Any, int]]:
        """Yield the rows [begin, end) of an index in pieces, each with the number of its first row."""
        if begin >= end:
            return
        last = bisect_right(index.row_starts, end - 1)
        for group in range(bisect_right(index.row_starts, begin) - 1, last):
            base = int(index.row_starts[group])
            start = max(begin, base)
            yield self.archive.group(index, group).slice(start - base, end - start), start

    def _entries(self, queue: _Queue, first: int, stop: int) -> npt.NDArray[np.void]:
        """Return entries of a queue as its ConsumeQueue files have them; zeros for entries that were not archived."""
        entries = np.zeros(stop - first, ENTRY_DTYPE)
        # Like a broker, put pre-blank entries before the first message of a queue.
        entries["size"][: max(queue.begin - first, 0)] = PRE_BLANK.size
        # If two messages have the same queue offset, the entry belongs to the first one. So write the last rows first,
        # and let earlier rows overwrite them.
        for index, rows in reversed(queue.spans):
            if rows.greatest < first or stop <= rows.least:
                continue
            begin, end = rows.row, rows.row + rows.rows
            # The queue offsets are consecutive, so the row of each one can be computed.
            if rows.follows:
                begin, end = (
                    rows.row + max(first - rows.least, 0),
                    rows.row + min(stop - rows.least, rows.rows),
                )
            for part, _ in self._rows(index, begin, end):
                self._place(entries, first, part)
        self._blank_unused(entries[: max(queue.end - first, 0)])
        return entries

    def _blank_unused(self, entries: npt.NDArray[np.void]) -> None:
        """Write pre-blank entries (placeholders) at queue offsets for which no entry was archived.

        A reader that meets a pre-blank entry searches the log for the message. An entry stays zero if its message may
        lie in a log file that was never archived, because no search could find this message.
        """
        is_unused = entries["size"] == 0
        if not is_unused.any():
            return
        # A hole is a range of the log that was never archived. A missing message lies between the messages of the known
        # entries before and after it. If a hole lies between these two, the message may be in the hole.
        used = np.flatnonzero(~is_unused & (entries["size"] != PRE_BLANK.size))
        unused = np.flatnonzero(is_unused)
        after = np.searchsorted(used, unused)
        offsets = np.concatenate([[-1], entries["physical_offset"][used], [MOST_QUEUE_OFFSET]])
        for begin, end in self._holes:
            is_unused[unused[(offsets[after] < end) & (begin <= offsets[after + 1])]] = False
        entries["size"][is_unused] = PRE_BLANK.size

    @cached_property
    def _holes(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of physical offsets that were never archived.

        Log files before and after each of these ranges were archived.
        """
        pairs = pairwise(self.archive.manifest.log)
        return tuple((one.end, two.begin) for one, two in pairs if one.end < two.begin)

    def _place(self, entries: npt.NDArray[np.void], first: int, rows: Any) -> None:
        """Copy rows to their places in `entries`, which begin at queue offset `first`.

        If several rows have the same queue offset, the first one is kept.
        """
        at = rows.column("queue_offset").to_numpy() - first
        is_inside = (at >= 0) & (at < len(entries))
        # Assign in reverse order, because NumPy keeps the last value that is assigned to a place.
        at = at[is_inside][::-1]
        for name in ("physical_offset", "size", "tags_code"):
            entries[name][at] = rows.column(name).to_numpy()[is_inside][::-1]


class _Unchanged:
    """A `reput.io.storage.Watch` of files that never change. Only its first call reports a change."""

    def __init__(self) -> None:
        self._is_old = False

    def changed(self) -> bool:
        was_asked, self._is_old = self._is_old, True
        return not was_asked


def storage_in(files: ArchiveFiles) -> ArchiveStorage:
    """Return a storage that opens an archive's files. Each process opens the archive only once."""
    return ArchiveStorage(files.archive)
