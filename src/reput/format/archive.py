"""The manifest of an archive, and the hash tree of its log files (docs/engineering/archive.md).

The manifest is one JSON object that names every other object of the archive. A writer replaces it as a whole, and fails
if another writer has replaced it since it was read. A log file is archived as frames of 64 KiB, which are compressed
separately (`reput.format.seekable_zstd`).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONFIG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    offset_file_name,
)
from reput.format.parquet import MOST_FOOTER_BYTES
from reput.format.seekable_zstd import DIGEST_BYTES, FRAME_BYTES, tail_bytes
from reput.format.untrusted_json import check_json

FORM = 1
MOST_SMALL_OBJECT_BYTES = 1 << 28
"""Maximum size of a snapshot, which is read whole."""
KEY_INDEX, QUEUE_INDEX = "keys", "queues"
"""The kinds of indexes, which are also the folders of their objects."""
_MOST_LOG_FILE_BYTES = (1 << 31) - 1
"""Maximum size of a log file. The broker's setting mappedFileSizeCommitLog is a Java int."""
# These types make `decode_manifest` refuse sizes and names that an archiver never writes.
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62) - 1)]
_FileBytes = Annotated[int, msgspec.Meta(ge=0, le=_MOST_LOG_FILE_BYTES)]
_SmallBytes = Annotated[int, msgspec.Meta(ge=0, le=MOST_SMALL_OBJECT_BYTES)]
_FooterBytes = Annotated[int, msgspec.Meta(ge=0, le=MOST_FOOTER_BYTES)]
_Time = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Setting = Annotated[str, msgspec.Meta(max_length=10_000)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Link = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
_LogName = Annotated[str, msgspec.Meta(pattern=r"^log/[0-9]{20}-[0-9a-f]{32}\.zst$")]
_IndexName = Annotated[
    str, msgspec.Meta(pattern=r"^(keys|queues)/[0-9]{20}-[0-9]{20}-[0-9a-f]{32}\.parquet$")
]
_SnapshotName = Annotated[str, msgspec.Meta(pattern=r"^snapshots/[0-9a-f]{64}\.tar$")]
_ErasureName = Annotated[str, msgspec.Meta(pattern=r"^erasures/[0-9a-f]{16}\.json$")]
_OTHER_FOLDERS = (CONFIG_FOLDER, CONSUME_QUEUE_FOLDER, BATCH_QUEUE_FOLDER, INDEX_FOLDER)
# RFC 6962 hashes leaves and inner nodes with different first bytes. Otherwise, somebody could present an inner node as
# a leaf.
_LEAF, _NODE = b"\0", b"\1"


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The earliest and the latest store time of a file's messages, in milliseconds since 1970."""

    least: _Time
    greatest: _Time


class LogFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CommitLog file and its archived object.

    Attributes:
        path: path below the store's folder
        begin: physical offset of its first byte
        size: size of the file
        data_bytes: number of archived bytes; the rest of the file is zeros
        is_sealed: whether a later file exists, so that the broker appends nothing more to this one
        object: name of the object that holds the bytes
        object_bytes: size of the object, including its tail
        sha256: SHA-256 of the archived bytes
        tail_sha256: SHA-256 of the object's tail
        tree: root of the hash tree over the frames' contents
        messages: number of messages that the scan found
        messages_end: physical offset after the last message; the file's end if the file is sealed
        times: store times of the messages; None without messages
        is_indexed: whether the scan could read the whole file, so that the index has all keys of its messages
        has_replaced_ids: whether a record has several UNIQ_KEYs (5.x); the index contains only the last one
    """

    path: str
    begin: _Count
    size: Annotated[int, msgspec.Meta(ge=1, le=_MOST_LOG_FILE_BYTES)]
    data_bytes: _FileBytes
    is_sealed: bool
    object: _LogName
    object_bytes: _Count
    sha256: _Digest
    tail_sha256: _Digest
    tree: _Digest
    messages: _Count
    messages_end: _Count
    times: Times | None
    is_indexed: bool
    has_replaced_ids: bool

    @property
    def end(self) -> int:
        return self.begin + self.size

    @property
    def frames(self) -> int:
        return -(-self.data_bytes // FRAME_BYTES)

    @property
    def tail_start(self) -> int:
        return self.object_bytes - tail_bytes(self.frames)


class IndexObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet file with the keys or the queue entries of consecutive log files.

    Attributes:
        begin, end: physical offsets of these log files
        files: number of these log files
        object: name of the object
        object_bytes: size of the object
        rows: number of rows
        footer_bytes: bytes from the beginning of the footer to the end of the object
        footer_sha256: SHA-256 of these bytes, which contain the digests of all row groups
    """

    begin: _Count
    end: _Count
    files: _Count
    object: _IndexName
    object_bytes: _Count
    rows: _Count
    footer_bytes: _FooterBytes
    footer_sha256: _Digest


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A .tar of the broker's small files, such as its configuration, copied at one time.

    Attributes:
        taken_ms: time of the copy, in milliseconds since 1970
        log_end: physical offset at which the archived log ended at that time
    """

    taken_ms: int
    log_end: _Count
    object: _SnapshotName
    object_bytes: _SmallBytes
    sha256: _Digest


class ErasureObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The archive's object with an erasure record (`reput.format.erasure`).

    Attributes:
        sha256: SHA-256 of the object
        begins: physical offsets at which the changed log files begin
    """

    object: _ErasureName
    object_bytes: _Count
    sha256: _Digest
    begins: tuple[_Count, ...]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of an archive.

    Attributes:
        reput_archive: version of the formats
        id: random id, drawn when the archive was created
        generation: number of this manifest, one more than the number of the previous manifest
        writer: random id, drawn for each manifest so that no two manifests have the same bytes
        version: RocketMQ version of the store: "4.9 or 5.x" or "5.x"
        settings: file sizes and dispatch rules, by field of StoreConfig
        batch_topics: topics that had batch queues (5.x) when a log file was added; queries scan the log for these
            topics
        log: the log files, by physical offset
        keys, queues: the indexes, by physical offset
        snapshots: snapshots, oldest first
        erasures: objects with erasure records, oldest first
        clearings: number of times that an erasure has deleted all objects that the manifest does not list. If this
            number changes during a merge of indexes, the merge is discarded, because the erasure may have deleted the
            merged index
        before: last link of the hash chain (see `chained`) over the entries of all expired log files; empty if no file
            has expired
        chain: last link of the same hash chain, continued over the entries in `log`
        checksum: checksum of all other fields; see `checksum_of`
    """

    reput_archive: int = FORM
    id: str
    generation: _Count
    writer: str
    version: str
    settings: dict[str, int | bool | _Setting]
    batch_topics: tuple[str, ...] = ()
    log: tuple[LogFile, ...] = ()
    keys: tuple[IndexObject, ...] = ()
    queues: tuple[IndexObject, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    erasures: tuple[ErasureObject, ...] = ()
    clearings: _Count = 0
    before: _Link = ""
    chain: str = ""
    checksum: str = ""

    @property
    def end(self) -> int:
        """Return the physical offset at which the archived log ends."""
        return max((file.end for file in self.log), default=0)

    def objects(self) -> dict[str, int]:
        """Return the names and sizes of all objects that the manifest refers to."""
        every: tuple[LogFile | IndexObject | Snapshot | ErasureObject, ...] = (
            *self.log, *self.keys, *self.queues, *self.snapshots, *self.erasures,
        )  # fmt: skip
        return {one.object: one.object_bytes for one in every}


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def checksum_of(manifest: Manifest) -> str:
    """Return the SHA-256 of all fields of a manifest except `checksum`.

    The field `chain` is also a checksum, but covers only the list of log files.
    """
    without = msgspec.structs.replace(manifest, checksum="")
    return hashlib.sha256(msgspec.json.encode(without)).hexdigest()


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest in these bytes.

    Raises:
        ValueError: the bytes are not a manifest, or its fields contradict each other.
    """
    check_json(data)
    try:
        # The version is decoded first, so that a newer format is not reported as damage.
        version = msgspec.json.decode(data, type=_Version).reput_archive
        if version != FORM:
            raise ValueError(f"archive format {version} is not known; update reput")
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"not the manifest of an archive: {error}") from None
    if problem := next(_problems(manifest), None):
        raise ValueError(problem)
    return manifest


class _Version(msgspec.Struct):
    reput_archive: int


def _problems(manifest: Manifest) -> Iterator[str]:
    """Yield the reasons why a decoded manifest is invalid."""
    if checksum_of(manifest) != manifest.checksum:
        yield "the manifest does not match its checksum"
    before = 0
    for file in manifest.log:
        if file.begin < before:
            yield f"{file.path} overlaps the file before it"
        are_ordered = file.begin <= file.messages_end <= file.end and file.data_bytes <= file.size
        if not are_ordered or file.tail_start < 0:
            yield f"{file.path}: its sizes contradict each other"
        if file.times is not None and file.times.least > file.times.greatest:
            yield f"{file.path}: its store times are reversed"
        if not _is_path_of(file):
            yield f"{file.path!r} is not the path of a log file below a store"
        before = file.end
    for parts in (manifest.keys, manifest.queues):
        before = 0
        for part in parts:
            if not before <= part.begin < part.end:
                yield f"{part.object} overlaps the index before it"
            if not part.footer_bytes <= part.object_bytes:
                yield f"{part.object}: its sizes contradict each other"
            if not _is_index_of(part, manifest.log):
                yield f"{part.object}: its range is not that of {part.files:,} log files"
            before = part.end
    names = [file.object for file in manifest.log]
    names += [part.object for part in (*manifest.keys, *manifest.queues)]
    if len(set(names)) < len(names):
        yield "it names an object twice"
    if chained(manifest.log, manifest.before) != manifest.chain:
        yield "its log files differ from its chain"


def _is_index_of(part: IndexObject, log: Sequence[LogFile]) -> bool:
    """Return whether an index covers whole log files, and whether its field `files` is the number of these log files.

    If an index lacks a key, a reader assumes that no message in the index's log files has this key. So an index of one
    file must not claim the range of several files.
    """
    first = bisect_left(log, part.begin, key=lambda file: file.begin)
    stop = bisect_left(log, part.end, key=lambda file: file.begin)
    inside = log[first:stop]
    if not inside or inside[-1].end != part.end:
        return False
    # The oldest index may also have the keys of expired log files.
    if part.begin < log[0].begin:
        return part.files > len(inside)
    return part.begin == inside[0].begin and part.files == len(inside)


def problem_since(before: Manifest, now: Manifest) -> str:
    """Return why the archive's manifest cannot have changed from `before` to `now`, or "" if the change is possible.

    A later manifest may add log files and erasures. Only an erasure changes a sealed file, and only the oldest files
    expire. An archive that was deleted and created again has another id, so it is never compared.
    """
    if before.id != now.id:
        return ""
    if now.generation < before.generation:
        return f"is manifest {now.generation:,}, but {before.generation:,} was read before: an older one replaced it"
    if not set(before.erasures) <= set(now.erasures):
        return "lacks erasures that an earlier manifest had"
    erased = {begin for one in now.erasures for begin in one.begins}
    log = {file.begin: file for file in now.log}
    # `Manifest.before` is the hash of all expired files. If this hash differs between the manifests,
    # some files have expired since the earlier one was written, so the log of `now` begins later.
    begin = now.log[0].begin if now.log and now.before != before.before else 0
    for file in before.log:
        # The file has expired since the earlier manifest was written.
        if file.begin < begin:
            continue
        if file.is_sealed and file.begin not in erased and log.get(file.begin) != file:
            return f"{file.path} differs from the manifest that was read before"
    return ""


def _is_path_of(file: LogFile) -> bool:
    # A hostile path could lead out of the folder into which the archive is restored.
    *folders, name = file.path.split("/")
    is_below = bool(folders) and not {"", ".", ".."}.intersection(folders)
    # A log file must not have the path of a queue's file, or of a file that a restore writes.
    is_below = is_below and folders[0] not in _OTHER_FOLDERS and not folders[0].startswith(".")
    is_printable = len(file.path) < 1000 and file.path.isprintable()
    return is_below and is_printable and name == offset_file_name(file.begin)


def chained(files: Sequence[LogFile], before: str = "") -> str:
    """Return the last link of the hash chain over the manifest's entries of these log files.

    A link is the SHA-256 of the previous link and one file's entry. `before` is the link before the first file.
    """
    link = bytes.fromhex(before)
    for file in files:
        link = linked(link, file)
    return link.hex()


def linked(link: bytes, file: LogFile) -> bytes:
    """Return the hash chain's link for a log file, given the previous link."""
    return hashlib.sha256(link + msgspec.json.encode(file)).digest()


def tree_root(digests: bytes) -> str:
    """Return the root of the hash tree over the contents of frames, given their digests (RFC 6962)."""
    *_, nodes = _tree(digests)
    return (nodes[0] if nodes else hashlib.sha256(b"").digest()).hex()


def _tree(digests: bytes) -> Iterator[list[bytes]]:
    """Yield the nodes of each level, leaves first. A last node without a neighbour moves up to the next level."""
    # A leaf is the hash of a digest, not of the frame itself. So the root can be computed without the frames.
    nodes = [hashlib.sha256(_LEAF + one).digest() for one in _cut(digests)]
    yield nodes
    while len(nodes) > 1:
        pairs = [
            hashlib.sha256(_NODE + b"".join(nodes[at : at + 2])).digest()
            for at in range(0, len(nodes) - 1, 2)
        ]
        nodes = [*pairs, *nodes[2 * len(pairs) :]]
        yield nodes


def tree_path(digests: bytes, number: int) -> tuple[str, ...]:
    """Return the sibling nodes on the path from a leaf to the root, in hexadecimal digits (RFC 6962, audit path)."""
    path = []
    for nodes in _tree(digests):
        # A last node without a sibling moves up unchanged, and adds nothing to the path.
        if number ^ 1 < len(nodes):
            path.append(nodes[number ^ 1].hex())
        number //= 2
    return tuple(path)


def root_above(digest: bytes, number: int, leaves: int, path: Sequence[str]) -> str:
    """Return the root that results from a leaf's digest and `path`, the sibling nodes between leaf and root.

    Return an empty text if the path has the wrong length.
    """
    node, beside = hashlib.sha256(_LEAF + digest).digest(), list(path)
    while leaves > 1:
        if number ^ 1 < leaves:
            if not beside:
                return ""
            other = bytes.fromhex(beside.pop(0))
            # An odd number is a right child, so its sibling comes first.
            node = hashlib.sha256(_NODE + (other + node if number & 1 else node + other)).digest()
        number, leaves = number // 2, -(-leaves // 2)
    return "" if beside else node.hex()


def _cut(digests: bytes) -> list[bytes]:
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
