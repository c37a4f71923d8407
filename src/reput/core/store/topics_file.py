"""Read the attributes of topics from `config/topics.json` (`TopicConfigManager`, `TopicAttributes`, 5.3.3)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

from reput.base import late
from reput.core.queues.kinds import is_database
from reput.errors import MissingExtraError, StoreError
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONFIG_FOLDER,
    ROCKSDB_CONFIG_FOLDER,
    ROCKSDB_GROUPS_FOLDER,
    ROCKSDB_SINGLE_FOLDER,
    ROCKSDB_TOPICS_FOLDER,
    TOPICS_FILE,
)
from reput.io import LOCAL, Storage, Watch

TOPICS_PATH = os.path.join(CONFIG_FOLDER, TOPICS_FILE)
_BATCH_TYPE = "BatchCQ"
# Only archives, and stores joined with theirs, load this.
_archived_batch_topics = late("reput.wings.archive.log_files", "archived_batch_topics")

# Only stores with such files, or with such databases, load these.
_parse_java_json = late("reput.format.untrusted_json", "parse_java_json")
_most_json_bytes = late("reput.format.untrusted_json", "MOST_JSON_BYTES")
_rocks_folder = late("reput.io", "RocksFolder")
_decode_settings = late("reput.format.rocksdb_config", "decode_settings")
_places_of_settings = late("reput.format.rocksdb_config", "SETTINGS")

Settings = Literal["topics", "groups"]
_DATABASES: dict[Settings, tuple[str, ...]] = {
    "topics": (ROCKSDB_CONFIG_FOLDER, ROCKSDB_SINGLE_FOLDER, ROCKSDB_TOPICS_FOLDER),
    "groups": (ROCKSDB_CONFIG_FOLDER, ROCKSDB_SINGLE_FOLDER, ROCKSDB_GROUPS_FOLDER),
}
"""The folders of databases that may have settings. A broker uses the first one that exists."""


def topic_attributes(store: str, storage: Storage = LOCAL) -> dict[str, dict[str, str]]:
    """Return the attributes of each topic (`queue.type`, `cleanup.policy`, ...) that has attributes.

    Returns an empty mapping if the file is missing or is not JSON. Raises StoreAccessError.
    """
    return dict(_attributes(_topics(store, storage)))


def topic_names(store: str, storage: Storage = LOCAL) -> frozenset[str]:
    """Return the topics of the broker; empty if the file is missing or is not JSON. Raises StoreAccessError."""
    return frozenset(map(str, _topics(store, storage)))


def _topics(store: str, storage: Storage) -> dict[str, Any]:
    """Return the settings of each topic. A 5.x broker may keep them in RocksDB."""
    settings = settings_in_rocksdb(store, "topics", storage)
    if settings is not None:
        return settings
    # A broker reads the previous version if the file is missing, empty or damaged (`ConfigManager.load`).
    for name in (TOPICS_PATH, f"{TOPICS_PATH}.bak"):
        if (table := _table(os.path.join(store, name), storage)) is not None:
            return table
    return {}


def _table(path: str, storage: Storage) -> dict[str, Any] | None:
    """Return the settings of each topic in a file; None if it is missing, empty or no such file."""
    entry = storage.entry(path)
    if entry is None or not 0 < entry.stat().st_size <= _most_json_bytes():
        return None
    try:
        with storage.open(path) as reader:
            content = _parse_java_json()(reader.read(0, entry.stat().st_size))
    except (StoreError, ValueError):
        return None
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    return table if isinstance(table, dict) else None


def settings_in_rocksdb(
    store: str, settings: Settings, storage: Storage = LOCAL
) -> dict[str, dict[str, Any]] | None:
    """Return the settings of each topic or group that a broker keeps in RocksDB; None if it keeps them in a file.

    Raises StoreAccessError.
    """
    for name in _DATABASES[settings]:
        folder = os.path.join(store, CONFIG_FOLDER, name)
        if storage.is_local and is_database(folder, storage):
            return _in_database(folder, *_places_of_settings()[settings][name])
    return None


def _in_database(folder: str, family: str, prefix: bytes) -> dict[str, dict[str, Any]]:
    decode = _decode_settings()
    try:
        with _rocks_folder()(folder, (family,)) as database:
            items = [decode(*item, prefix) for item in database.family_items(family)]
    except (MissingExtraError, StoreError):  # An unreadable database counts as missing.
        return {}
    return dict(filter(None, items))


def _attributes(topics: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    for topic, config in topics.items():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict):
            yield topic, {str(name): str(value) for name, value in attributes.items()}


def batch_topics(store: str, storage: Storage = LOCAL) -> frozenset[str]:
    """Return the topics whose type is batch queue, or that have a batch queue. Raises StoreAccessError."""
    typed = {
        topic
        for topic, attributes in topic_attributes(store, storage).items()
        if attributes.get("queue.type") == _BATCH_TYPE
    }
    folders = storage.list(os.path.join(store, BATCH_QUEUE_FOLDER))
    return frozenset(typed | {entry.name for entry in folders if entry.is_dir()})


class BatchTopics:
    """The batch topics of an open store. They are read again only when config/ or batchconsumequeue/ has changed."""

    def __init__(self, store: str, storage: Storage = LOCAL, log: Storage | None = None) -> None:
        """Prepare to read the topics. `log` is the storage of the CommitLog.

        If the log lies in an archive, or in a store joined with its archive, the batch topics that the archive names
        are included.
        """
        self._store, self._storage = store, storage
        self._archived = log if log is not None and (log.is_archive or log.is_joined) else None
        self._root = storage.watch(store)
        # One Watch per folder whose contents show which topics have batch queues.
        self._watches: list[Watch] = []
        self._names: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """Return the names of the batch topics at present. Raises StoreAccessError."""
        archived: frozenset[str] = frozenset()
        if self._archived is not None:
            archived = _archived_batch_topics()(self._archived)
            if self._archived.is_archive:
                return archived  # The manifest lists these topics, so no request is needed.
        is_changed = False
        if self._root.changed():
            folders = (CONFIG_FOLDER, BATCH_QUEUE_FOLDER)
            paths = [os.path.join(self._store, folder) for folder in folders]
            self._watches = [
                self._storage.watch(path) for path in paths if self._storage.entry(path)
            ]
            is_changed = True
        for watch in self._watches:
            is_changed |= watch.changed()
        if is_changed:
            has_any = bool(self._watches)
            self._names = batch_topics(self._store, self._storage) if has_any else frozenset()
        return self._names | archived
