"""Copy a store into an archive: log files as seekable zstd, indexes, and the broker's configuration.

Log files are committed in order, after their objects were uploaded: one by one, and several at once in an archive of
many. The archive may also have objects that its manifest does not name. A killed process leaves such objects. A merge
leaves the indexes that it has replaced, because readers may still use them. A later run deletes all these objects when
they are a day old.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
import uuid
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from reput.base import DAY_MS, Progress, Runner, StoreConfig, now_ms, silent
from reput.core import CommitLogFile
from reput.engine.writer import StoreSurvey, survey_of
from reput.errors import ObjectConflictError, UsageError
from reput.format.archive import KEY_INDEX, QUEUE_INDEX, IndexObject, LogFile, Manifest, Snapshot
from reput.format.file_names import CONFIG_FOLDER
from reput.format.seekable_zstd import FRAME_BYTES
from reput.io import (
    LOCAL,
    Archive,
    ArchiveStorage,
    FileReader,
    JoinedStorage,
    Location,
    ObjectStore,
    open_object_store,
)
from reput.wings.archive.changes import to_merge, with_file, with_merged, without_expired
from reput.wings.archive.copying import Copied, CopyTask, copied
from reput.wings.archive.indexing import merge_indexes
from reput.wings.archive.log_files import begins_equally, continues
from reput.wings.archive.manifests import commit, create
from reput.wings.archive.report import ArchiveReport

_ZEROS_DIGEST = hashlib.sha256(bytes(FRAME_BYTES)).digest()
# Age at which objects that the manifest does not name are deleted. A younger object is perhaps not committed yet, or in
# use by readers of an older manifest.
_ORPHAN_NS = 24 * 3600 * 10**9
_MOST_SNAPSHOT_FILE_BYTES = 16 << 20
# A commit writes the whole manifest. So an archive of n log files is committed after every n / _COMMITTED_SHARE
# further files, which keeps the bytes of all manifests in proportion to n; after this time at the latest.
_COMMITTED_SHARE = 8
_LONGEST_WAIT_S = 600


def archive_store(
    store: str,
    destination: str,
    *,
    with_last: bool = False,
    retention_days: int | None = None,
    options: dict[str, str] | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> ArchiveReport:
    """Copy the sealed (full) log files of a store to an archive. Skip files that the archive already has.

    `reput.archive` explains the arguments.

    With a runner, tasks copy several files at once, and this process commits them in order.
    """
    if Location.is_url(store):
        raise UsageError(
            f"{store}: only local stores can be archived, not URLs", arguments=["store"]
        )
    facts = survey_of(store)
    if any(file.gap for file in facts.log.files):
        raise UsageError(f"{store}: has a DLedger log, which cannot be archived")
    objects = open_object_store(destination, options)
    archiver = _Archiver(facts, objects, destination, dict(options or {}), runner, progress)
    return archiver.run(with_last=with_last, retention_days=retention_days)


class _Archiver:
    def __init__(
        self, facts: StoreSurvey, objects: ObjectStore, place: str, options: dict[str, str],
        runner: Runner | None, progress: Progress,
    ) -> None:  # fmt: skip
        self._facts, self._objects, self._place, self._options = facts, objects, place, options
        self._runner, self._progress = runner, progress
        self._report: dict[str, Any] = {
            "log_bytes": 0, "stored_bytes": 0, "messages": 0, "files": 0, "expired": 0,
            "damaged": [], "notes": [],
        }  # fmt: skip

    def run(self, *, with_last: bool, retention_days: int | None) -> ArchiveReport:
        manifest = create(self._objects, self._first_manifest())
        # Read the manifest first, then list the log. In the other order, another archiver could add a file between the
        # two steps, and the store would seem older than the archive.
        log = self._facts.refresh().log
        # A broker creates the next file in advance, so the last file may be empty.
        last = log.last_with_data()
        files = [file for file in log.files if last and file.start <= last.start and file.size]
        self._check_continues(manifest, files)
        self._check_settings(manifest)
        end = max((file.end for file in manifest.log if file.is_sealed), default=0)
        # The archive may have the first messages of a file that expired after it was copied with `with_last`.
        have = max(
            (file.end if file.is_sealed else file.messages_end for file in manifest.log), default=0
        )
        if files and manifest.log and files[0].start > have:
            self._note(
                f"the log from {have:,} to {files[0].start:,} expired before it was archived"
            )
        todo = [file for file in files if file.start >= end and (with_last or file is not last)]
        self._add_files(todo, last, len(manifest.log))
        if last is not None and not with_last:
            self._report["notes"].append(
                f"{os.path.basename(last.path)} was not archived, because the broker may still append to it; archive "
                "the last file of a stopped store as well (with_last)"
            )
        if retention_days is not None:
            self._progress("expire", 0, 1)
            self._expire(now_ms() - retention_days * DAY_MS)
        self._progress("merge", 0, 1)
        self._merge()
        self._progress("snapshot", 0, 1)
        self._take_snapshot()
        self._progress("clean", 0, 1)
        self._delete_orphans()
        return ArchiveReport(
            store=self._facts.path, archive=self._place, files=self._report["files"],
            messages=self._report["messages"], log_bytes=self._report["log_bytes"],
            stored_bytes=self._report["stored_bytes"], expired=self._report["expired"],
            damaged=tuple(self._report["damaged"]),
            notes=tuple(self._report["notes"]),
        )  # fmt: skip

    def _add_files(
        self, todo: list[CommitLogFile], last: CommitLogFile | None, before: int
    ) -> None:
        """Copy log files, and commit them in order. A later file is never committed without the earlier ones.

        The archive has `before` log files.
        """
        done, total = 0, sum(file.size for file in todo)
        # Batches have more files than there are workers, so that fewer workers are idle at the end of a batch.
        at_once = 1 if self._runner is None else max(2 * self._runner.parallelism, 1)
        copies: list[Copied] = []
        since = time.monotonic()
        try:
            for start in range(0, len(todo), at_once):
                self._progress("archive", done, total)
                files = todo[start : start + at_once]
                for number, copy in enumerate(self._copies(files, last), start):
                    copies.append(copy)
                    # Each commit writes the whole manifest, so a large archive gets several files at once.
                    is_due = len(copies) > (before + number) // _COMMITTED_SHARE
                    if is_due or time.monotonic() - since > _LONGEST_WAIT_S:
                        self._commit(copies)
                        copies, since = [], time.monotonic()
                done += sum(file.size for file in files)
        finally:
            if copies:
                self._commit(copies)

    def _copies(self, files: list[CommitLogFile], last: CommitLogFile | None) -> Iterable[Copied]:
        facts = self._facts
        tasks = [
            CopyTask(facts.path, facts.config, self._objects, file, file is not last)
            for file in files
        ]
        if self._runner is None:
            return (copied(task, self._progress) for task in tasks)
        weights = [task.file.size for task in tasks]
        return self._runner.run(copied, tasks, weights, lambda done, total: None)

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
        archived, current = manifest.settings.get(name, 300_000), now.get(name, 300_000)
        if archived != current:
            raise UsageError(
                f"{self._place}: is the archive of a store with another size of ConsumeQueue files, in "
                f"entries: {archived:,}, not {current:,}"
            )

    def _check_continues(self, manifest: Manifest, files: list[CommitLogFile]) -> None:
        """Raise UsageError for an archive of another store, or of a newer state of this store.

        The first and the last frames of the newest common log file are compared.
        """
        by_span = {(file.start, file.size): file for file in files}
        log = manifest.log
        if not files or not log:
            return
        erased = {begin for entry in manifest.erasures for begin in entry.begins}
        sealed = [entry for entry in log if entry.is_sealed]
        common = [entry for entry in sealed if (entry.begin, entry.size) in by_span]
        if log[-1].begin > files[-1].start or (sealed and sealed[-1].end > files[-1].start):
            # The archive has sealed the store's last file, or has a later one. A file is sealed only after the log has
            # begun the next file, which this store lacks. So the store is an older state of the archived store, or
            # another store.
            raise self._older() if common else self._another()
        # The usual case: the store still has an archived log file. Compare the newest such file.
        if common:
            # Skip the archive's log files in which messages were erased: these files differ from the store's files on
            # purpose.
            common = [entry for entry in common if entry.begin not in erased]
            if common and not self._is_equal(
                common[-1], by_span[common[-1].begin, common[-1].size]
            ):
                raise self._another()
            return
        archived = ArchiveStorage(Archive(self._place, self._options))
        joined = JoinedStorage("", LOCAL, self._facts.path, archived)
        for entry in log:
            if entry.end <= files[0].start:
                continue
            # The store's log and the archive overlap, but no file has the same name and size in both.
            if entry.is_sealed or (entry.begin, entry.size) not in by_span:
                raise self._another()
            # The archive has a copy of this file from before it was full.
            log_file = by_span[entry.begin, entry.size]
            if entry.begin in erased or (
                entry.messages and begins_equally(joined, entry, log_file)
            ):
                return
        # The store and the archive have no equal log file in common. Only queue offsets can show that the store's log
        # continues the archive.
        if any(file.messages for file in log) and not continues(joined, files):
            raise self._another()

    def _is_equal(self, entry: LogFile, file: CommitLogFile) -> bool:
        frames = Archive(self._place, self._options).directory(entry)
        last = len(frames) - 1
        # Find the last frame that contains messages. Later frames, at the unused end of the file, consist of zeros and
        # are equal in all files.
        while last > 0 and frames.digest(last) == _ZEROS_DIGEST:
            last -= 1
        with FileReader(file.path) as reader:
            for frame in {0, max(last - 1, 0), last} if len(frames) else ():
                data = reader.read(frame * FRAME_BYTES, frames.content_bytes(frame))
                if hashlib.sha256(data).digest() != frames.digest(frame):
                    return False
        return True

    def _older(self) -> UsageError:
        return UsageError(
            f"{self._place}: has more of the log than {self._facts.path}, which is an older copy of it; "
            "choose another destination",
            arguments=["destination"],
        )

    def _another(self) -> UsageError:
        return UsageError(
            f"{self._place}: is the archive of another store than {self._facts.path}, or of another state of it; "
            "choose another destination",
            arguments=["destination"],
        )

    def _commit(self, files: Sequence[Copied]) -> None:
        self._progress("commit", 0, 1)

        def change(now: Manifest) -> Manifest | None:
            after = now
            for file in files:
                extended = with_file(after, file.entry, file.keys, file.queues, file.batch_topics)
                after = extended or after
            return None if after is now else after

        objects = [part for file in files for part in file.objects]
        try:
            manifest = commit(self._objects, change)
        except UsageError:
            self._delete_unnamed(objects, {})
            raise
        # If another archiver added a file first, the manifest does not name our objects. Delete them at once, because
        # they may contain messages that are being erased.
        self._delete_unnamed(objects, manifest.objects())
        for file in files:
            self._report["files"] += 1
            self._report["messages"] += file.entry.messages
            self._report["log_bytes"] += file.entry.size
            self._report["stored_bytes"] += sum(part.object_bytes for part in file.objects)
            if not file.entry.is_indexed:
                self._report["damaged"].append(file.path)
            self._report["notes"].extend(file.notes)

    def _delete_unnamed(
        self, uploaded: Iterable[LogFile | IndexObject], named: Container[str]
    ) -> None:
        """Delete uploaded objects that the manifest does not name: they may contain messages that are being erased."""
        for part in uploaded:
            if part.object not in named:
                self._objects.delete(part.object)

    def _expire(self, before_ms: int) -> None:
        """Delete the oldest log files if all their messages were stored before a time, but never the last file."""
        objects: dict[str, int] = {}

        def change(manifest: Manifest) -> Manifest | None:
            after = without_expired(manifest, before_ms)
            objects.clear()
            if after is not None:
                objects.update(manifest.objects())
                self._report["expired"] = len(manifest.log) - len(after.log)
            return after

        manifest = commit(self._objects, change)
        # Delete the objects of expired files after the commit, because readers need them until then.
        for name in sorted(objects.keys() - manifest.objects().keys()):
            self._objects.delete(name)

    def _merge(self) -> None:
        """Merge indexes until no merge is due, so that a query reads few of them (docs/engineering/archive.md)."""
        while not self._merge_round():
            pass

    def _merge_round(self) -> bool:
        """Merge all indexes that are due. Return False if an erasure ran meanwhile, so that nothing was merged."""
        archive = Archive(self._place, self._options)
        planned, merges = archive.manifest, list[tuple[str, tuple[IndexObject, ...], IndexObject]]()
        for kind in (KEY_INDEX, QUEUE_INDEX):
            while runs := to_merge(planned, kind):
                for parts in runs:
                    whole = merge_indexes(archive, parts, kind)
                    planned = with_merged(planned, kind, parts, whole) or planned
                    merges.append((kind, parts, whole))
        if not merges:
            return True
        self._progress("commit", 0, 1)
        began = archive.manifest.clearings

        def change(now: Manifest) -> Manifest | None:
            # An erasure has run since the merges began, and may have deleted the uploaded objects.
            if now.clearings != began:
                return None
            for kind, parts, whole in merges:
                now = with_merged(now, kind, parts, whole) or now
            return now

        # One commit for all: each writes the whole manifest.
        manifest = commit(self._objects, change)
        self._delete_unnamed([whole for _, _, whole in merges], manifest.objects())
        return manifest.clearings == began

    def _take_snapshot(self) -> None:
        data = self._snapshot_bytes()
        digest = hashlib.sha256(data).hexdigest()
        name = f"snapshots/{digest}.tar"

        def change(manifest: Manifest) -> Manifest | None:
            if manifest.snapshots and manifest.snapshots[-1].sha256 == digest:
                return None
            end = max((file.end for file in manifest.log), default=0)
            snapshot = Snapshot(now_ms(), end, name, len(data), digest)
            return msgspec.structs.replace(manifest, snapshots=(*manifest.snapshots, snapshot))

        # If the object exists, an earlier run has uploaded the same bytes: the name is their digest.
        with suppress(ObjectConflictError):
            self._objects.put_new(name, data)
        commit(self._objects, change)

    def _snapshot_bytes(self) -> bytes:
        buffer = io.BytesIO()
        root = Path(self._facts.path)
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted((root / CONFIG_FOLDER).glob("*")):
                if not path.is_file() or path.is_symlink():
                    self._note(
                        f"{path.relative_to(root)} was not archived: only regular files of config/ are archived"
                    )
                    continue
                with FileReader(str(path)) as reader:
                    size = reader.size
                    if size > _MOST_SNAPSHOT_FILE_BYTES:
                        self._note(
                            f"{path.relative_to(root)} was not archived: it has {size:,} bytes, more than a "
                            f"configuration file should have"
                        )
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
        for kind in ("log/", f"{KEY_INDEX}/", f"{QUEUE_INDEX}/", "snapshots/"):
            for entry in list(self._objects.list(kind)):
                if entry.name not in named and entry.modified_ns < until:
                    self._objects.delete(entry.name)


def settings_of(config: StoreConfig) -> dict[str, int | bool | str]:
    """Return the settings that differ from a broker's defaults. Their names are fields of StoreConfig."""
    defaults = StoreConfig()
    settings = {field.name: getattr(config, field.name) for field in fields(config)}
    return {
        name: value
        for name, value in settings.items()
        if isinstance(value, int | bool | str) and value != getattr(defaults, name)
    }
