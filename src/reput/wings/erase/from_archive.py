"""Erase from an archive: upload new versions of log files and their indexes, then replace the manifest.

Readers see the old archive until the manifest is replaced, and the new one afterwards. Old objects are deleted last. If
an erasure is killed before it deletes them, the next erasure does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from reput.base import Progress, silent
from reput.core import CommitLogFile, LogListing
from reput.engine.tables import find_logs
from reput.errors import StoreChangedError, StoreNotFoundError, StoreUnreachableError, UsageError
from reput.format.archive import (
    KEY_INDEX,
    QUEUE_INDEX,
    ErasureObject,
    IndexObject,
    LogFile,
    Manifest,
)
from reput.format.commit_log import BLANK_BYTES
from reput.format.erasure import ChangedFile
from reput.format.file_names import parse_offset_file_name
from reput.format.properties import SCHEDULE_TOPIC
from reput.io import DISK, Archive, FileReader, FileWriter, Scratch
from reput.wings.archive import commit, merge_indexes, upload_log
from reput.wings.erase.choosing import Choice, Chooser
from reput.wings.erase.overwriting import Eraser
from reput.wings.erase.report import EraseReport
from reput.wings.erase.steps import Purpose, looked_elsewhere, new_id, plan_of, record_of

_MOST_TRIES = 20
_READ_BYTES = 1 << 20


def erase_from_archive(
    place: str,
    choice: Choice,
    purpose: Purpose,
    *,
    plan_only: bool = False,
    tables: tuple[str, ...] = (),
    options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> EraseReport:
    """Erase messages from an archive, as `reput.erase` specifies."""
    # Read the signing key now, so that an invalid key is reported before anything is changed.
    purpose.signer()
    with DISK.writing_into(place):
        return _ArchiveErasure(place, choice, purpose, dict(options or {}), progress).run(
            plan_only, tables
        )


class _ArchiveErasure:
    def __init__(
        self, place: str, choice: Choice, purpose: Purpose, options: dict[str, str], progress: Progress
    ) -> None:  # fmt: skip
        self._place, self._choice, self._purpose = place, choice, purpose
        self._options, self._progress = options, progress
        self._id = new_id()
        self._listing: list[str] = []

    def run(self, plan_only: bool, tables: tuple[str, ...]) -> EraseReport:
        archive = Archive(self._place, self._options)
        self._objects = archive.objects
        if not plan_only and (remains := self._old_objects(archive.manifest)):
            # Delete old objects of an earlier erasure, which was perhaps killed before it deleted them.
            cleared = commit(self._objects, _cleared)
            self._delete_unnamed(remains, cleared)
            archive = Archive(self._place, self._options)
        (log,) = find_logs([self._place], self._options)
        chooser = Chooser(self._place, self._choice, self._options, self._progress)
        selection = chooser.find()
        eraser = Eraser(selection, self._id)
        # Bytes that belong to no message may be remains of an erased message. So files with such bytes are also
        # rewritten.
        concerned = [
            (file, entry)
            for file, entry in _files(log, archive.manifest)
            if len(eraser.within(file.start, file.end)) or _has_rest(archive, entry, chooser.ends)
        ]
        report = plan_of(self._place, selection, len(concerned))
        if not selection.sizes:
            return report
        report = looked_elsewhere(report, selection, tables, self._options, self._progress)
        if plan_only:
            return report
        changed = [
            self._rewritten(archive, log, eraser, file, entry, number, len(concerned))
            for number, (file, entry) in enumerate(concerned)
        ]
        self._progress("record", 0, 1)
        record = self._write_record(archive, eraser, changed)
        manifest = self._commit(archive, eraser, changed, record)
        self._progress("delete", 0, 1)
        self._delete_unnamed(self._listing, manifest)
        return replace(
            report, is_done=True, id=self._id, bare=eraser.bare,
            audit=archive.path(record.object), is_signed=self._purpose.signing_key is not None,
            notes=(*report.notes, *_notes(self._place, changed)),
        )  # fmt: skip

    def _rewritten(
        self, archive: Archive, log: LogListing, eraser: Eraser, file: CommitLogFile, entry: LogFile,
        number: int, count: int,
    ) -> tuple[LogFile, LogFile]:  # fmt: skip
        """Upload a new version of a log file; return its old and its new entry for the manifest."""
        self._progress("rewrite", number, count)
        with Scratch.folder() as folder:
            path = Path(folder, "log")
            with FileWriter(path, size=entry.size) as writer:
                for run in eraser.runs(file, log.open_file):
                    writer.write(run.data, run.position)
            with FileReader(str(path)) as reader:
                location = upload_log(self._objects, entry.begin, reader, entry.data_bytes)
        return entry, msgspec.structs.replace(entry, **location._asdict())

    def _write_record(
        self, archive: Archive, eraser: Eraser, changed: list[tuple[LogFile, LogFile]]
    ) -> ErasureObject:
        files = tuple(ChangedFile(old.begin, old.sha256, new.sha256) for old, new in changed)
        data = record_of(self._place, self._choice, self._purpose, eraser, self._id, files)
        name = f"erasures/{self._id}.json"
        self._objects.upload(name, [data])
        begins = tuple(old.begin for old, _ in changed)
        return ErasureObject(name, len(data), hashlib.sha256(data).hexdigest(), begins)

    def _commit(
        self, archive: Archive, eraser: Eraser, changed: list[tuple[LogFile, LogFile]],
        record: ErasureObject,
    ) -> Manifest:  # fmt: skip
        """Rewrite the affected indexes, then replace the manifest. Repeat this if another archiver changed an index."""
        new = dict(changed)
        spans = [(old.begin, old.end) for old, _ in changed]
        change = _row_changes(np.array(sorted(eraser.without_keys), np.int64))
        done: dict[str, dict[IndexObject, IndexObject]] = {KEY_INDEX: {}, QUEUE_INDEX: {}}
        for _ in range(_MOST_TRIES):
            now = Archive(self._place, self._options)
            for kind, parts in ((KEY_INDEX, now.manifest.keys), (QUEUE_INDEX, now.manifest.queues)):
                for part in parts:
                    is_concerned = any(
                        part.begin < end and begin < part.end for begin, end in spans
                    )
                    if is_concerned and part not in done[kind]:
                        done[kind][part] = self._rewritten_index(now, part, kind, change[kind])
            self._progress("commit", 0, 1)
            # Only objects in this list are deleted later. List them before the commit, because objects that other
            # archivers upload afterwards may be in use.
            self._listing = self._list_objects()
            manifest = self._replaced(archive.manifest, now.manifest, new, done, record)
            # If the manifest does not record this erasure, nothing was committed, because another archiver has changed
            # an index. Then rewrite that index, and try again.
            if record in manifest.erasures:
                return manifest
        raise StoreUnreachableError(
            f"{self._place}: other archivers keep changing its indexes; run the command again"
        )

    def _replaced(
        self, began: Manifest, listed_from: Manifest, versions: Mapping[LogFile, LogFile],
        indexes: Mapping[str, Mapping[IndexObject, IndexObject]], record: ErasureObject,
    ) -> Manifest:  # fmt: skip
        """Replace the manifest, unless its indexes have changed since `listed_from`. Return the current manifest."""

        def change(manifest: Manifest) -> Manifest | None:
            if not set(versions) <= set(manifest.log):
                raise StoreChangedError(
                    f"{self._place}: a log file was archived again meanwhile; run the command again"
                )
            # Another erasure has deleted all objects that the manifest does not name. The manifest does not name our
            # uploads yet, so they may be deleted as well.
            if manifest.clearings != began.clearings:
                raise StoreChangedError(
                    f"{self._place}: another erasure changed the archive meanwhile; run the "
                    f"command again"
                )
            if (manifest.keys, manifest.queues) != (listed_from.keys, listed_from.queues):
                return None
            return msgspec.structs.replace(
                _cleared(manifest), log=tuple(versions.get(entry, entry) for entry in manifest.log),
                keys=tuple(indexes[KEY_INDEX].get(entry, entry) for entry in manifest.keys),
                queues=tuple(indexes[QUEUE_INDEX].get(entry, entry) for entry in manifest.queues),
                erasures=(*manifest.erasures, record),
            )  # fmt: skip

        return commit(self._objects, change)

    def _rewritten_index(
        self, archive: Archive, part: IndexObject, kind: str, change: Callable[[pa.Table], pa.Table]
    ) -> IndexObject:
        self._progress(kind, 0, 1)
        return merge_indexes(archive, (part,), kind, change)

    def _list_objects(self) -> list[str]:
        return [
            entry.name
            for kind in ("log", KEY_INDEX, QUEUE_INDEX)
            for entry in self._objects.list(f"{kind}/")
        ]

    def _old_objects(self, manifest: Manifest, names: Iterable[str] | None = None) -> list[str]:
        """Return stored objects that an erasure has replaced, and that the manifest no longer names.

        Such an object is a log file or an index. Objects of log files that are not sealed are excluded, because another
        archiver may be uploading such an object. If an excluded object stays unused, `reput archive` deletes it after a
        day.
        """
        begins = {begin for record in manifest.erasures for begin in record.begins}
        spans = [
            (file.begin, file.end)
            for file in manifest.log
            if file.begin in begins and file.is_sealed
        ]
        if not spans:
            return []
        used, old = manifest.objects(), []
        for name in self._list_objects() if names is None else names:
            place = _span_of(name)
            is_old = place is not None and any(
                place[0] < end and begin < place[1] for begin, end in spans
            )
            if is_old and name not in used:
                old.append(name)
        return old

    def _delete_unnamed(self, names: Iterable[str], manifest: Manifest) -> None:
        """Delete the old objects (see `_old_objects`) that were listed before the commit.

        No later manifest can name the deleted objects. After messages in an archived log file were erased, no archiver
        uploads that log file again. If an archiver began to merge indexes before the commit, it discards the result.
        """
        for name in self._old_objects(manifest, names):
            self._progress("delete", 0, 1)
            # Another erasure may have deleted the object already.
            with suppress(StoreNotFoundError):
                self._objects.delete(name)


def _cleared(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, clearings=manifest.clearings + 1)


def _span_of(name: str) -> tuple[int, int] | None:
    """Return the range of physical offsets that an object's name states; None if the name has another form.

    The name of an index is BEGIN-END-ID. The name of a log file is BEGIN-ID. It does not state the end of the file, so
    the range of a log file has only one offset, BEGIN.
    """
    kind, _, rest = name.partition("/")
    first, *fields = rest.split("-")
    begin = parse_offset_file_name(first)
    if begin is None or not fields:
        return None
    # One offset is enough for the range of a log file, because the caller only tests whether the range overlaps with
    # whole log files.
    if kind == "log":
        return begin, begin + 1
    end = parse_offset_file_name(fields[0])
    return None if end is None else (begin, max(end, begin + 1))


def _files(log: LogListing, manifest: Manifest) -> Iterator[tuple[CommitLogFile, LogFile]]:
    entries = {entry.begin: entry for entry in manifest.log}
    for file in log.files:
        if file.start not in entries:
            raise UsageError(
                f"{file.path}: is a file of the store, not of the archive; pass the archive without the store"
            )
        yield file, entries[file.start]


def _has_rest(archive: Archive, entry: LogFile, ends: Mapping[int, int]) -> bool:
    """Return whether a log file has nonzero bytes after its last message.

    In a full file, the header of the blank record that marks the file's end does not count. Nonzero bytes may be
    remains of messages that a broker discarded after a crash.
    """
    end = ends.get(entry.begin, entry.begin) - entry.begin
    position = min(end + (BLANK_BYTES if entry.is_sealed else 0), entry.data_bytes)
    while position < entry.data_bytes:
        length = min(_READ_BYTES, entry.data_bytes - position)
        if any(archive.read(entry, position, length)):
            return True
        position += length
    return False


def _row_changes(erased: Any) -> dict[str, Callable[[pa.Table], pa.Table]]:
    """Return a function per kind of index, which removes the keys of erased messages or clears their tags codes."""

    def is_erased(rows: pa.Table) -> Any:
        return np.isin(rows.column("physical_offset").to_numpy(), erased)

    def keys(rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array(~is_erased(rows)))

    def queues(rows: pa.Table) -> pa.Table:
        is_cleared = is_erased(rows)
        if not is_cleared.any():
            return rows
        # Keep the tags codes of delayed messages, which are their delivery times.
        is_cleared &= rows.column("topic").to_numpy(zero_copy_only=False) != SCHEDULE_TOPIC
        number = rows.schema.get_field_index("tags_code")
        codes = np.where(is_cleared, 0, rows.column("tags_code").to_numpy())
        return rows.set_column(number, rows.schema.field(number), pa.array(codes))

    return {KEY_INDEX: keys, QUEUE_INDEX: queues}


def _notes(place: str, changed: list[tuple[LogFile, LogFile]]) -> Iterator[str]:
    if any(not old.is_sealed for old, _ in changed):
        yield (
            "the last log file was archived before it was full; also erase the messages from its store, otherwise the "
            "next run of reput archive copies them again"
        )
    if "://" in place:
        yield "if the bucket keeps old versions of objects, delete the old versions of log/, keys/ and queues/"
