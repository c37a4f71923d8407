"""Determine a store's parts and version, as far as the names in its folder show them.

Mirrors `StorePathConfigHelper` and `BrokerPathConfigHelper` (tags rocketmq-all-4.9.3 and rocketmq-all-5.3.3).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from reput.base import STORE_VERSIONS, Finding, Kind, StoreConfig
from reput.core.log.sources import COMPACTION_LOGS, log_folders
from reput.core.queues.forms import queue_forms, sign_names
from reput.format.file_names import (
    ABORT_COPY_FILE,
    ABORT_FILE,
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    COMPACTION_FOLDER,
    CONFIG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    CUT_FOLDER,
    EPOCH_FILE,
    EXTENSION_FOLDER,
    IDENTITY_FILE,
    INDEX_FOLDER,
    KV_STORE_FOLDER,
    LEDGER_PREFIX,
    LOCK_FILE,
    MESSAGE_DATABASE_FOLDERS,
    OWNER_FILE,
    QUEUE_DATABASE_FOLDER,
    RECOVERY_POINT_FILE,
    ROCKSDB_CONFIGS,
    ROCKSDB_SINGLE_FOLDER,
    TIERED_FOLDER,
    TIERED_INDEX_FOLDER,
    TIMER_LOG_FOLDER,
    TIMER_WHEEL_FILE,
)
from reput.format.properties import ROCKSDB_HALF_TOPIC
from reput.io import Storage

_COMMON = {
    COMMIT_LOG_FOLDER: "CommitLog",
    CONSUME_QUEUE_FOLDER: "ConsumeQueues",
    INDEX_FOLDER: "IndexFiles",
    EXTENSION_FOLDER: "ConsumeQueue extension files",
    CHECKPOINT_FILE: "checkpoint",
    ABORT_FILE: "abort",
    LOCK_FILE: "lock",
    CONFIG_FOLDER: "the broker's configuration",
    RECOVERY_POINT_FILE: "recovery point of reput",
    OWNER_FILE: "owner of the store",
    CUT_FOLDER: "messages that a recovery removed from the CommitLog",
}
_OF_FIVE = {
    BATCH_QUEUE_FOLDER: "batch queues",
    ABORT_COPY_FILE: ABORT_COPY_FILE,
    COMPACTION_FOLDER: "compaction logs",
    TIMER_LOG_FOLDER: "timer log",
    QUEUE_DATABASE_FOLDER: "queues in RocksDB",
    TIMER_WHEEL_FILE: "timer wheel",
    EPOCH_FILE: "epochs of the controller mode",
    IDENTITY_FILE: "identity of the controller mode",
    KV_STORE_FOLDER: "pop records in RocksDB",
    TIERED_INDEX_FOLDER: "tiered storage index",
    TIERED_FOLDER: "tiered storage",
    **dict.fromkeys(MESSAGE_DATABASE_FOLDERS, "keys, timers and transactions in RocksDB"),
}

_HALF_MESSAGES = os.path.join(CONSUME_QUEUE_FOLDER, ROCKSDB_HALF_TOPIC)
_SINCE = {
    MESSAGE_DATABASE_FOLDERS[0]: "5.4",
    _HALF_MESSAGES: "5.4",
    MESSAGE_DATABASE_FOLDERS[1]: "5.5",
    QUEUE_DATABASE_FOLDER: "5.5",
    os.path.join(CONFIG_FOLDER, ROCKSDB_SINGLE_FOLDER): "5.5",
}
"""The release in which a broker first wrote a folder."""
_DATABASE_SINCE, _BOTH_SINCE = "5.2", "5.3.1"
"""The release in which a broker first wrote queues into a database in consumequeue/, and beside queues in files."""


@dataclass(slots=True)
class StoreParts:
    """The parts of a store.

    Attributes:
        version: "5.x" if a file proves it; else "4.9 or 5.x", because a 5.x broker may leave no file of its own
        release: the earliest release that writes such a store, such as "5.4 or later"; `version` if unknown
        shown_by: the file or folder that shows `release`; None if no file does
        log: how the CommitLog is stored
        queues: the kinds of queues in the store
        others: what the further files and folders contain, by name
        findings: parts that are unknown or cannot be read
    """

    version: str = "4.9 or 5.x"
    release: str = "4.9 or 5.x"
    shown_by: str | None = None
    log: str = "one folder"
    queues: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def least_version(self) -> str:
        """Return the version of which `release` is the beginning, one of STORE_VERSIONS."""
        if self.version != "5.x":
            return STORE_VERSIONS[0]
        return next((one for one in STORE_VERSIONS if self.release.startswith(one)), "5.3")


def parts_of(store: str, storage: Storage) -> StoreParts:
    """Return the parts of a store, from the names in its folder. Raises StoreAccessError."""
    parts = StoreParts()
    entries = {entry.name: entry for entry in storage.list(store)}
    logs = log_folders(store, storage)
    folders = [os.path.basename(folder) for folder in logs]
    if folders != [COMMIT_LOG_FOLDER]:
        parts.log = f"{len(folders)} folders: {', '.join(folders)}"
    parts.queues = list(_queues(store, storage, entries))
    if any(os.path.basename(os.path.dirname(folder)).startswith(LEDGER_PREFIX) for folder in logs):
        parts.log = "a DLedger log"
    ledgers = sorted(name for name in entries if name.startswith(LEDGER_PREFIX))
    if ledgers:
        parts.others |= dict.fromkeys(ledgers, "DLedger log")
    for name, meaning in _OF_FIVE.items():
        if name in entries:
            parts.version = "5.x"
            parts.others[name] = meaning
    if (
        COMPACTION_FOLDER in parts.others
        and storage.entry(os.path.join(store, COMPACTION_LOGS)) is None
    ):
        parts.others[COMPACTION_FOLDER] = "no compaction logs"
    if "RocksDB" in parts.queues:
        parts.version = "5.x"
    configs: set[str] = set()
    if CONFIG_FOLDER in entries:
        config = os.path.join(store, CONFIG_FOLDER)
        configs = {entry.name for entry in storage.list(config) if entry.is_dir()}
    if databases := sorted(configs.intersection(ROCKSDB_CONFIGS)):
        parts.version = "5.x"
        parts.others |= {
            f"{CONFIG_FOLDER}/{name}": "configuration in RocksDB" for name in databases
        }
    _infer_release(parts, store, storage)
    names = {*_COMMON, *_OF_FIVE, *folders, *ledgers, *sign_names()}
    for name in sorted(entries):
        if name not in names and not name.startswith("."):
            detail = "not a part of a store that reput knows"
            parts.findings.append(Finding(Kind.FOREIGN_FILE, entries[name].path, detail))
    return parts


def _infer_release(parts: StoreParts, store: str, storage: Storage) -> None:
    """Set `release` and `shown_by`, and `version` if only a topic shows it."""
    names = list(parts.others)
    if storage.entry(os.path.join(store, _HALF_MESSAGES)) is not None:
        parts.version = "5.x"
        names.append(_HALF_MESSAGES)
    since = dict(_SINCE)
    if "RocksDB" in parts.queues:
        names.append(CONSUME_QUEUE_FOLDER)
        has_files = "ConsumeQueue files" in parts.queues
        since[CONSUME_QUEUE_FOLDER] = _BOTH_SINCE if has_files else _DATABASE_SINCE
    parts.release = parts.version
    if parts.version == "5.x" and names:
        parts.shown_by = max(names, key=lambda name: since.get(name, ""))
        if parts.shown_by in since:
            parts.release = f"{since[parts.shown_by]} or later"


def _queues(store: str, storage: Storage, names: Collection[str]) -> Iterator[str]:
    """Yield the kinds of queues. `names` are the names in the store's folder."""

    def has(name: str) -> bool:
        return name in names and storage.entry(os.path.join(store, name)) is not None

    if CONSUME_QUEUE_FOLDER in names:
        folder = os.path.join(store, CONSUME_QUEUE_FOLDER)
        if any(entry.is_dir() for entry in storage.list(folder)):
            yield "ConsumeQueue files"
    # Name the form of most queues first.
    for form in sorted(queue_forms(store, storage), key=lambda form: not form.has_all):
        yield form.title
    if has(EXTENSION_FOLDER):
        yield "extension files"


def with_version(config: StoreConfig, parts: StoreParts) -> StoreConfig:
    """Return the settings with the broker's version. If the settings do not state it, the store's parts show it."""
    if config.store_version is None and parts.version == "5.x":
        return replace(config, store_version=parts.least_version)
    return config
