"""The facts of a store: sizes of its files, version, parts, the end of its log, owner and checkpoint.

A broker gives all files of one kind the same size, and names each by the offset of its first byte. So sizes have three
witnesses, in this order: the broker's configuration, the distance between neighbouring names, the size of most files.
This module alone asks them. Where they disagree, readers continue with the first and report the doubt; writers refuse.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.errors import (
    FormatError,
    MissingExtraError,
    ReputError,
    StoreError,
    StoreNotFoundError,
    UsageError,
)
from reput.files.lock import is_locked
from reput.files.storage import LOCAL, FolderEntry, Storage
from reput.findings import Finding, Kind
from reput.format.batch_consume_queue import BatchEntry
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.format.commit_log import BLANK_BYTES
from reput.format.consume_queue import ConsumeQueueEntry, decode_entry
from reput.format.file_names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    LOCK_FILE,
    is_index_file_name,
)
from reput.format.properties import LMQ_PREFIX
from reput.format.record_crc import stated_record_crc
from reput.index.geometry import DEFAULT_GEOMETRY, GeometryFinder
from reput.log.broker_end import recovered_end
from reput.log.ends import LogEnds, find_log_ends
from reput.log.files import CommitLogFile
from reput.log.folders import ledger_folders, log_folders
from reput.log.known_file import TimedPiece
from reput.log.known_ranges import KnownRanges
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader
from reput.log.sources import LogListing, StoreLog
from reput.log.walk import LogWalk
from reput.queues.folders import offset_entries, walk_queues
from reput.queues.kinds import BATCH_QUEUE, CONSUME_QUEUE, EXTENSION
from reput.queues.rocksdb_database import RocksDatabase, is_database, was_database
from reput.queues.store_queues import KnownOffset, known_offset
from reput.store.broker_start import first_file_to_check
from reput.store.parts import StoreParts, parts_of

INDEX_SETTINGS = ("hash_slots", "index_items")
LOG_SETTING = "commit_log_file_bytes"
QUEUE_SETTINGS = ("queue_entries", "batch_queue_file_bytes", "extension_file_bytes")
KEPT_BY: Mapping[str | None, tuple[str, ...]] = {
    None: (), "index": QUEUE_SETTINGS, "consumequeue": INDEX_SETTINGS,
}  # fmt: skip
"""By what alone a rebuild writes, the settings of the files that it leaves as they are."""
_MOST_NAMED = 3
_LEAST_EXTENSION_BYTES = 64
_RECORDS_AFTER = 1 << 14  # looked at after the last entry of a store's only queue file


@dataclass(frozen=True, slots=True)
class Doubt:
    """A size that the files of a store do not show for certain.

    Attributes:
        settings: fields of StoreConfig that it is about
        names: a broker's names of them
        detail: what disagrees
        files: files that disagree with the others
    """

    settings: tuple[str, ...]
    names: str
    detail: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.files) - _MOST_NAMED
        named = ", ".join(self.files[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"{self.detail}: {named}"

    def finding(self) -> Finding:
        return Finding(Kind.UNCERTAIN_SIZE, self.files[0], f"{self} (see {self.names})")


class OddFile(NamedTuple):
    """A file that has not the size of its kind."""

    path: str
    size: int
    whole: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.path}: {self._detail}"

    @property
    def _detail(self) -> str:
        return f"{self.size:,} bytes, not {self.whole:,}"

    def finding(self) -> Finding:
        return Finding(self.kind, self.path, self._detail, min(self.size, self.whole))


@dataclass(frozen=True)  # without slots: cached properties need a __dict__
class StoreFacts:
    """The facts of one store. Each is read when it is first asked for; `refresh` forgets them after a change.

    Attributes:
        path: of its folder
        given: the settings that were given
        storage: where it lies
    """

    path: str
    given: StoreConfig | None = None
    storage: Storage = LOCAL

    def refresh(self) -> StoreFacts:
        """Return the facts of the store as it is now."""
        return StoreFacts(self.path, self.given, self.storage)

    @cached_property
    def parts(self) -> StoreParts:
        """Its parts, by their names. Raises StoreAccessError."""
        return parts_of(self.path, self.storage)

    @cached_property
    def _sizes(self) -> _Sizes:
        return _sizes_of(self)

    @property
    def config(self) -> StoreConfig:
        """The settings that were given, or else as its files show them; a broker's defaults for the rest.

        Raises StoreAccessError, as `shown`, `doubts` and `odd_files` do: the four come from one look at the files.
        """
        return self._sizes.config

    @property
    def shown(self) -> Mapping[str, int]:
        """By field of StoreConfig, the sizes that its files show for certain."""
        return self._sizes.shown

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Uncertain sizes; empty if settings were given."""
        return self._sizes.doubts

    @property
    def odd_files(self) -> tuple[OddFile, ...]:
        """Files that are not as long as `config` says."""
        return self._sizes.odd_files

    @cached_property
    def log_folders(self) -> tuple[str, ...]:
        """The folders of its CommitLog. Raises StoreAccessError."""
        return log_folders(self.path, self.storage)

    @cached_property
    def ledger_folders(self) -> tuple[str, ...]:
        """The folders of its DLedger log; empty without one. Raises StoreAccessError."""
        return ledger_folders(self.path, self.storage)

    @cached_property
    def has_queue_database(self) -> bool:
        """Whether its queues are in RocksDB. Raises StoreAccessError."""
        return is_database(self._queue_folder, self.storage)

    @cached_property
    def has_queue_database_files(self) -> bool:
        """Whether files of RocksDB are where its queues are, a whole database or not. Raises StoreAccessError."""
        return was_database(self._queue_folder, self.storage)

    @cached_property
    def has_queue_files(self) -> bool:
        """Whether it has a ConsumeQueue in files. Raises StoreAccessError."""
        return next(walk_queues(self._queue_folder, self.storage), None) is not None

    @cached_property
    def has_extension_files(self) -> bool:
        """Whether it has a folder for extension files of ConsumeQueues. Raises StoreAccessError."""
        return self.storage.entry(os.path.join(self.path, EXTENSION.folder)) is not None

    @property
    def _queue_folder(self) -> str:
        return os.path.join(self.path, CONSUME_QUEUE_FOLDER)

    def local_database(self, *names: str) -> str | None:
        """Return the folder of a RocksDB database below the store; None unless it is there and on this machine.

        Raises StoreAccessError.
        """
        folder = os.path.join(self.path, *names)
        return folder if self.storage.is_local and is_database(folder, self.storage) else None

    @cached_property
    def log(self) -> LogListing:
        """The files of the log. Raises StoreError."""
        return self._source.list()

    @property
    def _source(self) -> StoreLog:
        return StoreLog(self.path, self.storage)

    @cached_property
    def ends(self) -> LogEnds:
        """Where the log ends. Raises StoreError."""
        return find_log_ends(self._source)

    @property
    def holes(self) -> list[Finding]:
        """Ranges of the log between its first file and its last that no file holds. Raises StoreError."""
        return self.log.holes()

    @cached_property
    def times(self) -> tuple[TimedPiece, ...]:
        """The least and the greatest store time of the ranges of the log that are known; nothing is scanned.

        Scans by time and of whole files learn them (`reput.log.known_ranges`). Raises StoreError.
        """
        with closing(CommitLogReader(self._source)) as log:
            known = KnownRanges(log)
            found = (known.times(OffsetRange(file.start, file.end)) for file in self.log.files)
            return tuple(piece for piece in found if piece is not None)

    @cached_property
    def broker_end(self) -> int:
        """Where a broker that starts now ends the log: it reads the last files, so ask only if it matters.

        Raises StoreError.
        """
        with closing(CommitLogReader(self._source)) as log:
            start = self.broker_start(self.log.files)
            return recovered_end(log, start, whole_records=self.config.check_record_crc)

    def broker_start(self, files: Sequence[CommitLogFile]) -> int:
        """Return the physical offset from which a broker that starts now checks a log of these files.

        Raises StoreAccessError.
        """
        known = self.known_offset if self.config.is_five and self.storage.is_local else None
        first = first_file_to_check(
            list(files), self.checkpoint, is_clean=not self.has_abort, known=known,
            open_file=self.storage.open_file,
        )  # fmt: skip
        return first.start

    @cached_property
    def known_offset(self) -> KnownOffset:
        """What the queues know of the log; nothing for a database that cannot be read, which a broker cannot either.

        Raises StoreAccessError.
        """
        try:
            return known_offset(self.path)
        except (MissingExtraError, FormatError):
            return KnownOffset(-1, True)

    @cached_property
    def is_live(self) -> bool:
        """Whether a process of this machine, a broker for instance, owns the store."""
        return self.storage.is_local and is_locked(Path(self.path, LOCK_FILE))

    @cached_property
    def has_abort(self) -> bool:
        """Whether the last owner has not shut it down, or not yet."""
        return self.storage.entry(os.path.join(self.path, ABORT_FILE)) is not None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """What a broker last wrote to its checkpoint; zeros if it is missing or short. Raises StoreAccessError."""
        path = os.path.join(self.path, CHECKPOINT_FILE)
        entry = self.storage.entry(path)
        if entry is None or not entry.is_file() or not entry.stat().st_size:
            return Checkpoint()
        try:
            with closing(self.storage.open(path)) as reader:
                size = min(entry.stat().st_size, CHECKPOINT_BYTES)
                return decode_checkpoint(reader.read(0, size))
        except (StoreNotFoundError, ValueError):
            return Checkpoint()

    def findings(self) -> list[Finding]:
        """All that is doubtful: unknown parts, sizes, files of other sizes, files of the log that are missing, its end.

        Raises StoreError.
        """
        sizes = [doubt.finding() for doubt in self.doubts]
        sizes += [odd.finding() for odd in self.odd_files]
        ends = [] if self.is_live else self.ends.findings()
        return [*self.parts.findings, *self.holes, *sizes, *ends]

    @property
    def is_five(self) -> bool:
        """Whether a file shows that a 5.x broker wrote it."""
        return self.parts.version == "5.x"

    def require_certain(self, but: Collection[str] = ()) -> None:
        """Refuse to write while a size is in doubt.

        Args:
            but: settings that are known from elsewhere, or do not matter. That of the log never does: nothing
                but recovery continues it, and refuses files of several sizes in its own words.

        Raises:
            UsageError: names the files and the settings.
        """
        for doubt in self.doubts:
            if not set(doubt.settings) <= {LOG_SETTING, *but}:
                raise UsageError(
                    f"{self.path}: {doubt}; nothing was changed; pass broker_config with {doubt.names}",
                    arguments=["broker_config"],
                )

    def require_shown(self) -> None:
        """Refuse to continue files in other sizes than they have; a broker does not start with them.

        Raises:
            StoreError: the settings that were given are not those of the store's files.
        """
        units = {
            kind.setting: (f"its {kind.title} have", kind.unit, "bytes") for kind in _QUEUE_KINDS
        }
        units |= {
            "hash_slots": ("its IndexFiles have", 1, "slots"),
            "index_items": ("its IndexFiles have", 1, "items"),
        }
        for setting, (files, unit, what) in units.items():
            given = getattr(self.config, setting)
            shown = self.shown.get(setting, given)
            if given != shown:
                raise StoreError(
                    f"{self.path}: {files} {shown * unit:,} {what}, not the {given * unit:,} of the settings "
                    f"({_NAMES[setting]}); leave the setting out, or rebuild the indexes with it first"
                )


class _SizedFile(NamedTuple):
    start: int
    size: int
    path: str


class _QueueFolder(NamedTuple):
    topic: str
    queue_id: str
    files: tuple[_SizedFile, ...]


@dataclass(frozen=True, slots=True)
class _FileKind:
    """Files of one kind that are named by offsets.

    Attributes:
        folder: has <topic>/<queue id>, but of the log
        title: for messages
        setting: field of StoreConfig with their size
        name: a broker's name of it
        unit: bytes that the setting counts
        least: of a file
        entry_bytes: 0 where entries differ in length
        finding: that a file has another size
        decode: the first entry of some bytes
    """

    folder: str
    title: str
    setting: str
    name: str
    unit: int
    least: int
    entry_bytes: int = 0
    finding: Kind = Kind.QUEUE_FILE_SIZE
    decode: Callable[[bytes], ConsumeQueueEntry] = decode_entry

    def bytes_in(self, config: StoreConfig) -> int:
        return int(getattr(config, self.setting)) * self.unit

    def fits(self, size: int) -> bool:
        return size >= self.least and size % self.unit == 0


_LOG = _FileKind(
    COMMIT_LOG_FOLDER,
    "CommitLog files",
    LOG_SETTING,
    "mappedFileSizeCommitLog",
    1,
    BLANK_BYTES,
    finding=Kind.LOG_FILE_SIZE,
)
_QUEUE_KINDS = (
    _FileKind(
        CONSUME_QUEUE.folder, "ConsumeQueue files", "queue_entries", CONSUME_QUEUE.setting,
        CONSUME_QUEUE.entry_bytes, CONSUME_QUEUE.entry_bytes, CONSUME_QUEUE.entry_bytes,
    ),
    _FileKind(
        BATCH_QUEUE.folder, "batch queue files", "batch_queue_file_bytes", BATCH_QUEUE.setting, 1,
        BATCH_QUEUE.entry_bytes, BATCH_QUEUE.entry_bytes, decode=BATCH_QUEUE.decode,
    ),
    _FileKind(
        EXTENSION.folder, "ConsumeQueue extension files", "extension_file_bytes",
        EXTENSION.setting, 1, _LEAST_EXTENSION_BYTES,
    ),
)  # fmt: skip


_NAMES = {kind.setting: kind.name for kind in _QUEUE_KINDS} | {
    "hash_slots": "maxHashSlotNum",
    "index_items": "maxIndexNum",
}


def facts_of(
    store: str | os.PathLike[str], given: StoreConfig | None = None, storage: Storage = LOCAL
) -> StoreFacts:
    """Return the facts of a store: what names, sizes, headers and samples show, never the whole log.

    Args:
        store: Its folder, or a folder of indexes.
        given: The broker's settings; None to take the sizes from the files.
        storage: Where it lies.
    """
    return StoreFacts(os.fspath(store), given, storage)


def _sizes_of(facts: StoreFacts) -> _Sizes:
    path, given, storage, parts = facts.path, facts.given, facts.storage, facts.parts
    found = _Found()
    files = chain.from_iterable(_files_in(one, storage) for one in facts.log_folders)
    queues = {_LOG: [_QueueFolder("", "", tuple(sorted(files)))]}
    for kind in _QUEUE_KINDS:
        queues[kind] = list(_queue_folders(os.path.join(path, kind.folder), storage))
    for kind, folders in queues.items():
        found.add(_size_of(kind, folders, path, storage))
    index = _index_files(os.path.join(path, INDEX_FOLDER), storage)
    found.add(_index_sizes(index, storage))
    config = given
    if config is None:
        config = replace(StoreConfig(), **found.values)  # type: ignore[arg-type]
        topics = {queue.topic for folders in queues.values() for queue in folders}
        if any(t.startswith(LMQ_PREFIX) for t in topics | _topics_in_rocksdb(facts)):
            config = replace(config, enable_lmq=True, enable_multi_dispatch=True)
        if parts.version == "5.x":
            config = replace(config, append_record_crc=_has_record_crc(path, storage))
    config = with_version(config, parts)
    odd = [
        OddFile(file.path, file.size, kind.bytes_in(config), kind.finding)
        for kind, folders in queues.items()
        if kind.setting in found.values and (given is None or kind is not _LOG)
        for queue in folders
        for file in queue.files
        if file.size != kind.bytes_in(config)
    ]
    if "hash_slots" in found.values or (given is not None and index):
        whole = config.index_file_bytes
        odd += [
            OddFile(path, size, whole, Kind.INDEX_FILE_SIZE)
            for path, size in index
            if size != whole
        ]
    in_doubt = {setting for doubt in found.doubts for setting in doubt.settings}
    if given is not None and len(index) == 1 and index[0][1] < given.index_file_bytes:
        in_doubt.update(
            INDEX_SETTINGS
        )  # the only IndexFile was cut short; a broker makes it whole, too
    shown = {setting: value for setting, value in found.values.items() if setting not in in_doubt}
    doubts = tuple(found.doubts) if given is None else ()
    return _Sizes(config, shown, doubts, tuple(odd))


def with_version(config: StoreConfig, parts: StoreParts) -> StoreConfig:
    """The same settings, with the version of the broker where only the store shows it."""
    if config.store_version is None and parts.version == "5.x":
        return replace(config, store_version="5.3")
    return config


class _Sizes(NamedTuple):
    config: StoreConfig
    shown: Mapping[str, int]
    doubts: tuple[Doubt, ...]
    odd_files: tuple[OddFile, ...]


class _Shown(NamedTuple):
    """Settings shown by the files of one kind, by field of StoreConfig, and a doubt about them."""

    values: dict[str, int]
    doubt: Doubt | None = None


@dataclass(slots=True)
class _Found:
    values: dict[str, int] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    def add(self, shown: _Shown) -> None:
        self.values |= shown.values
        if shown.doubt is not None:
            self.doubts.append(shown.doubt)


def _queue_folders(folder: str, storage: Storage) -> Iterator[_QueueFolder]:
    """Sorted, each with its files in order."""
    for queue in walk_queues(folder, storage):
        yield _QueueFolder(queue.topic, queue.name, tuple(_files_in(queue.path, storage)))


def _files_in(folder: str, storage: Storage) -> Iterator[_SizedFile]:
    for start, entry in offset_entries(folder, storage):
        if (size := _bytes_of(entry)) is not None:
            yield _SizedFile(start, size, entry.path)


def _bytes_of(entry: FolderEntry) -> int | None:
    """The size of a file; None for anything else, and for a file that has expired since it was listed."""
    try:
        return entry.stat().st_size if entry.is_file() else None
    except FileNotFoundError:
        return None


def _size_of(
    kind: _FileKind, queues: Sequence[_QueueFolder], store: str, storage: Storage
) -> _Shown:
    """The size of whole files, as the distance of their names and then most sizes show it.

    A file that is shorter than the others was cut, and is no witness. A longer one is, for nothing extends a file. One
    without a byte was created just before a crash.
    """
    files = [file for queue in queues for file in queue.files if file.size]
    if not files:
        return _Shown({})
    sizes = Counter(file.size for file in files)
    usual = max(sizes, key=lambda size: (sizes[size], size))
    pairs = [pair for queue in queues for pair in pairwise(queue.files)]
    distances = Counter(after.start - before.start for before, after in pairs)
    size = max(distances, key=lambda one: (distances[one], -one)) if distances else usual
    if kind is _LOG and len(sizes) == 1 < len(files) and not any(one % usual for one in distances):
        size = usual  # files are missing between others; nothing writes a log in the size that this shows
    values = {kind.setting: size // kind.unit} if kind.fits(size) else {}
    apart = [after.path for before, after in pairs if (after.start - before.start) % size]

    def doubtful(detail: str, which: Sequence[str]) -> _Shown:
        doubt = Doubt(
            (kind.setting,),
            kind.name,
            f"the size of its {kind.title} is uncertain: {detail}",
            tuple(which),
        )
        return _Shown(values, doubt)

    if not values:
        which = [file.path for file in files if file.size == usual]
        return doubtful(f"{size:,} bytes are not the size of such a file", which)
    if 2 * len(apart) >= len(pairs) > 0:
        return doubtful("their names are not at one distance", apart)
    if usual != size:
        which = [file.path for file in files if file.size == usual]
        return doubtful(f"by their names {size:,} bytes, but most have {usual:,}", which)
    if longer := [file.path for file in files if file.size > size]:
        return doubtful(f"most have {size:,} bytes, but not the longest", longer)
    if not distances and 2 * sizes[usual] <= len(files):
        which = [file.path for file in files if file.size != usual]
        return doubtful(f"not even most have {usual:,} bytes, the size of the longest", which)
    if len(files) == 1 and kind.entry_bytes and _was_cut(store, kind, queues, storage):
        detail = "the only one is full, but the log has later messages of its queue"
        return doubtful(detail, [files[0].path])
    return _Shown(values)


def _was_cut(store: str, kind: _FileKind, queues: Sequence[_QueueFolder], storage: Storage) -> bool:
    """Whether the only file of a kind is full, although its queue continues in the log.

    Nothing else shows that such a file is shorter than it was.
    """
    queue = next(queue for queue in queues if queue.files)
    file = next((file for file in queue.files if file.size), None)
    if file is None:  # created by an owner that was killed before it gave the file its size
        return False
    try:
        with closing(storage.open(file.path)) as reader:
            count = file.size // kind.entry_bytes
            last = kind.decode(reader.read((count - 1) * kind.entry_bytes, kind.entry_bytes))
        if not last.is_written:
            return False
        stop = file.start // kind.entry_bytes + count
        if isinstance(last, BatchEntry):
            stop = last.stop
        with closing(CommitLogReader(StoreLog(store, storage))) as log:
            after = LogWalk(log, last.physical_offset + last.size)
            messages = (record.message() for record in islice(after, _RECORDS_AFTER))
            return any(
                message.topic == queue.topic and str(message.queue_id) == queue.queue_id
                and message.queue_offset >= stop
                for message in messages
            )  # fmt: skip
    except ReputError:  # the log is missing or unreadable, and shows nothing
        return False


def _index_files(folder: str, storage: Storage) -> list[tuple[str, int]]:
    """Path and size of the IndexFiles that have a byte, oldest first."""
    names = (entry for entry in storage.list(folder) if is_index_file_name(entry.name))
    return sorted((entry.path, size) for entry in names if (size := _bytes_of(entry)))


def _index_sizes(files: Sequence[tuple[str, int]], storage: Storage) -> _Shown:
    """The numbers of slots and items of most IndexFiles. See `_size_of` for which files are witnesses."""
    if not files:
        return _Shown({})
    try:
        known = GeometryFinder(None, None, storage).find(list(files))
    except (ReputError, OSError):
        known = {}
    sizes = Counter(size for _, size in files)

    def doubtful(detail: str, which: Sequence[str], values: dict[str, int]) -> _Shown:
        names = "maxHashSlotNum and maxIndexNum"
        whole = f"the numbers of slots and items of its IndexFiles are uncertain: {detail}"
        return _Shown(values, Doubt(INDEX_SETTINGS, names, whole, tuple(which)))

    if not known:
        if sizes.keys() == {DEFAULT_GEOMETRY.file_bytes}:
            return _Shown({})
        return doubtful("no file shows them", [path for path, _ in files], {})
    size = max(known, key=lambda one: (sizes[one], one))
    values = dict(zip(INDEX_SETTINGS, known[size], strict=True))
    if longer := [path for path, other in files if other > size]:
        return doubtful(f"most have {size:,} bytes, but not the longest", longer, values)
    if 2 * sizes[size] <= len(files):
        which = [path for path, other in files if other != size]
        return doubtful(
            f"not even most have {size:,} bytes, the size of the longest", which, values
        )
    return _Shown(values)


def _topics_in_rocksdb(facts: StoreFacts) -> set[str]:
    """Topics of the database; empty if there is no readable one."""
    folder = facts.local_database(CONSUME_QUEUE_FOLDER)
    if folder is None:
        return set()
    try:
        with closing(RocksDatabase(folder)) as database:
            return {end.topic for end in database.ends()}
    except ReputError:
        return set()


def _has_record_crc(store: str, storage: Storage) -> bool:
    """Whether the first record of a 5.x log has its own CRC."""
    try:
        with closing(CommitLogReader(StoreLog(store, storage))) as log:
            return stated_record_crc(log.get(log.first_offset).properties_bytes) is not None
    except ReputError:  # the log has no record
        return False
