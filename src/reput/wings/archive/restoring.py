"""Read a whole archive, to verify it or to restore the archived store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reput import errors
from reput.base import Progress, SerialRunner, silent
from reput.core import StoreLog
from reput.engine.rebuild import rebuild_store
from reput.format.archive import (
    KEY_INDEX,
    QUEUE_INDEX,
    ErasureObject,
    IndexObject,
    LogFile,
    Snapshot,
    tree_root,
)
from reput.io import DISK, Archive, FileReader, FileWriter
from reput.wings.archive.indexing import PARQUET_MAGIC
from reput.wings.archive.new_store import check_empty, new_store
from reput.wings.archive.report import RestoreReport, VerifyReport

_FRAMES_AT_ONCE = 64
_READ_BYTES = 8 << 20


def verify(place: str, options: dict[str, str] | None, progress: Progress = silent) -> VerifyReport:
    """Read and verify every byte of an archive, as `reput.verify_archive` specifies."""
    # Bypass the user's cache: only the objects themselves show whether the archive is unchanged.
    archive = Archive(place, options, is_cached=False)
    manifest, problems, objects, size = archive.manifest, [], 1, 0
    total = sum(manifest.objects().values())
    for file in manifest.log:
        progress("verify", size, total)
        try:
            _verify_log(archive, file)
        except errors.StoreError as error:
            problems.append(_problem(error))
        size, objects = size + file.object_bytes, objects + 1
    for part in (*manifest.keys, *manifest.queues):
        progress("verify", size, total)
        try:
            _verify_index(archive, part)
        except errors.StoreError as error:
            problems.append(_problem(error))
        size, objects = size + part.object_bytes, objects + 1
    for snapshot in manifest.snapshots:
        try:
            archive.snapshot(snapshot)
            _verify_size(archive, snapshot)
        except errors.StoreError as error:
            problems.append(_problem(error))
        size, objects = size + snapshot.object_bytes, objects + 1
    for record in manifest.erasures:
        try:
            _verify_erasure(archive, record)
        except errors.StoreError as error:
            problems.append(_problem(error))
        size, objects = size + record.object_bytes, objects + 1
    names = manifest.objects()
    unused = tuple(
        entry.name
        for kind in ("log/", f"{KEY_INDEX}/", f"{QUEUE_INDEX}/")
        for entry in archive.objects.list(kind)
        if entry.name not in names
    )
    return VerifyReport(place, len(manifest.log), objects, size, tuple(problems), unused)


def _problem(error: errors.StoreError) -> str:
    """Return the text of a permanent error.

    If the error is transient, raise it again: it does not show a problem of the archive.
    """
    if errors.is_transient(error):
        raise error
    return str(error)


def _verify_erasure(archive: Archive, record: ErasureObject) -> None:
    digest = hashlib.sha256()
    for at in range(0, record.object_bytes, _READ_BYTES):
        length = min(_READ_BYTES, record.object_bytes - at)
        digest.update(archive.objects.get_range(record.object, at, length))
    if digest.hexdigest() != record.sha256:
        raise errors.FormatError(archive.path(record.object), 0, "does not match its checksum")
    _verify_size(archive, record)


def _verify_size(archive: Archive, part: LogFile | IndexObject | Snapshot | ErasureObject) -> None:
    """Raise FormatError if an object has extra bytes at its end.

    Readers of seekable zstd and of Parquet begin at the end of an object, so extra bytes would mislead them.
    """
    if archive.objects.head(part.object).size != part.object_bytes:
        raise errors.FormatError(
            archive.path(part.object), part.object_bytes, "is longer than the archived object"
        )


def _verify_index(archive: Archive, part: IndexObject) -> None:
    index = archive.index(part)
    position = len(PARQUET_MAGIC)
    if archive.objects.get_range(part.object, 0, position) != PARQUET_MAGIC:
        raise errors.FormatError(archive.path(part.object), 0, "does not begin as a Parquet file")
    for group, (start, stop) in enumerate(index.ranges):
        archive.group(index, group)
        if start != position:
            raise errors.FormatError(index.path, position, "has bytes between its row groups")
        position = stop
    if position != part.object_bytes - part.footer_bytes:
        raise errors.FormatError(index.path, position, "has bytes after its row groups")
    _verify_size(archive, part)


def _verify_log(archive: Archive, file: LogFile) -> None:
    digest = hashlib.sha256()
    for data in _contents(archive, file):
        digest.update(data)
    frames = archive.directory(file)
    if digest.hexdigest() != file.sha256 or tree_root(frames.digests) != file.tree:
        raise errors.FormatError(
            archive.path(file.object), 0, "its content does not match the checksum in the manifest"
        )
    _verify_size(archive, file)


def _contents(archive: Archive, file: LogFile) -> Iterator[bytes]:
    for first in range(0, file.frames, _FRAMES_AT_ONCE):
        yield from archive.frames(file, first, min(first + _FRAMES_AT_ONCE, file.frames))


class ArchivedFiles(NamedTuple):
    """The log files of a store that have identical copies in an archive.

    Attributes:
        until: The physical offset at which these files end.
        entries: The manifest's entries for these files.
    """

    until: int
    entries: tuple[LogFile, ...]


def archived_files(place: str, store: str, files: Sequence[str]) -> ArchivedFiles:
    """Compare log files of a store with their archived copies, and return the identical ones.

    Every byte is compared. The result ends before the first file that differs, or whose copy cannot be read.

    Args:
        place: Path or URL of the archive.
        store: Folder of the store.
        files: Paths of the store's oldest log files, oldest first.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError; FormatError for the manifest.
    """
    # Compare the archive's own objects, and not copies in the user's cache. The caller will delete the store's files,
    # and then the archive's objects are the only copies that last.
    archive, log = Archive(place, is_cached=False), StoreLog(store).list()
    archived = {file.begin: file for file in archive.manifest.log if file.is_sealed}
    until, entries = log.begin, []
    for file in log.files[: len(files)]:
        entry = archived.get(file.start)
        is_next = file.start == until and entry is not None and entry.size == file.size
        if entry is None or not is_next or not _is_equal(archive, entry, file.path):
            break
        until = file.end
        entries.append(entry)
    return ArchivedFiles(until, tuple(entries))


def require_unchanged(place: str, files: ArchivedFiles) -> None:
    """Raise StoreChangedError if the archive no longer has `files`, which were compared with a store.

    Also raises StoreNotFoundError, StoreAccessError, FormatError.
    """
    archive = Archive(place, is_cached=False)
    for entry in files.entries:
        is_listed = entry in archive.manifest.log
        if not is_listed or archive.objects.head(entry.object).size != entry.object_bytes:
            raise errors.StoreChangedError(
                f"{archive.path(entry.object)}: changed after it was compared; nothing was "
                f"deleted; run the command again"
            )


def _is_equal(archive: Archive, entry: LogFile, path: str) -> bool:
    position = 0
    with FileReader(path) as reader:
        try:
            for data in _contents(archive, entry):
                if reader.read(position, len(data)) != data:
                    return False
                position += len(data)
        except (errors.CorruptMessageError, errors.FormatError):
            return False
    return position == entry.size


def restore_store(
    place: str,
    destination: str,
    end_offsets: Callable[[Path], int],
    *,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    options: dict[str, str] | None = None,
    progress: Progress = silent,
) -> RestoreReport:
    """Write the archived store into an empty folder, as `reput.restore` specifies.

    `end_offsets` is called with the folder of the new store. It lowers the committed offsets that are too high, and
    returns how many it lowered.
    """
    archive, target = Archive(place, options), Path(destination)
    check_empty(target)
    log_files = _files_of_time(archive.manifest.log, begin_ms, end_ms)
    if not archive.manifest.log:
        raise errors.StoreNotFoundError(f"{place}: the archive has no log file yet")
    if not log_files:
        raise errors.UsageError(
            f"{place}: has no log file with messages of this time", arguments=["begin", "end"]
        )
    end = log_files[-1].end
    snapshots = archive.manifest.snapshots
    # Use the first snapshot of the configuration that was archived after the log had grown to `end`. A later snapshot
    # may contain committed offsets beyond `end`.
    fitting = [snapshot for snapshot in snapshots if snapshot.log_end >= end][:1] or list(
        snapshots[-1:]
    )
    # Read the snapshot and the archive's settings before anything is written, because these reads may fail.
    files = archive.snapshot(fitting[0]) if fitting else {}
    config = archive.config
    done, total = 0, sum(file.size for file in log_files)
    with new_store(target) as new:
        new.keep_only([file.path for file in log_files])
        for file in log_files:
            progress("restore", done, total)
            _write_log(archive, file, new.folder / file.path)
            done += file.size
        for path, data in files.items():
            DISK.create_folder((new.folder / path).parent)
            DISK.write_durable(new.folder / path, data)
        rebuild_store(SerialRunner(), new.folder, config=config, progress=progress)
        progress("offsets", 0, 1)
        reset = end_offsets(new.folder)
        progress("move", 0, 1)
        new.finish(sorted({file.path.split("/")[0] for file in log_files}))
    return RestoreReport(
        place, str(target), len(log_files), total, sum(file.messages for file in log_files), log_files[0].begin, end,
        offsets_reset=reset,
    )  # fmt: skip


def _files_of_time(
    log: tuple[LogFile, ...], begin_ms: int | None, end_ms: int | None
) -> list[LogFile]:
    """Return the log files from the first to the last that may contain a message stored between two times.

    All files between the first and the last are included, because a log must not have holes.
    """
    inside = [
        number
        for number, file in enumerate(log)
        if file.times is None
        or (
            (begin_ms is None or file.times.greatest >= begin_ms)
            and (end_ms is None or file.times.least <= end_ms)
        )
    ]
    return list(log[inside[0] : inside[-1] + 1]) if inside else []


def _write_log(archive: Archive, file: LogFile, path: Path) -> None:
    # A killed run has written the file, but perhaps not synced it.
    if _is_written(file, path):
        DISK.sync_file(path)
        return
    DISK.create_folder(path.parent)
    DISK.delete(path)
    digest, position = hashlib.sha256(), 0
    with FileWriter(path, size=file.size) as writer:
        for data in _contents(archive, file):
            digest.update(data)
            # Skipping zeros keeps the end of a preallocated file sparse.
            if any(data):
                writer.write(data, position)
            position += len(data)
        writer.sync()
    DISK.sync_folder(path.parent)
    if digest.hexdigest() != file.sha256:
        raise errors.FormatError(
            archive.path(file.object), 0, "its content does not match the checksum in the manifest"
        )


def _is_written(file: LogFile, path: Path) -> bool:
    if not path.is_file():
        return False
    digest = hashlib.sha256()
    with FileReader(str(path)) as reader:
        if reader.size != file.size:
            return False
        for at in range(0, file.data_bytes, _READ_BYTES):
            digest.update(reader.read(at, min(_READ_BYTES, file.data_bytes - at)))
        last = reader.last_nonzero(file.size)
    return digest.hexdigest() == file.sha256 and (last is None or last < file.data_bytes)
