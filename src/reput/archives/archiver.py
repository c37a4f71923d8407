"""Copying a store into an archive: log files as seekable zstd, their indexes, and the broker's configuration.

Each log file is committed by itself, after its objects were uploaded. A process that is killed leaves objects that no
manifest names; a later run deletes them once they are a day old. So are objects that a merge has replaced: a reader
may still use them.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from reput.archives.commit import commit, create
from reput.archives.indexing import (
    ENTRIES,
    KEYS,
    ScannedFile,
    merged,
    scan_log_file,
    write_keys,
    write_queues,
)
from reput.archives.report import ArchiveReport
from reput.clock import now_ms
from reput.config import StoreConfig
from reput.errors import ObjectConflictError, StoreChangedError, StoreError, UsageError
from reput.files.archive import Archive
from reput.files.bucket import open_object_store
from reput.files.object_store import ObjectStore
from reput.files.places import is_url
from reput.files.reader import FileReader
from reput.files.scratch import scratch_folder
from reput.format.archive import IndexObject, LogFile, Manifest, Snapshot, tree_root
from reput.format.file_names import CONFIG_FOLDER, offset_file_name
from reput.format.seekable_zstd import FRAME_BYTES, encode_tail
from reput.log.files import CommitLogFile
from reput.log.scan_mode import DispatchRules
from reput.queues.store_queues import open_queues
from reput.store.facts import StoreFacts, facts_of
from reput.store.topics_file import batch_topics
from reput.tasks import Progress, silent

LEVEL = 3
_FAN = 8
"""So many indexes of one size are merged into one."""
_READ_BYTES = 4 << 20
_PART_BYTES = 8 << 20
_ORPHAN_NS = 24 * 3600 * 10**9
_MOST_SNAPSHOT_FILE_BYTES = 16 << 20


def archive_store(
    store: str,
    destination: str,
    *,
    with_last: bool = False,
    options: dict[str, str] | None = None,
    progress: Progress = silent,
) -> ArchiveReport:
    """Copy the sealed log files of a store that an archive lacks; see `reput.archive`."""
    if is_url(store):
        raise UsageError(f"{store}: only stores on this machine are archived", arguments=["store"])
    facts = facts_of(store)
    log = facts.log
    if any(file.gap for file in log.files):
        raise UsageError(f"{store}: has a DLedger log, which is not archived yet")
    objects = open_object_store(destination, options)
    archiver = _Archiver(facts, objects, destination, dict(options or {}), progress)
    last = log.last_with_data()  # a broker allocates files ahead of the one that it appends to
    files = [] if last is None else [file for file in log.files if file.start <= last.start]
    return archiver.run(files, with_last=with_last)


class _Archiver:
    def __init__(
        self, facts: StoreFacts, objects: ObjectStore, place: str, options: dict[str, str],
        progress: Progress,
    ) -> None:  # fmt: skip
        self._facts, self._objects, self._place, self._options = facts, objects, place, options
        self._progress = progress
        self._rules = DispatchRules.of(facts.config)
        self._batch_topics = batch_topics(facts.path)
        self._threads = os.cpu_count() or 1
        self._report: dict[str, Any] = {
            "log_bytes": 0, "stored_bytes": 0, "messages": 0, "files": 0, "damaged": [], "notes": [],
        }  # fmt: skip

    def run(self, files: list[CommitLogFile], *, with_last: bool) -> ArchiveReport:
        manifest = create(self._objects, self._first_manifest())
        self._check_is_same(manifest, files)
        self._check_settings(manifest)
        wanted = [file for file in files if file.size]
        last = wanted[-1] if wanted else None
        end = max((file.end for file in manifest.log if file.is_sealed), default=0)
        if wanted and manifest.log and wanted[0].start > end:
            self._note(
                f"the log from {end:,} to {wanted[0].start:,} expired before it was archived"
            )
        todo = [file for file in wanted if file.start >= end and (with_last or file is not last)]
        total = sum(file.size for file in todo)
        done = 0
        for file in todo:
            self._progress("archive", done, total)
            self._add(file, is_sealed=file is not last)
            done += file.size
        if last is not None and not with_last:
            self._report["notes"].append(
                f"{os.path.basename(last.path)} was left out: the broker may still append to it"
            )
        self._progress("merge", 0, 1)
        self._merge()
        self._progress("snapshot", 0, 1)
        self._take_snapshot()
        self._progress("clean", 0, 1)
        self._delete_orphans()
        return ArchiveReport(
            store=self._facts.path, archive=self._place, files=self._report["files"],
            messages=self._report["messages"], log_bytes=self._report["log_bytes"],
            stored_bytes=self._report["stored_bytes"], damaged=tuple(self._report["damaged"]),
            notes=tuple(self._report["notes"]),
        )  # fmt: skip

    def _note(self, text: str) -> None:
        self._report["notes"].append(text)

    def _first_manifest(self) -> Manifest:
        return Manifest(
            id=uuid.uuid4().hex, generation=0, writer="", version=self._facts.parts.version,
            settings=settings_of(self._facts.config),
        )  # fmt: skip

    def _check_settings(self, manifest: Manifest) -> None:
        now = settings_of(self._facts.config)
        name = "queue_entries"
        was, found = manifest.settings.get(name, 300_000), now.get(name, 300_000)
        if was != found:
            raise UsageError(
                f"{self._place}: is the archive of a store whose ConsumeQueue files have {was:,} entries, not {found:,}"
            )

    def _check_is_same(self, manifest: Manifest, files: list[CommitLogFile]) -> None:
        """Refuse another store's archive: compare the newest log file that both have."""
        here = {(file.start, file.size): file for file in files}
        common = [one for one in manifest.log if one.is_sealed and (one.begin, one.size) in here]
        begin = files[0].start if files else 0
        if not common:
            if any(one.is_sealed and one.end > begin for one in manifest.log):
                raise self._another()
            return
        erased = {begin for one in manifest.erasures for begin in one.begins}
        common = [one for one in common if one.begin not in erased]
        if not common:
            return  # nothing is as it was archived, but these offsets were
        newest = common[-1]
        frames = Archive(self._place, self._options).directory(newest)
        with FileReader(here[newest.begin, newest.size].path) as reader:
            data = reader.read(0, min(FRAME_BYTES, newest.size))
        if hashlib.sha256(data).digest() != frames.digest(0):
            raise self._another()

    def _another(self) -> UsageError:
        return UsageError(
            f"{self._place}: is the archive of another store than {self._facts.path}; choose another destination",
            arguments=["destination"],
        )

    def _add(self, file: CommitLogFile, *, is_sealed: bool) -> None:
        """Upload a log file and its indexes, then commit them."""
        with scratch_folder() as folder:
            entry = self._upload_log(file, is_sealed=is_sealed)
            self._progress("scan", 0, 1)
            found = self._scan(file, entry)
            end = file.end if is_sealed else max(found.messages_end, file.start)
            entry = msgspec.structs.replace(
                entry, messages=found.messages, messages_end=end, times=found.times,
                is_indexed=found.is_whole, has_replaced_ids=found.has_replaced_ids,
            )  # fmt: skip
            self._progress("keys", 0, 1)
            keys = upload_file(
                self._objects,
                write_keys(Path(folder, KEYS), found, file.start, file.end),
                Path(folder, KEYS),
            )
            self._progress("queues", 0, 1)
            path = Path(folder, ENTRIES)
            queues = upload_file(
                self._objects, write_queues(path, found, file.start, file.end), path
            )
        self._progress("commit", 0, 1)
        commit(self._objects, lambda manifest: _with_file(manifest, entry, keys, queues))
        self._report["files"] += 1
        self._report["messages"] += entry.messages
        self._report["log_bytes"] += entry.size
        self._report["stored_bytes"] += entry.object_bytes + keys.object_bytes + queues.object_bytes
        if not found.is_whole:
            self._report["damaged"].append(file.path)
        for queue in found.unplaced:
            self._note(
                f"{queue.topic}/{queue.queue_id}: its entries are missing, so its queue offsets are unknown"
            )

    def _upload_log(self, file: CommitLogFile, *, is_sealed: bool) -> LogFile:
        name = f"log/{offset_file_name(file.start)}-{uuid.uuid4().hex}.zst"
        with FileReader(file.path) as reader, ThreadPoolExecutor(self._threads) as pool:
            size = file.size
            if not is_sealed:
                last = reader.last_nonzero(size)
                size = 0 if last is None else last + 1
            frames = LogFrames(reader, size, pool)
            stored = self._objects.upload(name, frames.chunks())
            if reader.size < file.size:
                raise StoreChangedError(
                    f"{file.path}: became shorter while it was read; run it again"
                )
        inside = os.path.relpath(file.path, self._facts.path)
        if inside.startswith(".."):
            inside = f"commitlog/{os.path.basename(file.path)}"
        return LogFile(
            inside, file.start, file.size, size, is_sealed, name, stored, frames.sha256, frames.tail_sha256,
            tree_root(frames.digests), 0, file.start, None, False, False,
        )  # fmt: skip

    def _scan(self, file: CommitLogFile, entry: LogFile) -> ScannedFile:
        if not entry.data_bytes:
            return ScannedFile()
        part = CommitLogFile(file.start, entry.data_bytes, file.path, file.inode)
        queues = None
        with suppress(StoreError):
            queues = open_queues(self._facts.path, config=self._facts.config)
        try:
            return scan_log_file(
                FileReader, part, self._rules, queues, is_last=not entry.is_sealed,
                may_replace_ids=self._facts.is_five, batch_topics=self._batch_topics,
            )  # fmt: skip
        finally:
            if queues is not None:
                queues.close()

    def _merge(self) -> None:
        """Merge indexes, so that a query reads few of them; see docs/engineering/archive.md."""
        while True:
            archive = Archive(self._place, self._options)
            for kind in (KEYS, ENTRIES):
                if parts := _to_merge(archive.manifest, kind):
                    self._merge_parts(archive, kind, parts)
                    break
            else:
                return

    def _merge_parts(self, archive: Archive, kind: str, parts: tuple[IndexObject, ...]) -> None:
        with scratch_folder() as folder:
            path = Path(folder, kind)
            whole = upload_file(self._objects, merged(archive, parts, kind, path), path)
        self._progress("commit", 0, 1)
        commit(self._objects, lambda manifest: _with_merged(manifest, kind, parts, whole))

    def _take_snapshot(self) -> None:
        data = self._snapshot_bytes()
        digest = hashlib.sha256(data).hexdigest()
        name = f"snapshots/{digest}.tar"

        def change(manifest: Manifest) -> Manifest | None:
            if manifest.snapshots and manifest.snapshots[-1].sha256 == digest:
                return None
            end = max((file.end for file in manifest.log), default=0)
            found = Snapshot(now_ms(), end, name, len(data), digest)
            return msgspec.structs.replace(manifest, snapshots=(*manifest.snapshots, found))

        with suppress(ObjectConflictError):  # of these bytes, from an earlier run
            self._objects.put_new(name, data)
        commit(self._objects, change)

    def _snapshot_bytes(self) -> bytes:
        buffer = io.BytesIO()
        root = Path(self._facts.path)
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted((root / CONFIG_FOLDER).glob("*")):
                if not path.is_file() or path.is_symlink():
                    self._note(
                        f"{path.relative_to(root)} was left out: only plain files of the configuration are kept"
                    )
                    continue
                with FileReader(str(path)) as reader:
                    size = reader.size
                    if size > _MOST_SNAPSHOT_FILE_BYTES:
                        self._note(f"{path.relative_to(root)} was left out: it has {size:,} bytes")
                        continue
                    content = reader.read(0, size)
                info = tarfile.TarInfo(str(path.relative_to(root)))
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return buffer.getvalue()

    def _delete_orphans(self) -> None:
        manifest = Archive(self._place, self._options).manifest
        named = manifest.objects()
        until = now_ms() * 10**6 - _ORPHAN_NS
        for kind in ("log/", f"{KEYS}/", f"{ENTRIES}/"):
            for found in list(self._objects.list(kind)):
                if found.name not in named and found.modified_ns < until:
                    self._objects.delete(found.name)


def upload_file(objects: ObjectStore, index: IndexObject, path: Path) -> IndexObject:
    """Upload an index from a local file."""

    def chunks() -> Iterator[bytes]:
        with FileReader(str(path)) as file:
            for at in range(0, index.object_bytes, _PART_BYTES):
                yield file.read(at, min(_PART_BYTES, index.object_bytes - at))

    objects.upload(index.object, chunks())
    return index


class LogFrames:
    """The frames of a log file during their upload; their digests and checksums are known at its end."""

    def __init__(self, reader: FileReader, size: int, pool: ThreadPoolExecutor) -> None:
        self._reader, self._size, self._pool = reader, size, pool
        self.sha256 = self.tail_sha256 = ""
        self.digests = b""

    def chunks(self) -> Iterator[bytes]:
        whole, digests, sizes = hashlib.sha256(), [], []
        for position in range(0, self._size, _READ_BYTES):
            data = self._reader.read(position, min(_READ_BYTES, self._size - position))
            pieces = [data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES)]
            done = self._pool.map(_compressed, pieces)
            whole.update(data)
            stored = []
            for frame, digest in done:
                stored.append(frame)
                sizes.append(len(frame))
                digests.append(digest)
            yield b"".join(stored)
        self.digests = b"".join(digests)
        tail = encode_tail(sizes, self._size, self.digests)
        self.sha256, self.tail_sha256 = whole.hexdigest(), hashlib.sha256(tail).hexdigest()
        yield tail


def _compressed(data: bytes) -> tuple[bytes, bytes]:
    frame = pa.Codec("zstd", compression_level=LEVEL).compress(data, asbytes=True)
    return frame, hashlib.sha256(data).digest()


def settings_of(config: StoreConfig) -> dict[str, int | bool | str]:
    """Return the settings that are not a broker's defaults, by field of StoreConfig."""
    defaults = StoreConfig()
    found = {field.name: getattr(config, field.name) for field in fields(config)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, int | bool | str) and value != getattr(defaults, name)
    }


def _with_file(
    manifest: Manifest, entry: LogFile, keys: IndexObject, queues: IndexObject
) -> Manifest | None:
    """Return the manifest with one more file; None if another archiver has added it."""
    kept = [file for file in manifest.log if file.is_sealed or file.begin < entry.begin]
    if any(file.end > entry.begin for file in kept):
        if any(file.begin == entry.begin and file.sha256 == entry.sha256 for file in kept):
            return None
        raise UsageError(
            f"{entry.path}: the archive has other bytes of these offsets; nothing was added"
        )
    newer = [
        file for file in manifest.log if file not in kept and file.data_bytes > entry.data_bytes
    ]
    if newer and not entry.is_sealed:
        return None  # another archiver has read more of the last file
    return msgspec.structs.replace(
        manifest, log=(*kept, entry),
        keys=(*(one for one in manifest.keys if one.end <= entry.begin), keys),
        queues=(*(one for one in manifest.queues if one.end <= entry.begin), queues),
    )  # fmt: skip


def _to_merge(manifest: Manifest, kind: str) -> tuple[IndexObject, ...]:
    """Return the first run of neighbours of one size that is long enough.

    Indexes of a growing log file do not count.
    """
    sealed = max((file.end for file in manifest.log if file.is_sealed), default=0)
    parts = [one for one in getattr(manifest, kind) if one.end <= sealed]
    for _, run in groupby(parts, lambda part: _level(part.files)):
        found = tuple(run)
        if len(found) >= _FAN:
            return found[:_FAN]
    return ()


def _level(files: int) -> int:
    level = 0
    while files >= _FAN:
        files, level = files // _FAN, level + 1
    return level


def _with_merged(
    manifest: Manifest, kind: str, parts: tuple[IndexObject, ...], whole: IndexObject
) -> Manifest | None:
    """Return the manifest with one index in place of several; None if another archiver has merged one of them."""
    now: tuple[IndexObject, ...] = getattr(manifest, kind)
    if parts[0] not in now:
        return None
    at = now.index(parts[0])
    if now[at : at + len(parts)] != parts:
        return None
    return msgspec.structs.replace(manifest, **{kind: (*now[:at], whole, *now[at + len(parts) :])})
