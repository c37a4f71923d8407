"""Derive the sizes of a store's files.

A broker gives all files of one kind the same size, and names each file by the offset of its first byte. Three sources
therefore show the size, in this order:

1. the broker's configuration, if it is given
2. the distance between neighbouring names
3. the length of most files

If they disagree, readers use the first source and report the doubt; writers refuse.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from reput.base import INDEX_SETTINGS, LOG_SETTING, Finding, Kind, StoreConfig
from reput.core import (
    BATCH_QUEUE,
    CONSUME_QUEUE,
    EXTENSION,
    CommitLogReader,
    GeometryFinder,
    IndexFileSetReader,
    IndexGeometry,
    LogWalk,
    QueuesOf,
    StoreLog,
    offset_entries,
    walk_queues,
    with_version,
)
from reput.engine.writer.tag_items import index_tags_from
from reput.errors import ReputError, raise_if_refused
from reput.format.commit_log import BLANK_BYTES, stated_record_crc
from reput.format.consume_queue import BatchEntry, ConsumeQueueEntry, decode_entry
from reput.format.file_names import COMMIT_LOG_FOLDER, INDEX_FOLDER, is_index_file_name
from reput.format.properties import LMQ_PREFIX
from reput.io import Storage, listed_size

if TYPE_CHECKING:
    from reput.engine.writer.survey import StoreSurvey

_MOST_NAMED = 3
_LEAST_EXTENSION_BYTES = 64
# If the only file of a queue is full, search the log for messages of the queue after the file's last one. Stop after
# this many records.
_RECORDS_AFTER = 1 << 14


@dataclass(frozen=True, slots=True)
class Doubt:
    """A size that is uncertain, because the files of a store contradict each other.

    Attributes:
        settings: The affected fields of StoreConfig.
        names: The broker's names of these settings.
        detail: The contradiction, in words.
        files: The files that disagree with the others.
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
    """A file whose size differs from the expected size of files of its kind.

    The expected size (`whole`) comes from the settings, or is derived from all files of the kind.
    """

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


class _SizedFile(NamedTuple):
    start: int
    size: int
    path: str


class _QueueFolder(NamedTuple):
    topic: str
    queue_id: str
    files: tuple[_SizedFile, ...]


@dataclass(frozen=True, slots=True)
class FileSize:
    """A kind of files that are named by their offsets.

    Attributes:
        folder: The folder of the files. Except in the log's folder, they lie in <topic>/<queue id>/.
        title: The name of the kind in error messages and findings.
        setting: The field of StoreConfig with the size of a file.
        name: The broker's name of this setting.
        unit: Bytes per unit of the setting.
        least: The smallest possible size of a file.
        entry_bytes: The size of an entry; 0 if entries differ in length.
        finding: The kind of finding for a file of another size.
        decode: Returns the first entry in a buffer.
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


_LOG = FileSize(
    COMMIT_LOG_FOLDER,
    "CommitLog files",
    LOG_SETTING,
    "mappedFileSizeCommitLog",
    1,
    BLANK_BYTES,
    finding=Kind.LOG_FILE_SIZE,
)
QUEUE_SIZES = (
    FileSize(
        CONSUME_QUEUE.folder, "ConsumeQueue files", "queue_entries", CONSUME_QUEUE.setting,
        CONSUME_QUEUE.entry_bytes, CONSUME_QUEUE.entry_bytes, CONSUME_QUEUE.entry_bytes,
    ),
    FileSize(
        BATCH_QUEUE.folder, "batch queue files", "batch_queue_file_bytes", BATCH_QUEUE.setting, 1,
        BATCH_QUEUE.entry_bytes, BATCH_QUEUE.entry_bytes, decode=BATCH_QUEUE.decode,
    ),
    FileSize(
        EXTENSION.folder, "ConsumeQueue extension files", "extension_file_bytes",
        EXTENSION.setting, 1, _LEAST_EXTENSION_BYTES,
    ),
)  # fmt: skip


BROKER_NAMES = {kind.setting: kind.name for kind in QUEUE_SIZES} | {
    "hash_slots": "maxHashSlotNum",
    "index_items": "maxIndexNum",
}


def sizes_of(facts: StoreSurvey) -> FileSizes:
    path, given, storage, parts = facts.path, facts.given, facts.storage, facts.parts
    survey = _SizeSurvey()
    files = chain.from_iterable(_files_in(folder, storage) for folder in facts.log_folders)
    queues = {_LOG: [_QueueFolder("", "", tuple(sorted(files)))]}
    for kind in QUEUE_SIZES:
        queues[kind] = list(_queue_folders(os.path.join(path, kind.folder), storage))
    for kind, folders in queues.items():
        survey.add(_size_of(kind, folders, path, storage))
    index = _index_files(os.path.join(path, INDEX_FOLDER), storage)
    survey.add(_index_sizes(index, storage))
    config = given
    if config is None:
        config = replace(StoreConfig(), **survey.values)  # type: ignore[arg-type]
        topics = {queue.topic for folders in queues.values() for queue in folders}
        # A light queue shows that the broker has enableLmq and enableMultiDispatch.
        if any(topic.startswith(LMQ_PREFIX) for topic in topics.union(_topics_of_form(facts))):
            config = replace(config, enable_lmq=True, enable_multi_dispatch=True)
        if parts.version == "5.x":
            config = replace(config, append_record_crc=_has_record_crc(path, storage))
    config = with_version(config, parts)
    if config.index_tags_from is None:
        config = _with_tags(config, given, _tags_from(path, storage, config))
    odd = [
        OddFile(file.path, file.size, kind.bytes_in(config), kind.finding)
        for kind, folders in queues.items()
        if kind.setting in survey.values and (given is None or kind is not _LOG)
        for queue in folders
        for file in queue.files
        if file.size != kind.bytes_in(config)
    ]
    if "hash_slots" in survey.values or (given is not None and index):
        whole = config.index_file_bytes
        odd += [
            OddFile(path, size, whole, Kind.INDEX_FILE_SIZE)
            for path, size in index
            if size != whole
        ]
    in_doubt = {setting for doubt in survey.doubts for setting in doubt.settings}
    if given is not None and len(index) == 1 and index[0][1] < given.index_file_bytes:
        # If a store has only one IndexFile, and it is too short, a broker extends it. So its size does not contradict
        # the settings.
        in_doubt.update(INDEX_SETTINGS)
    certain = {
        setting: value for setting, value in survey.values.items() if setting not in in_doubt
    }
    doubts = tuple(survey.doubts) if given is None else ()
    return FileSizes(config, certain, doubts, tuple(odd))


def _tags_from(store: str, storage: Storage, config: StoreConfig) -> int | None:
    """Return the physical offset from which messages have index items for tags; None if no message has one."""
    is_since_5_4 = config.is_since_5_4
    try:
        folder = os.path.join(store, INDEX_FOLDER)
        index = IndexFileSetReader(folder, config.hash_slots, config.index_items, storage)
        with closing(index), closing(CommitLogReader(StoreLog(store, storage))) as log:
            return index_tags_from(index, log, is_since_5_4=is_since_5_4)
    except (ReputError, OSError) as error:
        raise_if_refused(error)
        return 0 if is_since_5_4 else None


def _with_tags(
    config: StoreConfig, given: StoreConfig | None, tags_from: int | None
) -> StoreConfig:
    """Return the settings with the place of the first tags in IndexFiles, and the version that tags show."""
    config = replace(config, index_tags_from=tags_from)
    is_derived = given is None or given.store_version is None
    if tags_from is None or config.is_since_5_4 or not is_derived:
        return config
    return replace(config, store_version="5.4")


class FileSizes(NamedTuple):
    config: StoreConfig
    shown: Mapping[str, int]
    doubts: tuple[Doubt, ...]
    odd_files: tuple[OddFile, ...]


class _SizeEvidence(NamedTuple):
    """The settings that were derived from the files of one kind, by field of StoreConfig.

    doubt  why these settings are uncertain; None if they are not
    """

    values: dict[str, int]
    doubt: Doubt | None = None


@dataclass(slots=True)
class _SizeSurvey:
    values: dict[str, int] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    def add(self, size: _SizeEvidence) -> None:
        self.values |= size.values
        if size.doubt is not None:
            self.doubts.append(size.doubt)


def _queue_folders(folder: str, storage: Storage) -> Iterator[_QueueFolder]:
    """Yield the folders of queues, sorted by path, each with its files, oldest first."""
    for queue in walk_queues(folder, storage):
        yield _QueueFolder(queue.topic, queue.name, tuple(_files_in(queue.path, storage)))


def _files_in(folder: str, storage: Storage) -> Iterator[_SizedFile]:
    for start, entry in offset_entries(folder, storage):
        if (size := listed_size(entry)) is not None:
            yield _SizedFile(start, size, entry.path)


def _size_of(
    kind: FileSize, queues: Sequence[_QueueFolder], store: str, storage: Storage
) -> _SizeEvidence:
    """Derive the size of complete files from the distances between their names, else take the most frequent size.

    A file that is shorter than this size was truncated, and is ignored. So is an empty file, which was created just
    before a crash. A longer file makes the size doubtful, because nothing extends files.
    """
    files = [file for queue in queues for file in queue.files if file.size]
    if not files:
        return _SizeEvidence({})
    sizes = Counter(file.size for file in files)
    # Of equally frequent sizes, take the longest: files become shorter by truncation, but never longer.
    usual = max(sizes, key=lambda size: (sizes[size], size))
    pairs = [pair for queue in queues for pair in pairwise(queue.files)]
    distances = Counter(after.start - before.start for before, after in pairs)
    # The size of a file is the most frequent distance between the offsets in two successive names. Of equally frequent
    # distances, take the shortest: a missing file makes a distance longer.
    size = (
        max(distances, key=lambda distance: (distances[distance], -distance))
        if distances
        else usual
    )
    if (
        kind is _LOG
        and len(sizes) == 1 < len(files)
        and not any(distance % usual for distance in distances)
    ):
        # All files have the same size, and the distances between their names are multiples of it. So this size is
        # right, and a larger distance only shows that files are missing.
        size = usual
    values = {kind.setting: size // kind.unit} if kind.fits(size) else {}
    apart = [after.path for before, after in pairs if (after.start - before.start) % size]

    def doubtful(detail: str, which: Sequence[str]) -> _SizeEvidence:
        doubt = Doubt(
            (kind.setting,),
            kind.name,
            f"the size of its {kind.title} is uncertain: {detail}",
            tuple(which),
        )
        return _SizeEvidence(values, doubt)

    if not values:
        which = [file.path for file in files if file.size == usual]
        return doubtful(f"{size:,} bytes are not the size of such a file", which)
    if 2 * len(apart) >= len(pairs) > 0:
        return doubtful("the distances between their names differ", apart)
    if usual != size:
        which = [file.path for file in files if file.size == usual]
        return doubtful(f"their names imply {size:,} bytes, but most have {usual:,}", which)
    if longer := [file.path for file in files if file.size > size]:
        return doubtful(f"most have {size:,} bytes, but one is longer", longer)
    if not distances and 2 * sizes[usual] <= len(files):
        which = [file.path for file in files if file.size != usual]
        return doubtful(f"only a minority has {usual:,} bytes, the size of the longest", which)
    if len(files) == 1 and kind.entry_bytes and _was_cut(store, kind, queues, storage):
        detail = "the only file is full, but the log has later messages of its queue"
        return doubtful(detail, [files[0].path])
    return _SizeEvidence(values)


def _was_cut(store: str, kind: FileSize, queues: Sequence[_QueueFolder], storage: Storage) -> bool:
    """Return whether a queue's only file was truncated: the log has messages of the queue after the file's last entry.

    Call this function only if all `queues` together have one nonempty file. The size of a full file is derived from the
    existing files, so a single file looks full even if it was truncated. Only the log can show that the file had more
    entries.
    """
    queue, file = next((queue, file) for queue in queues for file in queue.files if file.size)
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
            after = LogWalk(log, last.physical_offset + last.size, in_place=False)
            messages = (record.message() for record in islice(after, _RECORDS_AFTER))
            return any(
                message.topic == queue.topic and str(message.queue_id) == queue.queue_id
                and message.queue_offset >= stop
                for message in messages
            )  # fmt: skip
    except ReputError:  # Without a readable log, nothing shows that the queue had more entries.
        return False


def _index_files(folder: str, storage: Storage) -> list[tuple[str, int]]:
    """Return the paths and sizes of the IndexFiles that are not empty, oldest first."""
    names = (entry for entry in storage.list(folder) if is_index_file_name(entry.name))
    return sorted((entry.path, size) for entry in names if (size := listed_size(entry)))


def _index_sizes(files: Sequence[tuple[str, int]], storage: Storage) -> _SizeEvidence:
    """Derive the numbers of slots and items from the IndexFiles with the most frequent size.

    `_size_of` explains which files count.
    """
    if not files:
        return _SizeEvidence({})
    try:
        geometries = GeometryFinder(None, None, storage).find(list(files))
    except (ReputError, OSError) as error:
        raise_if_refused(error)
        geometries = {}
    sizes = Counter(size for _, size in files)

    def doubtful(detail: str, which: Sequence[str], values: dict[str, int]) -> _SizeEvidence:
        names = "maxHashSlotNum and maxIndexNum"
        whole = f"the numbers of slots and items of its IndexFiles are uncertain: {detail}"
        return _SizeEvidence(values, Doubt(INDEX_SETTINGS, names, whole, tuple(which)))

    if not geometries:
        # All files have the size of a broker's default settings, so these settings apply.
        if sizes.keys() == {IndexGeometry.default().file_bytes}:
            return _SizeEvidence({})
        return doubtful("no file shows them", [path for path, _ in files], {})
    size = max(geometries, key=lambda geometry: (sizes[geometry], geometry))
    values = dict(zip(INDEX_SETTINGS, geometries[size], strict=True))
    if longer := [path for path, length in files if length > size]:
        return doubtful(f"most have {size:,} bytes, but one is longer", longer, values)
    if 2 * sizes[size] <= len(files):
        which = [path for path, length in files if length != size]
        return doubtful(
            f"only a minority has {size:,} bytes, the size of the longest", which, values
        )
    return _SizeEvidence(values)


def _topics_of_form(facts: StoreSurvey) -> Collection[str]:
    """Return the topics of queues in another form than files, such as RocksDB; none if they cannot be read."""
    if (form := facts.queue_form) is None:
        return ()
    try:
        return form.topics(QueuesOf.of(facts.path, facts.storage))
    except ReputError:
        return ()


def _has_record_crc(store: str, storage: Storage) -> bool:
    """Return whether the first record of a 5.x log has a CRC of the whole record."""
    try:
        with closing(CommitLogReader(StoreLog(store, storage))) as log:
            return stated_record_crc(log.get(log.first_offset).properties_bytes) is not None
    except ReputError:  # The log has no readable record.
        return False
