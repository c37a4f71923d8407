"""Read archives: the manifest, ranges of log files, and row groups of indexes. Every byte is verified.

An object never changes once the manifest names it, so cached reads remain valid. The tails of log objects and the
footers of indexes are cached in the user's cache folder. The names of the cached files are SHA-256 digests of their
content.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import tarfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reput.base import StoreConfig, usable_cpus
from reput.errors import (
    CorruptMessageError,
    FormatError,
    StoreChangedError,
    StoreError,
    StoreNotFoundError,
    UsageError,
)
from reput.format import archive, archive_index
from reput.format.archive_index import MOST_TOPIC_BYTES
from reput.format.file_names import ARCHIVE_MANIFEST, CONFIG_FOLDER, is_folder_name
from reput.format.parquet import TAIL_BYTES, check_footer, pages_of
from reput.format.seekable_zstd import FRAME_BYTES, Frames, decode_tail, tail_bytes
from reput.io.bucket import Bucket
from reput.io.object_folder import ObjectFolder
from reput.io.object_store import ObjectStore
from reput.io.places import LOCAL_ARCHIVE, is_url, not_an_archive
from reput.io.user_cache import OwnCache

# Limits on sizes that the archive's own metadata states: damaged or hostile metadata must not exhaust memory.
_MOST_GROUP_BYTES = 64 << 20
_KEPT_BYTES = 128 << 20
_MOST_CACHED_BYTES = 64 << 20
_CACHE_BYTES = 1 << 30
"""Maximum size of the cache on disk. The oldest files are deleted first."""
_READ_AT_ONCE_BYTES = 8 << 20
_THREADS = 16
_FRAMES_IN_THREADS = 32
"""Minimum number of frames that are decompressed and hashed in threads. For fewer frames, threads cost more time."""
_FRAMES_PER_TASK = 16
_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


class _Recent(OrderedDict[Any, Any]):
    """A cache with a limit on its total bytes. Above the limit, it evicts the least recently used items."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most, self._bytes = most_bytes, 0

    def take(self, key: Any, item: Any, size: int) -> None:
        if key in self:
            return
        self[key] = item, size
        self._bytes += size
        # Keep the newest item, even if it alone exceeds the limit.
        while self._bytes > self._most and len(self) > 1:
            _, (_, gone) = self.popitem(last=False)
            self._bytes -= gone

    def get_recent(self, key: Any) -> Any:
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key][0]


class ParquetIndex:
    """One index of an archive. Its footer is verified when it is opened, and each row group when it is read."""

    def __init__(self, part: archive.IndexObject, footer: bytes, path: str) -> None:
        """Parse the footer. Raises FormatError for a footer that the archiver cannot have written."""
        self.part, self.path = part, path
        try:
            check_footer(footer[:-TAIL_BYTES], part.object_bytes)
            self.metadata = pq.read_metadata(
                pa.PythonFile(
                    _FilePiece(part.object_bytes, part.object_bytes - len(footer), footer)
                )
            )
            pairs = self.metadata.metadata or {}
            self.digests = archive_index.digests_of(
                pairs[archive_index.DIGESTS], self.metadata.num_row_groups
            )
            self.queues = archive_index.queues_of(pairs.get(archive_index.QUEUES), part.rows)
            self._is_of_queues = archive_index.QUEUES in pairs
            self.ranges = [self._range(group) for group in range(self.metadata.num_row_groups)]
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            raise FormatError(path, 0, f"not an index of an archive: {error}") from None
        counts = [self.metadata.row_group(n).num_rows for n in range(len(self.ranges))]
        self.row_starts = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(np.array(counts, np.int64))]
        )
        is_complete = len(self.digests) == len(self.ranges) and self.row_starts[-1] == part.rows
        if not is_complete or max(counts, default=0) > archive_index.GROUP_ROWS:
            raise FormatError(path, 0, "the fields of the index's footer contradict each other")

    def _range(self, number: int) -> tuple[int, int]:
        """Return where the bytes of a row group begin and end in the object. Raises ValueError."""
        group = self.metadata.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        starts = [_column_start(column) for column in columns]
        stops = [
            start + column.total_compressed_size
            for start, column in zip(starts, columns, strict=True)
        ]
        if not 0 <= min(starts) <= max(stops) <= self.part.object_bytes:
            raise ValueError(f"row group {number} lies outside the object")
        unpacked = sum(column.total_uncompressed_size for column in columns)
        if max(max(stops) - min(starts), unpacked) > _MOST_GROUP_BYTES:
            raise ValueError(f"row group {number} is longer than the archiver writes")
        return min(starts), max(stops)

    def table(self, number: int, data: bytes) -> pa.Table:
        """Return a row group from its bytes, which the caller has verified. Raises FormatError."""
        start = self.ranges[number][0]
        self._check_pages(number, data)
        source = pa.PythonFile(_FilePiece(self.part.object_bytes, start, data))
        schema = archive_index.QUEUE_SCHEMA if self._is_of_queues else archive_index.KEY_SCHEMA
        try:
            texts = ["topic"] if self._is_of_queues else None
            file = pq.ParquetFile(source, metadata=self.metadata, read_dictionary=texts)
            rows = file.read_row_group(number)
            # Topics are read as a dictionary, which has each topic once. The cast below repeats the topic in each row.
            # A long topic could then take gigabytes, so check the lengths first.
            if self._is_of_queues:
                topics = rows.column("topic").combine_chunks().dictionary
                if (pc.max(pc.binary_length(topics)).as_py() or 0) > MOST_TOPIC_BYTES:
                    raise LookupError(f"a topic has more than {MOST_TOPIC_BYTES:,} bytes")
            rows = rows.cast(schema)
        except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError) as error:
            raise FormatError(self.path, start, f"cannot be decoded: {error}") from None
        if any(column.null_count for column in rows.columns):
            raise FormatError(self.path, start, "has nulls")
        return rows

    def _check_pages(self, number: int, data: bytes) -> None:
        """Raise FormatError if pages of a row group are longer than the file's footer states."""
        start, group = self.ranges[number][0], self.metadata.row_group(number)
        view = memoryview(data)
        for place in range(group.num_columns):
            column = group.column(place)
            begin = _column_start(column) - start
            chunk = view[begin : begin + column.total_compressed_size]
            try:
                pages = pages_of(partial(_cut, chunk), len(chunk))
                unpacked = sum(page.unpacked_bytes for page in pages)
                is_right = unpacked <= column.total_uncompressed_size
            except ValueError as error:
                raise FormatError(self.path, start + begin, str(error)) from None
            if not is_right:
                reason = "has longer pages than its footer states"
                raise FormatError(self.path, start + begin, reason)

    @cached_property
    def least_hashes(self) -> npt.NDArray[np.int64]:
        """Return the least key hash of each row group, then a value above all hashes: int64[groups + 1]."""
        return self._bounds("min", 1 << 31)

    @cached_property
    def greatest_hashes(self) -> npt.NDArray[np.int64]:
        """Return the greatest key hash of each row group, then a value above all hashes: int64[groups + 1]."""
        return self._bounds("max", 1 << 31)

    def _bounds(self, which: str, last: int) -> npt.NDArray[np.int64]:
        hashes = []
        for group in range(len(self.ranges)):
            bound = getattr(self.metadata.row_group(group).column(0).statistics, which, None)
            if not isinstance(bound, int):
                raise FormatError(self.path, 0, f"row group {group} has no statistics of its keys")
            hashes.append(bound)
        return np.array([*hashes, last], np.int64)


def _cut(data: memoryview, position: int, length: int) -> memoryview:
    return data[position : position + length]


def _column_start(column: Any) -> int:
    """Return the position of a column's first page in the object."""
    start: int = (
        column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    )
    return start


class _FilePiece:
    """A file of which only one range is loaded, as a file object for pyarrow."""

    def __init__(self, size: int, start: int, data: bytes) -> None:
        self._size, self._start, self._data, self._at = size, start, data, 0
        self.closed = False

    def seek(self, position: int, whence: int = 0) -> int:
        self._at = position + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, length: int = -1) -> bytes:
        stop = self._size if length < 0 else min(self._at + length, self._size)
        begin, self._at = self._at, stop
        if begin < self._start and stop == self._size:
            # pyarrow reads the last 64 KiB to find the footer. It does not use the bytes before the footer, so they are
            # not loaded, and zeros are returned instead.
            return bytes(self._start - begin) + self._data
        if self._start <= begin and stop <= self._start + len(self._data):
            return self._data[begin - self._start : stop - self._start]
        raise OSError(f"bytes {begin} to {stop} are not loaded")

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Archive:
    """An open archive. It does not show later changes, and may be used from several threads.

    Attributes:
        place: path or URL of the archive
        objects: the object store that holds it
        manifest: the manifest, which names all objects
    """

    def __init__(
        self, place: str, options: Mapping[str, str] | None = None, *, is_cached: bool = True
    ) -> None:
        """Open an archive. With `is_cached`, earlier reads from a bucket are reused from the user's cache.

        Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError.
        """
        self.place, self.options = place, dict(options or {})
        self._is_cached = is_cached and is_url(place)
        self.objects = objects_at(place, self.options)
        try:
            self.manifest = self._read_manifest()
        except StoreNotFoundError:
            raise not_an_archive(place) from None
        self._decoded = _Recent(_KEPT_BYTES)
        self._directories = _Recent(_KEPT_BYTES)

    @classmethod
    def manifest_in(cls, objects: ObjectStore) -> archive.Manifest:
        """Return the manifest of an archive. Raises StoreNotFoundError, StoreAccessError, FormatError."""
        return cls.manifest_of(objects, objects.get(ARCHIVE_MANIFEST).data)

    @staticmethod
    def manifest_of(objects: ObjectStore, data: bytes) -> archive.Manifest:
        """Parse a manifest, and check the broker's settings in it. Raises FormatError."""
        try:
            manifest = archive.decode_manifest(data)
            _config_of(manifest)
        except ValueError as error:
            path = posixpath.join(objects.place, ARCHIVE_MANIFEST)
            raise FormatError(path, 0, str(error)) from None
        return manifest

    def _read_manifest(self) -> archive.Manifest:
        """Return the manifest. For a bucket, the cached manifest is used if the bucket still has the same version."""
        if not self._is_cached:
            return self.manifest_in(self.objects)
        name = kept_manifest(self.place, self.options)
        cached = self._cache.read(name, _MOST_CACHED_BYTES)
        version, _, data = (cached or b"").partition(b"\n")
        before = None
        if version:
            with suppress(FormatError):
                before = self.manifest_of(self.objects, data)
            if before and self.objects.has_version(ARCHIVE_MANIFEST, version.decode()):
                return before
        stored_manifest = self.objects.get(ARCHIVE_MANIFEST)
        manifest = self.manifest_of(self.objects, stored_manifest.data)
        # No archiver writes a manifest that contradicts the previous one. So somebody has put an older manifest back,
        # or has replaced objects.
        if before and (problem := archive.problem_since(before, manifest)):
            kept_in = self._cache.folder / name
            raise FormatError(
                self.path(ARCHIVE_MANIFEST), 0, f"{problem}; if that is intended, delete {kept_in}"
            )
        # Reading must succeed even if the cache cannot be written.
        with suppress(StoreError):
            self._cache.write(
                name, stored_manifest.version.encode() + b"\n" + stored_manifest.data, _CACHE_BYTES
            )
        return manifest

    @cached_property
    def _cache(self) -> OwnCache:
        return OwnCache("archives")

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, "archive")

    @cached_property
    def config(self) -> StoreConfig:
        return _config_of(self.manifest)

    def path(self, name: str) -> str:
        """Return an object's path, for use in error messages."""
        return posixpath.join(self.place, name)

    def each(self, function: Callable[[_Key], _Item], items: Sequence[_Key]) -> list[_Item]:
        """Return a function's results for these items. If the archive is at a URL, several calls run at once."""
        # Only requests over a network wait long enough for threads to pay off.
        if len(items) < 2 or not is_url(self.place):
            return list(map(function, items))
        return list(self._threads.map(function, items))

    def read(self, file: archive.LogFile, position: int, length: int) -> bytes:
        """Return bytes of a log file; bytes after the archived ones are zeros.

        Raises:
            CorruptMessageError: the bytes differ from the archived ones.
            StoreNotFoundError, StoreAccessError, StoreChangedError: the object cannot be read.
        """
        parts, end, missing = [], min(position + length, file.data_bytes), length
        while position < end:
            # Each piece ends where a frame ends, so that no frame is decompressed twice.
            stop = min(position // FRAME_BYTES * FRAME_BYTES + _READ_AT_ONCE_BYTES, end)
            parts.append(self._read(file, position, stop))
            position, missing = stop, missing - (stop - position)
        return parts[0] if len(parts) == 1 and not missing else b"".join([*parts, bytes(missing)])

    def _read(self, file: archive.LogFile, position: int, stop: int) -> bytes:
        first, last = position // FRAME_BYTES, -(-stop // FRAME_BYTES)
        frames = [self._decoded.get_recent((file.object, frame)) for frame in range(first, last)]
        if any(one is None for one in frames):
            frames = self.frames(file, first, last)
            # Cache only short reads. A longer read is a scan: its frames are not read again, and would evict others.
            if last - first <= 16:
                for frame, data in enumerate(frames, first):
                    self._decoded.take((file.object, frame), data, len(data))
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        return data[position - first * FRAME_BYTES : stop - first * FRAME_BYTES]

    def frames(self, file: archive.LogFile, first: int, last: int) -> list[bytes]:
        """Return the content of the frames [first, last), with one request. Raises the errors of `read`."""
        try:
            frames = self.directory(file)
            starts = frames.starts[first : last + 1].tolist()
            block = memoryview(self._range(file.object, starts[0], starts[-1] - starts[0]))
        # The error must name the physical offset, so that a query can report which part of the log its answer lacks.
        except FormatError as error:
            at = file.begin + first * FRAME_BYTES
            raise CorruptMessageError(error.path, error.offset, error.reason, at) from None

        def content(number: int) -> bytes:
            start, stop = starts[number - first : number - first + 2]
            data = block[start - starts[0] : stop - starts[0]]
            return self._content(file, frames, number, data)

        if last - first < _FRAMES_IN_THREADS:
            return list(map(content, range(first, last)))
        # The pool lasts for this call only: threads do not survive a fork, and the process may fork between two reads.
        # Starting a task takes time, so each task has several frames.
        pieces = [
            range(at, min(at + _FRAMES_PER_TASK, last))
            for at in range(first, last, _FRAMES_PER_TASK)
        ]
        with ThreadPoolExecutor(usable_cpus()) as pool:
            parts = pool.map(lambda piece: [content(number) for number in piece], pieces)
            return list(chain.from_iterable(parts))

    def _content(
        self, file: archive.LogFile, frames: Frames, number: int, block: memoryview
    ) -> bytes:
        """Decompress one frame. Raises CorruptMessageError."""
        try:
            data: bytes = pa.Codec("zstd").decompress(
                block, frames.content_bytes(number), asbytes=True
            )
        # Content that cannot be decompressed cannot match its digest either. So the error below reports both cases.
        except (OSError, pa.ArrowException):
            data = b""
        if hashlib.sha256(data).digest() != frames.digest(number):
            at = file.begin + number * FRAME_BYTES
            reason = f"{FRAME_BYTES:,} bytes do not have their checksum"
            raise CorruptMessageError(
                self.path(file.object), int(frames.starts[number]), reason, at
            )
        return data

    def directory(self, file: archive.LogFile) -> Frames:
        """Return positions and digests of the frames of a log file. Raises FormatError, and the errors of `index`."""
        frames: Frames | FormatError | None = self._directories.get_recent(file.object)
        if frames is None:
            length = tail_bytes(file.frames)
            try:
                tail = self._verified(file.object, file.tail_start, length, file.tail_sha256)
                frames = decode_tail(tail, file.data_bytes, file.tail_start)
            except FormatError as error:
                frames = error
            except ValueError as error:
                frames = FormatError(self.path(file.object), file.tail_start, str(error))
            # Errors are cached as well. Otherwise a scan would request the damaged tail again for every frame.
            self._directories.take(file.object, frames, length)
        if isinstance(frames, FormatError):
            # Raise a copy: the traceback of the cached error itself would grow each time that it is raised.
            raise FormatError(frames.path, frames.offset, frames.reason)
        return frames

    def index(self, part: archive.IndexObject) -> ParquetIndex:
        """Return an index. Only its footer is read. Raises FormatError, StoreNotFoundError, StoreAccessError."""
        index: ParquetIndex | None = self._directories.get_recent(part.object)
        if index is None:
            start = part.object_bytes - part.footer_bytes
            footer = self._verified(part.object, start, part.footer_bytes, part.footer_sha256)
            index = ParquetIndex(part, footer, self.path(part.object))
            # Count the memory of the parsed metadata as four times the size of the footer.
            self._directories.take(part.object, index, 4 * len(footer))
        return index

    def group(self, index: ParquetIndex, number: int, *, is_kept: bool = True) -> pa.Table:
        """Return a row group of an index. Raises the errors of the method `index`.

        Args:
            index: an index of this archive
            number: number of the row group
            is_kept: whether to cache it on disk for later processes; pass False if all row groups are read
        """
        key = index.part.object, number
        rows: pa.Table | None = self._decoded.get_recent(key)
        if rows is None:
            start, stop = index.ranges[number]
            digest = index.digests[number]
            data = self._verified(index.part.object, start, stop - start, digest, is_kept=is_kept)
            rows = index.table(number, data)
            self._decoded.take(key, rows, rows.nbytes)
        return rows

    def _range(self, name: str, start: int, length: int) -> bytes:
        """Read a range of an object that the manifest names.

        Raises FormatError if the object is missing or shorter. A StoreNotFoundError would mean that messages have
        expired, and readers of a log skip expired messages silently.
        """
        try:
            try:
                return self.objects.get_range(name, start, length)
            except StoreChangedError:
                size = self.objects.head(name).size
                # The object is complete. Only the answer to this request was too short.
                if size >= start + length:
                    raise
                reason = f"was cut: it has {size:,} bytes, and {start + length:,} are needed"
                raise FormatError(self.path(name), start, reason) from None
        except StoreNotFoundError:
            reason = "is missing: it was deleted, or replaced since this archive was opened"
            raise FormatError(self.path(name), start, reason) from None

    def snapshot(self, snapshot: archive.Snapshot) -> dict[str, bytes]:
        """Return the content of a snapshot's files, by path: only files of the broker's configuration.

        Raises as `index` does.
        """
        data = self._verified(snapshot.object, 0, snapshot.object_bytes, snapshot.sha256)
        path = self.path(snapshot.object)
        files: dict[str, bytes] = {}
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
                for member in tar:
                    folder, _, name = member.name.partition("/")
                    is_right = folder == CONFIG_FOLDER and is_folder_name(name)
                    if not is_right or not member.isreg() or member.issparse():
                        raise FormatError(
                            path, member.offset, f"unexpected entry {member.name!r} in a snapshot"
                        )
                    at = member.offset_data
                    files[member.name] = data[at : at + member.size]
                    if len(files[member.name]) != member.size:
                        raise FormatError(path, at, f"ends within {member.name!r}")
        except FormatError:
            raise
        except (tarfile.TarError, OSError, ValueError) as error:
            raise FormatError(path, 0, f"not a snapshot: {error}") from None
        return files

    def _verified(
        self, name: str, start: int, length: int, digest: str, *, is_kept: bool = True
    ) -> bytes:
        """Return a range of an object, from the cache or the archive. Raises FormatError if its digest differs."""
        # The cached file is verified as well, because the name alone does not prove its content.
        cached = self._cache.read(digest, _MOST_CACHED_BYTES) if self._is_cached else None
        if (
            cached is not None
            and hashlib.sha256(cached).hexdigest() == digest
            and len(cached) == length
        ):
            return cached
        data = self._range(name, start, length)
        if hashlib.sha256(data).hexdigest() != digest:
            raise FormatError(
                self.path(name), start, f"{length:,} bytes do not match their checksum"
            )
        if is_kept and self._is_cached and length <= _MOST_CACHED_BYTES:
            # Reading must succeed even if the cache cannot be written, for example on a full disk.
            with suppress(StoreError):
                self._cache.write(digest, data, _CACHE_BYTES)
        return data


def kept_manifest(place: str, options: Mapping[str, str]) -> str:
    """Return the name of an archive's manifest in the cache."""
    text = json.dumps([place.rstrip("/"), sorted(options.items())])
    return f"manifest-{hashlib.sha256(text.encode()).hexdigest()}"


def is_known(place: str, options: Mapping[str, str]) -> bool:
    """Return, without a request, whether a place was an archive when this user last read it."""
    return OwnCache("archives").has(kept_manifest(place, options))


def path_of(place: str) -> str:
    """Return the root path under which `ArchiveStorage` presents the store of the archive at `place`."""
    return place.rstrip("/") if is_url(place) else LOCAL_ARCHIVE + os.path.abspath(place)


def objects_at(place: str, options: Mapping[str, str]) -> ObjectStore:
    """Return the object store of an archive, without a request. Raises UsageError, MissingExtraError."""
    return Bucket(place, options) if is_url(place) else ObjectFolder(place, is_made=False)


def _config_of(manifest: archive.Manifest) -> StoreConfig:
    """Return the broker's settings. Raises ValueError."""
    try:
        return StoreConfig(**manifest.settings)  # type: ignore[arg-type]
    except (UsageError, TypeError) as error:
        raise ValueError(f"settings: {error}") from None


@lru_cache(16)
def opened(place: str, options: tuple[tuple[str, str], ...], generation: int) -> Archive:
    """Return the archive at a place, opened once per process and generation (number of the archive's manifest).

    The returned archive has at least this generation.
    """
    return Archive(place, dict(options))
