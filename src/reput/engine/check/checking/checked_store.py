"""Collect the facts that a check needs before it reads a store: files, their sizes, the end of the log, the owner.

Links below the store's folders are not followed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from reput.base import INDEX_SETTINGS, Finding, Kind, StoreConfig, counted, format_size
from reput.core import (
    CommitLogFile,
    ListedLog,
    LogListing,
    Queue,
    StoreLog,
    batch_topics,
    facts_of,
    holes,
    is_light,
    open_queues,
)
from reput.engine.compare import Span
from reput.engine.writer import LogEnds, StoreSurvey, survey_of
from reput.errors import FormatError, MissingExtraError, StoreNotFoundError
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    INDEX_FOLDER,
    is_index_file_name,
    parse_offset_file_name,
    parse_queue_id,
)
from reput.format.index_file import HEADER_BYTES, IndexHeader, decode_header
from reput.io import FileReader, Location, listed_size

# Bytes of the log. Dispatch writes the index shortly after the queues. If the last message in the index is this far
# before the last one in the queues, the index is not merely late, but disabled or damaged.
_BEHIND_BYTES = 64 << 20
_MORE_LOOKS = 20  # Maximum number of further attempts if a listed file expires before it is opened.
_NO_START = "does not start"


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield a folder's entries, sorted by name. Yields nothing if the folder is missing."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return


@dataclass(slots=True)
class Unread:
    """What a quick check did not read: bytes of the log, queue entries, items of IndexFiles, units of the timer log.

    `parts` are names of further parts of the store, such as keys in RocksDB.
    """

    log_bytes: int = 0
    queue_entries: int = 0
    index_items: int = 0
    timer_units: int = 0
    parts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        entries = counted(self.queue_entries, "queue entry", "queue entries")
        items = counted(self.index_items, "index item")
        units = f", {counted(self.timer_units, 'timer unit')}" if self.timer_units else ""
        parts = "".join(f", {part}" for part in self.parts)
        return f"{format_size(self.log_bytes)} of the log, {entries}, {items}{units}{parts}"


@dataclass(slots=True)
class CheckedStore:
    """The state of a store when a check begins.

    facts         facts about the store
    files         log files, without overlapping ones
    queues        folder of each queue
    index         paths of the IndexFiles
    end           end of the log; in a store in use, the end of the checked part
    ends          the ends of the log for readers and a rebuild; they differ if the last record is incomplete
    last_file     number of the file that contains the end
    broker_start  physical offset at which a broker that starts now begins to check records
    unread        what the check did not read
    """

    path: Path
    facts: StoreSurvey
    files: list[CommitLogFile] = field(default_factory=list)
    queues: dict[Queue, str] = field(default_factory=dict)
    index: list[str] = field(default_factory=list)
    has_checkpoint: bool = False
    end: int = 0
    ends: LogEnds = field(default_factory=lambda: LogEnds(0, 0, 0))
    last_file: int = 0
    broker_start: int = 0
    findings: list[Finding] = field(default_factory=list)
    unread: Unread = field(default_factory=Unread)

    @property
    def begin(self) -> int:
        return self.files[0].start

    def begin_now(self) -> int:
        """Return the physical offset at which the log begins now.

        A running broker may have deleted the first log files, so the log's folder is listed again
        (`StoreFacts.begin_now`). If no broker is running, the log still begins at `begin`.
        """
        return max(self.facts.begin_now(), self.begin) if self.is_live else self.begin

    @property
    def config(self) -> StoreConfig:
        return self.facts.config

    @property
    def is_live(self) -> bool:
        return self.facts.is_live

    @property
    def knows_index_sizes(self) -> bool:
        return not any(doubt.settings == INDEX_SETTINGS for doubt in self.facts.doubts)

    def lost_end(self, queued: int) -> Finding:
        """Return the finding for queue entries that lead to messages after the end of the log."""
        return Finding(
            Kind.LOST_LOG_END, self.files[self.last_file].path,
            "the log ends here, but ConsumeQueues lead to later messages",
            physical_offset=self.end, count=queued,
            cost=f"{counted(queued, 'message')} can no longer be read",
            at_next_start=f"ends the log at {self.end} and drops the ConsumeQueue entries of later messages",
        )  # fmt: skip


@dataclass(slots=True)
class IndexTable:
    """What a check has read of one IndexFile.

    items        number of items
    first, last  physical offsets of its first and last items; -1 if it has no items
    spans        summary of the items that lead into each log file, by number of the log file. A quick check only knows
                 the number of the items that a starting broker does not index again.
    """

    path: str
    header: IndexHeader = field(default_factory=lambda: IndexHeader(0, 0, 0, 0, 0, 0))
    items: int = 0
    first: int = -1
    last: int = -1
    spans: dict[int, Span] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def note(self, kind: Kind, detail: str, at: int | None) -> None:
        self.findings.append(Finding(kind, self.path, detail, at))


def look_at(path: Path, config: StoreConfig | None) -> CheckedStore:
    """Read names and sizes, and find the end of the log.

    Args:
        path: Path of the store.
        config: The broker's settings; by default derived from the store's files.

    Raises:
        UsageError: The path is an archive.
        StoreNotFoundError: The store has no CommitLog.
        StoreAccessError: A file cannot be read.
    """
    Location.refuse_archive(path)
    for _ in range(_MORE_LOOKS):
        facts = survey_of(path, config)
        try:
            return _look(path, facts)
        # In a live store, a file may expire between listing and opening. Then look again.
        except (StoreNotFoundError, FileNotFoundError):
            if not facts.is_live:
                raise
    return _look(path, survey_of(path, config))


def _look(path: Path, facts: StoreSurvey) -> CheckedStore:
    store = CheckedStore(path, facts)
    # First find the physical offset up to which messages are dispatched, then list the files. The check ends at this
    # offset, so messages that are dispatched during the listing are not reported as missing from the indexes.
    horizon = _dispatched(path) if store.is_live else None
    _list_log(store)
    _list_queues(store)
    _list_index(store)
    # Without the sizes of IndexFiles, no item can be read.
    store.findings += [
        replace(
            doubt.finding(),
            cost="the IndexFiles were not checked" if doubt.settings == INDEX_SETTINGS else "",
        )
        for doubt in facts.doubts
    ]
    store.findings += _other_sizes(facts)
    store.has_checkpoint = (path / CHECKPOINT_FILE).is_file()
    _set_end(store)
    if horizon is not None:
        store.end = max(min(store.end, horizon), store.begin)
    store.broker_start = facts.broker_start(store.files)
    return store


def _other_sizes(facts: StoreSurvey) -> Iterator[Finding]:
    """Yield findings for batch queue files and extension files of another size than the others.

    The checks of the log, of ConsumeQueues and of IndexFiles report the files that they read.
    """
    for odd in facts.odd_files:
        folder = Path(odd.path).relative_to(facts.path).parts[0]
        is_new = facts.is_live and not odd.size
        if folder in (BATCH_QUEUE_FOLDER, EXTENSION_FOLDER) and not is_new:
            # As `MappedFileQueue.load` does with the last file of a queue.
            at_start = (
                _NO_START if odd.size else "deletes the file if it is the last one of its queue"
            )
            yield replace(odd.finding(), at_next_start=at_start)


def _list_log(store: CheckedStore) -> None:
    folders = store.facts.log_folders
    files = []
    for entry in chain.from_iterable(entries_of(Path(folder)) for folder in folders):
        start = parse_offset_file_name(entry.name)
        if start is None or not entry.is_file(follow_symlinks=False):
            store.findings.append(_foreign(store, entry, start is not None))
            continue
        size = entry.stat(follow_symlinks=False).st_size
        files.append(
            CommitLogFile(start, size, entry.path, entry.inode(), CommitLogFile.gap_of(entry.path))
        )
    files.sort()
    if store.is_live and len(files) > 1 and not files[-1].size:
        # The writer of the store is still creating the newest file, which has no message yet.
        files.pop()
    if not files:
        # If the folder is missing, this call raises an error that says so.
        StoreLog(store.path, folders=folders).list()
        raise StoreNotFoundError(
            f"{folders[0]}: has no CommitLog file (a file whose name is an offset in 20 digits)"
        )
    store.files = [files[0]]
    for file in files[1:]:
        before = store.files[-1]
        if before.end > file.start:
            detail = f"begins at {file.start}, but {before.path} ends at {before.end}"
            store.findings.append(Finding(Kind.LOG_FILE_NAME, file.path, detail, None, file.start))
        else:
            store.files.append(file)
    usual = Counter(file.size for file in files).most_common(1)[0][0]
    for file in files:
        if file.size != usual:
            store.findings.append(
                Finding(
                    Kind.LOG_FILE_SIZE, file.path, f"has {file.size} bytes, but the others have {usual}",
                    min(file.size, usual), at_next_start=_NO_START,
                )
            )  # fmt: skip
    for hole in holes(store.files):
        # Do not report a hole after a file of unusual size: the finding about the size of this file covers the hole.
        if any(f.size != usual and f.end == hole.start for f in store.files):
            continue
        # Files that the broker deleted while the folder was listed are no hole.
        if not store.is_live or hole.start >= store.begin_now():
            store.findings.append(hole)


def _foreign(store: CheckedStore, entry: os.DirEntry[str], is_named: bool) -> Finding:
    """Return the finding for something in commitlog/ that is not a CommitLog file.

    `is_named`: its name is that of a CommitLog file. Mirrors `MappedFileQueue.load`: a broker takes the name of each
    file for a number, and refuses any other name. A broker of 5.x skips folders, such as lost+found.
    """
    detail = "not a CommitLog file"
    if entry.is_dir() and store.config.is_five:
        return Finding(Kind.FOREIGN_FILE, entry.path, detail, at_next_start="ignores it")
    at_start = "follows the link" if is_named and entry.is_symlink() else _NO_START
    return Finding(Kind.FOREIGN_LOG_FILE, entry.path, detail, at_next_start=at_start)


def _list_queues(store: CheckedStore) -> None:
    for topic in entries_of(store.path / CONSUME_QUEUE_FOLDER):
        if not topic.is_dir(follow_symlinks=False):
            if store.facts.queue_form is not None:
                continue
            store.findings.append(
                Finding(Kind.FOREIGN_FILE, topic.path, "not the folder of a topic")
            )
            continue
        for queue in entries_of(Path(topic.path)):
            queue_id = parse_queue_id(queue.name)
            if queue_id is not None and queue.is_dir(follow_symlinks=False):
                store.queues[Queue(topic.name, queue_id)] = queue.path
            else:
                store.findings.append(
                    Finding(Kind.FOREIGN_FILE, queue.path, "not the folder of a queue")
                )


def _list_index(store: CheckedStore) -> None:
    for entry in entries_of(store.path / INDEX_FOLDER):
        if is_index_file_name(entry.name) and entry.is_file(follow_symlinks=False):
            store.index.append(entry.path)
        else:
            store.findings.append(
                Finding(
                    Kind.FOREIGN_FILE, entry.path, "not the name of an IndexFile",
                    at_next_start="ignores it and leaves it in place",
                )
            )  # fmt: skip


def _set_end(store: CheckedStore) -> None:
    """Find the end of the log among the files that do not overlap, and the number of the file that contains it."""
    ends = store.ends = LogEnds.of(ListedLog(LogListing(str(store.path), tuple(store.files))))
    store.end = ends.rebuild
    store.last_file = 0 if ends.file is None else store.files.index(ends.file)


def _dispatched(path: Path) -> int:
    """Return the physical offset before which all messages are dispatched, according to the indexes."""
    queued = _queued(path)
    indexed = 0
    for entry in entries_of(path / INDEX_FOLDER):
        if is_index_file_name(entry.name) and (listed_size(entry) or 0) >= HEADER_BYTES:
            with FileReader(entry.path) as reader:
                header = decode_header(reader.read(0, HEADER_BYTES))
            indexed = max(indexed, header.end_physical_offset)
    # Dispatch writes queues before the index, so the index may end a little earlier. The check must not go further than
    # the index, or it would report the keys of the last messages as missing.
    if 0 < indexed < queued and queued - indexed < _BEHIND_BYTES:
        return indexed
    return queued or indexed  # `queued` is 0 if the queues' database is unreadable.


def _queued(path: Path) -> int:
    """Return the physical offset of the newest message in any queue, or 0 if unknown."""
    ends = [0]
    try:
        with closing(open_queues(path)) as queues:
            for topic, queue_id in queues.list():
                queue = queues.queue(topic, queue_id)
                last = queue.max_queue_offset() - 1
                if last >= 0:
                    ends.append(queue.entry(last).physical_offset)
    except (MissingExtraError, FormatError):
        if facts_of(path).queue_form is None:
            raise
    return max(ends)


def lost_files(store: CheckedStore) -> set[Queue]:
    """Return the queues in RocksDB that have lost their files, in a store with queues of both kinds.

    A broker that does not write all topics twice has some in RocksDB alone. So the files of a topic are lost only if
    other queues of this topic are in files, or if RocksDB has all topics that are in files. Light queues (LMQ) and
    batch queues may be in RocksDB alone in any case.

    Raises StoreError, MissingExtraError.
    """
    path, form = str(store.path), store.facts.queue_form
    if form is None or not store.queues:
        return set()
    queues = {Queue(last.topic, last.queue_id) for last in form.last_entries(path)}
    topics = {queue.topic for queue in store.queues}
    others = {queue.topic for queue in queues} - batch_topics(path)
    if not topics <= others:
        others &= topics
    return {
        queue
        for queue in queues - store.queues.keys()
        if queue.topic in others and not is_light(queue.topic)
    }
