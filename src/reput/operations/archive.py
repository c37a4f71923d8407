"""`reput.archives`: archive a store, verify an archive, restore a store."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath

from reput.archives.archiver import archive_store
from reput.archives.report import ArchiveReport, RestoreReport, VerifyReport
from reput.archives.restoring import restore_store, verify
from reput.arguments import Time, checked, optional_milliseconds
from reput.tasks import Progress, silent


@checked
def archive(
    store: str | PathLike[str],
    destination: str | PathLike[str],
    *,
    with_last: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> ArchiveReport:
    """Copy the log files of a store that an archive lacks, with indexes of their keys and queues.

    A log file is copied once another one follows it: then nothing is appended to it any more. Several
    archivers may work at once, and one that is killed can be run again.

    Args:
        store: A store on this machine. It is only read.
        destination: A folder, or a URL of S3, GCS or Azure. It is created if it is missing.
        with_last: Also copy the last file as it is now. A later run replaces that copy.
        storage_options: Of the destination, as for `open_store`.
        progress: Called with the phase, units done and units in all.

    Returns:
        What was added. Damage of the log is reported there, not raised.

    Raises:
        UsageError: the destination has no conditional writes, or is the archive of another store.
        StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError.
    """
    return archive_store(
        fspath(store), fspath(destination), with_last=with_last,
        options=dict(storage_options or {}), progress=progress,
    )  # fmt: skip


@checked
def verify_archive(
    archive: str | PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> VerifyReport:
    """Read every byte of an archive and compare it with its checksums.

    Args:
        archive: A folder or URL that `archive` has written.
        storage_options: As for `open_store`.
        progress: Called with the phase, units done and units in all.

    Raises:
        StoreNotFoundError, StoreAccessError; FormatError for a manifest that cannot be read.
    """
    return verify(fspath(archive), dict(storage_options or {}), progress)


@checked
def restore(
    archive: str | PathLike[str],
    destination: str | PathLike[str],
    *,
    begin: Time | None = None,
    end: Time | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> RestoreReport:
    """Write the archived log files into a new store, byte for byte, and rebuild its indexes.

    Args:
        archive: A folder or URL that `archive` has written.
        destination: A folder that is missing or empty.
        begin, end: Only the log files with messages stored between these times, and all between them.
        storage_options: Of the archive, as for `open_store`.
        progress: Called with the phase, units done and units in all.

    Raises:
        UsageError: the destination is not empty, or the archive has no such log file.
        FormatError, CorruptMessageError: the archive is damaged; what was written is incomplete.
        StoreNotFoundError, StoreAccessError.
    """
    return restore_store(
        fspath(archive), fspath(destination), begin_ms=optional_milliseconds(begin),
        end_ms=optional_milliseconds(end), options=dict(storage_options or {}), progress=progress,
    )  # fmt: skip
