"""Define `reput.archive`, `reput.with_archive`, `reput.verify_archive` and `reput.restore`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from reput.base import Progress, Time, checked, optional_milliseconds, silent
from reput.core import StoreLog
from reput.engine.rebuild.warm_up import warm_up
from reput.engine.stores import Chosen, opened_runner
from reput.engine.stores import with_archive as joined_path
from reput.errors import UsageError
from reput.io import DISK, AnchoredRunner, Location
from reput.wings.archive.archiver import archive_store
from reput.wings.archive.filtered_copy import copy_messages
from reput.wings.archive.message_proofs import prove_message, verify_proof
from reput.wings.archive.new_store import check_empty
from reput.wings.archive.report import ArchiveReport, RestoreReport, VerifyReport
from reput.wings.archive.restoring import restore_store, verify
from reput.wings.serve import end_offsets_with_queues


@checked
def archive(
    store: str | PathLike[str],
    destination: str | PathLike[str],
    *,
    with_last: bool = False,
    retention_days: int | None = None,
    runner: Any = "serial",
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> ArchiveReport:
    """Add a store's new log files to an archive, with indexes of their keys and queues.

    A log file is final, and is copied, once the store has begun the next file. Several archivers may work at once. If a
    run is killed, repeat it.

    Args:
        store: A store on this machine. It is only read.
        destination: A folder, or a URL of S3, GCS or Azure. It is created if it is missing.
        with_last: Also copy the last file in its current state. A later run replaces this copy.
        retention_days: Delete the oldest archived log files if all their messages are older than this; None to keep
            all.
        runner: "serial", "processes", "spark", or a SparkSession. All except "serial" copy several log files at once,
            which helps with the first copy of a large store. On a cluster, every executor needs access to the store's
            path and to the destination.
        storage_options: Options of the destination, as for `open_store`.
        progress: Called with the phase, units done and units in all.

    Returns:
        A report of the added files. It also states damage of the log, which raises no error.

    Raises:
        UsageError: the destination does not support conditional writes, or is the archive of another store.
        StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError.
    """
    if retention_days is not None and retention_days < 1:
        raise UsageError("retention_days must be at least 1", arguments=["retention_days"])
    Location.refuse_inside(destination, store, ["destination"])
    choice, place = Chosen.of(runner), fspath(store)
    copy = partial(
        archive_store, place, fspath(destination), with_last=with_last, retention_days=retention_days,
        options=dict(storage_options or {}), progress=progress,
    )  # fmt: skip
    with DISK.writing_into(destination, [store]):
        if choice.runner == "serial" and choice.master is None:
            return copy()
        size = sum(file.size for file in StoreLog(place).list().files)
        with opened_runner(choice, size, warm_up) as tasks:
            return copy(runner=AnchoredRunner(tasks))


@checked
def with_archive(
    store: str | PathLike[str],
    archive: str | PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> str:
    """Return a path that joins a store and its archive into one log. All functions that read a store accept this path.

    Log files that the store has are read from the store, older ones from the archive. If log files between the two are
    missing, answers are incomplete. Functions that open the path refuse an archive of another store.

    Args:
        store: A store, or its URL.
        archive: A folder or URL that `archive` has written.
        storage_options: Options as for `open_store`.

    Raises:
        UsageError: `store` is an archive.
        StoreNotFoundError, StoreAccessError.
    """
    return joined_path(store, archive, storage_options)


@checked
def verify_archive(
    archive: str | PathLike[str],
    *,
    physical_offset: int | None = None,
    proof: str | PathLike[str] | None = None,
    signing_key: str | PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> VerifyReport:
    """Compare every byte of an archive with its checksums, or verify one archived message and prove it.

    Args:
        archive: A folder or URL that `archive` has written, or a proof file, which is verified without an archive.
        physical_offset: Verify only the message at this physical offset.
        proof: Path of a new file for the proof of this message.
        signing_key: A file with an Ed25519 key in PEM format, with which to sign the proof.
        storage_options: Options as for `open_store`.
        progress: Called with the phase, units done and units in all.

    Raises:
        UsageError: the proof's file already exists.
        MessageNotFoundError, CorruptMessageError: no message begins at the physical offset, or it is damaged.
        StoreNotFoundError, StoreAccessError; FormatError for a manifest or a proof that cannot be read.
    """
    place = fspath(archive)
    options = {"proof": proof, "signing_key": signing_key}
    if physical_offset is not None:
        return prove_message(
            place, physical_offset, output=None if proof is None else fspath(proof),
            signing_key=None if signing_key is None else fspath(signing_key),
            options=dict(storage_options or {}),
        )  # fmt: skip
    if refused := [name for name, value in options.items() if value is not None]:
        raise UsageError(
            f"{', '.join(refused)}: only together with physical_offset",
            arguments=[*refused, "physical_offset"],
        )
    if os.path.isfile(place):
        return verify_proof(place)
    return verify(fspath(archive), dict(storage_options or {}), progress)


@checked
def restore(
    archive: str | PathLike[str],
    destination: str | PathLike[str],
    *,
    begin: Time | None = None,
    end: Time | None = None,
    topics: Sequence[str] = (),
    keys: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> RestoreReport:
    """Restore the archived log files into a new store, byte for byte, and rebuild its indexes.

    With topics or keys, only matching messages are copied into the new store. They get new offsets and store times,
    and the properties REPUT_ORIGIN_STORE, REPUT_ORIGIN_OFFSET and REPUT_ORIGIN_QUEUE_OFFSET.

    Args:
        archive: A folder or URL that `archive` has written.
        destination: A missing or empty folder, or the folder of a killed run, which is then continued.
        begin, end: Restore only log files with messages stored between these times. With topics or keys, copy only
            messages stored between these times.
        topics: Copy messages of these topics.
        keys: Copy messages with one of these keys or unique keys.
        storage_options: Options of the archive, as for `open_store`.
        progress: Called with the phase, units done and units in all.

    Raises:
        UsageError: the destination is not empty, or the archive has no log file with messages between `begin` and
            `end`.
        StoreLockedError: another process is restoring into the destination.
        FormatError, CorruptMessageError: the archive is damaged. No store is created.
        StoreNotFoundError, StoreAccessError.
    """
    if topics or keys:
        return copy_messages(
            fspath(archive), fspath(destination), topics=topics, keys=keys, begin=begin, end=end,
            options=storage_options, progress=progress,
        )  # fmt: skip
    check_empty(Path(destination))
    with DISK.writing_into(destination):
        return restore_store(
            fspath(archive), fspath(destination), end_offsets_with_queues,
            begin_ms=optional_milliseconds(begin), end_ms=optional_milliseconds(end, is_end=True),
            options=dict(storage_options or {}), progress=progress,
        )  # fmt: skip
