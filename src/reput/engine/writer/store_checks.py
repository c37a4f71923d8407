"""Check that a store can be opened for writing: known parts, no symbolic links, and files of the configured sizes."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from reput.base import Kind, StoreConfig
from reput.core import FILES, QueueForm, StoreFacts, configured_form, queue_database
from reput.engine.writer.message_database import database_contents
from reput.engine.writer.survey import StoreSurvey
from reput.errors import StoreAccessError, StoreError, UsageError
from reput.format.file_names import (
    ABORT_COPY_FILE,
    ABORT_FILE,
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    CUT_FOLDER,
    INDEX_FOLDER,
    LOCK_FILE,
    OWNER_FILE,
    QUEUE_DATABASE_FOLDER,
    RECOVERY_POINT_FILE,
)
from reput.io import DISK, LOCAL, Disk, Location

_NAMES = (
    LOCK_FILE, ABORT_FILE, CHECKPOINT_FILE, RECOVERY_POINT_FILE, COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER,
    BATCH_QUEUE_FOLDER, QUEUE_DATABASE_FOLDER, INDEX_FOLDER, OWNER_FILE, CUT_FOLDER,
)  # fmt: skip


def refuse_to_write(facts: StoreSurvey) -> None:
    """Raise UsageError if reput cannot write into a store: an archive, or a store with unsupported parts.

    Raises MissingExtraError if the store needs rocksdict and it is not installed, FormatError for a damaged database.
    """
    store = Path(facts.path)
    Location.refuse_archive(store)
    if (other := facts.form_of_remains) is not None:
        other.require()
    if other is not None and facts.has_queue_files:
        raise UsageError(
            f"{store}: has queues in files and in RocksDB, and reput writes one kind only, so the other would lack new "
            "messages; reput rebuild converts them to one kind"
        )
    if other is not None and facts.queue_form is None:
        raise UsageError(
            f"{queue_database(str(store), LOCAL)}: its RocksDB database lacks the file CURRENT; rebuild it with "
            "reput repair"
        )
    # STORE,LOG,LOG is the notation for a store with its log in other folders. No command can write into such a store.
    first = str(store).partition(",")[0]
    if not store.exists() and first != str(store) and Path(first).is_dir():
        raise UsageError(
            f"{store}: cannot be written: a store with log files outside {first}/{COMMIT_LOG_FOLDER} can only be "
            "read"
        )
    if facts.log_folders != (str(store / COMMIT_LOG_FOLDER),):
        raise UsageError(_needed_to_write(facts))
    if contents := database_contents(facts):
        raise UsageError(
            f"{store}: a broker keeps {' and '.join(contents)} of this store in RocksDB, where reput does not write "
            "them; it can be read, but only a broker of 5.4 or later can continue it"
        )


def _needed_to_write(facts: StoreFacts) -> str:
    if facts.ledger_folders:
        return (
            f"{facts.path}: has a DLedger log, which only brokers of its group write; to change "
            f"its messages, put them into a new store"
        )
    names = ", ".join(Path(folder).name for folder in facts.log_folders)
    return (
        f"{facts.path}: has its CommitLog in {names}, and reput writes only {COMMIT_LOG_FOLDER}/. Stop the broker, "
        f"move the files into {COMMIT_LOG_FOLDER}/, and name that folder alone in storePathCommitLog"
    )


def form_to_write(facts: StoreSurvey, config: StoreConfig) -> QueueForm:
    """Return the form in which a store opened for writing has its queues, or will have them.

    Batch queues, which have a part of the topics, are not considered.

    Raises UsageError for settings that contradict the store, MissingExtraError if the form needs a missing package.
    """
    if (form := facts.queue_form) is None:
        form = facts.last_form or configured_form(config)
        form.require()
        if form.name != FILES and facts.has_queue_files:
            raise UsageError(
                f"{facts.path}: has its queues in files, but storeType is defaultRocksDB: "
                "reput rebuild converts them"
            )
    return form


def writes_extensions(facts: StoreFacts, config: StoreConfig) -> bool:
    """Return whether ConsumeQueue entries of a store opened for writing get extension units.

    Existing files decide. The settings count only for a store without queues.
    """
    return facts.has_extension_files or (config.extension_files and not facts.has_queue_files)


def can_salvage(facts: StoreFacts) -> bool:
    """Return whether a repair with `salvage` supports the store's queues: their entries must identify a message."""
    has_batches = (Path(facts.path) / BATCH_QUEUE_FOLDER).is_dir()
    return facts.last_form is None and not has_batches


def check_places(store: Path, commit_log: str | None) -> Path | None:
    """Return the folder that commitlog/ links to, or None if commitlog/ is not a link.

    Raises StoreError for any other link in the store, and if commitlog/ does not lead to the folder in the settings.
    """
    place = store / COMMIT_LOG_FOLDER
    if commit_log is not None and not os.path.lexists(place):
        same = os.path.realpath(commit_log) == os.path.realpath(place)
        if os.path.isdir(commit_log) and not same:
            raise StoreError(
                f"{place}: is missing, and storePathCommitLog is {commit_log}; "
                f"create {place} as a link to that folder"
            )
    allowed = None if commit_log is None else Path(commit_log)
    DISK.refuse_links(store, _NAMES, allowed)
    return allowed.resolve() if allowed is not None and place.is_symlink() else None


def fitting_config(facts: StoreSurvey, log_file_bytes: int | None) -> tuple[StoreConfig, list[str]]:
    """Return the settings for a store: `facts.given`, or settings derived from the store's files.

    Returns:
        The settings, and a line for each queue file that is too short and will be extended.

    Raises:
        UsageError: The size of some files is uncertain, or the version in `facts.given` is older than the store's.
        StoreError: `facts.given` contradicts the sizes of existing files.
    """
    facts.require_certain()
    config = facts.config
    least, release = facts.parts.least_version, facts.parts.release
    if config.index_tags_from is not None and least < "5.4":
        least, release = "5.4", "5.4 or later"
    if config.store_version is not None and config.store_version < least:
        raise UsageError(
            f"{facts.path}: is a store of RocketMQ {release}, and cannot be written as a store of "
            f"{config.store_version}",
            arguments=["store_version"],
        )
    if config.store_version is None:
        is_five = config.append_record_crc or config.queues_in_rocksdb
        config = replace(config, store_version="5.3" if is_five else "4.9")
    if log_file_bytes is None:
        return config, []
    if facts.given is not None and config.commit_log_file_bytes != log_file_bytes:
        raise StoreError(
            f"{facts.path}: its CommitLog files have {log_file_bytes} bytes, "
            f"but the settings say {config.commit_log_file_bytes} (mappedFileSizeCommitLog)"
        )
    facts.require_shown()
    odd = [str(one) for one in facts.odd_files if one.kind is Kind.QUEUE_FILE_SIZE]
    return replace(config, commit_log_file_bytes=log_file_bytes), odd


def mark_open(store: Path, config: StoreConfig, disk: Disk, *, is_clean: bool = False) -> None:
    """Create `abort` durably. In a 5.x store, it contains the id of this process (`createTempFile`, 5.3.3).

    A 5.x store also gets an empty file `abort.bak` if it has no such file, because a broker leaves one. If this fails,
    a store that `is_clean` stays clean. Raises StoreAccessError.
    """
    content = str(os.getpid()).encode() if config.is_five else b""
    try:
        with disk.open(store / ABORT_FILE, len(content)) as file:
            if content:
                file.write(content, 0)
        if config.is_five and not (store / ABORT_COPY_FILE).exists():
            disk.open(store / ABORT_COPY_FILE, 0).close()
        disk.sync_folder(store)
    except StoreAccessError:
        if is_clean:
            with suppress(StoreAccessError):
                disk.delete(store / ABORT_FILE)
        raise
