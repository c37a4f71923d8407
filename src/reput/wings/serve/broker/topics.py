"""Keep the topics of a store, from config/topics.json and the folders of queues (`TopicConfigManager`, 4.9.3).

A deleted topic is removed from the file. The topic's queues stay, because deleting the queues would not last: the log
still has the topic's messages, so recovery after a crash would create the queues again. The file notes the ends of a
deleted topic's queues (`deletedTopicTable`, which a broker ignores). Clients do not see messages before these ends, and
a new topic of the same name continues after these ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from reput.base import now_ms
from reput.core import settings_in_rocksdb
from reput.engine.writer import AnyStore
from reput.errors import FormatError
from reput.format.file_names import TOPICS_FILE
from reput.format.pop import REVIVE_TOPIC_PREFIX
from reput.format.properties import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    HALF_TOPIC,
    INTERNAL_TOPICS,
    LMQ_PREFIX,
    MEMBERS_TOPIC_PREFIX,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    REPLY_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from reput.format.untrusted_json import java_json_file
from reput.wings.serve.broker.config_file import ConfigFile
from reput.wings.serve.broker.limits import LimitError, Limits
from reput.wings.serve.broker.offsets import numbers

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
_DEFAULT_QUEUES = 8
_MOST_QUEUES = 1 << 16
_LISTED_FOR_MS = 1_000  # Minimum time between two listings of the folders of queues.
_TABLE, _DELETED, _VERSION = "topicConfigTable", "deletedTopicTable", "dataVersion"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic: its queues and permissions (PERM_…)."""

    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = PERM_READ | PERM_WRITE
    sys_flag: int = 0
    is_ordered: bool = False
    filter_type: str = "SINGLE_TAG"
    other_fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further fields in topics.json, such as `attributes` of 5.x. They are kept unchanged."""

    @property
    def attributes(self) -> dict[str, str]:
        """Return the topic's attributes, by name. Only 5.x has them."""
        attributes = self.other_fields.get("attributes")
        return (
            {str(k): str(v) for k, v in attributes.items()} if isinstance(attributes, dict) else {}
        )

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    def as_json(self) -> dict[str, Any]:
        """Return the topic as the JSON object that clients expect, and that the file contains."""
        return {
            **self.other_fields,
            "order": self.is_ordered,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @classmethod
    def of_json(cls, name: str, fields: dict[str, Any]) -> TopicConfig:
        """Parse a topic. Raises ValueError, TypeError if it is malformed."""
        return cls(
            name,
            _queues(fields.get("readQueueNums", 16)),
            _queues(fields.get("writeQueueNums", 16)),
            int(fields.get("perm", PERM_READ | PERM_WRITE)),
            int(fields.get("topicSysFlag", 0)),
            bool(fields.get("order", False)),
            str(fields.get("topicFilterType", "SINGLE_TAG")),
            {name: value for name, value in fields.items() if name not in _FIELDS},
        )


_FIELDS = TopicConfig("").as_json().keys()


def own_topics(broker: str, cluster: str, levels: int, is_five: bool) -> list[TopicConfig]:
    """Return the topics that a broker creates for itself (`TopicConfigManager.init`), except TBW102.

    The trace topic is as the first send creates it: a broker of the default settings does not create it itself.

    Args:
        broker: Name of the broker.
        cluster: Name of the cluster. Clients create topics with the topic of this name as their key.
        levels: Number of delay levels.
        is_five: Whether the broker is one of 5.x.
    """
    anyone = PERM_INHERIT | PERM_READ | PERM_WRITE
    topics = [
        TopicConfig(broker, 1, 1, anyone),
        TopicConfig(cluster, perm=anyone),
        TopicConfig(BENCHMARK_TOPIC, 1024, 1024),
        TopicConfig(SCHEDULE_TOPIC, levels, levels),
        TopicConfig(TRACE_TOPIC, 4, 4),
    ]
    single = [SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, f"{cluster}{REPLY_TOPIC}", HALF_TOPIC, OP_TOPIC]
    if is_five:
        single.append(TIMER_TOPIC)
        revive, members = f"{REVIVE_TOPIC_PREFIX}{cluster}", f"{MEMBERS_TOPIC_PREFIX}{broker}"
        topics += [TopicConfig(revive, 8, 8), TopicConfig(members, 1, 1, PERM_INHERIT)]
    return [*topics, *(TopicConfig(name, 1, 1) for name in single)]


def _queues(number: Any) -> int:
    if not 0 <= int(number) <= _MOST_QUEUES:
        raise ValueError(f"{number} queues")
    return int(number)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A snapshot of a store's topics, for any thread.

    Attributes:
        file_configs: Topics in topics.json.
        folder_queues: Number of queues by topic, according to the folders.
        deleted: Ends of the queues of deleted topics.
        is_writable: Whether messages may be sent to the store.
    """

    file_configs: Mapping[str, TopicConfig]
    folder_queues: Mapping[str, int]
    deleted: Mapping[str, Mapping[int, int]]
    is_writable: bool

    def get(self, topic: str) -> TopicConfig | None:
        """Return a topic, or None if it does not exist."""
        config, queues = self.file_configs.get(topic), self.folder_queues.get(topic, 0)
        if config is None:
            # The folders of a deleted topic remain, so folders alone do not show that it exists.
            if not queues or topic in self.deleted:
                return None
            config = TopicConfig(topic, queues, queues)
        # Clients must be able to read all existing queues, even if the file states fewer.
        if config.read_queues < queues:
            config = replace(config, read_queues=queues)
        return config if self.is_writable else replace(config, perm=config.perm & ~PERM_WRITE)

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self.file_configs.keys() | (self.folder_queues.keys() - self.deleted.keys()))

    def configs(self) -> list[TopicConfig]:
        """Return all topics, sorted by name."""
        configs = map(self.get, self.names())
        return [config for config in configs if config is not None]


class TopicTable:
    """The topics of one store, as clients see them.

    Only one thread may call it, except methods marked for any thread.
    """

    def __init__(
        self,
        store: AnyStore,
        path: Path,
        is_writable: bool,
        clock_ms: Callable[[], int] = now_ms,
        most: int = Limits().topics,
        internal: Sequence[TopicConfig] = (),
    ) -> None:
        """Read the topics.

        No new topic is created if there are `most` topics already, without the internal topics `internal`.

        Raises StoreAccessError, FormatError.
        """
        self._store, self._is_writable = store, is_writable
        self._internal = frozenset(config.name for config in internal)
        self._clock_ms, self._most = clock_ms, most + len(self._internal)
        self._file, self._guard = ConfigFile(path, TOPICS_FILE, is_writable), Lock()
        self._creating = Lock()
        self._version: dict[str, int] = {}
        self._configs, self._deleted = self._read()
        self._version |= {"counter": self._version.get("counter", 0), "timestamp": clock_ms()}
        # For each topic that is not in the file yet: the counter of the data version when the topic was created.
        self._unsaved: dict[str, int] = {}
        self._queues = self.find()
        self._found_at = clock_ms()
        if is_writable:
            # When a send creates a topic, the broker copies the settings of the topic TBW102.
            example = PERM_INHERIT | PERM_READ | PERM_WRITE
            self._configs[DEFAULT_TOPIC] = TopicConfig(
                DEFAULT_TOPIC, _DEFAULT_QUEUES, _DEFAULT_QUEUES, example
            )
            for config in internal:
                # If the file has settings for the topic, keep them.
                self._configs.setdefault(config.name, config)

    def is_internal(self, topic: str) -> bool:
        """Return whether a topic belongs to the broker itself, so that tools cannot change or delete it."""
        is_system = topic in INTERNAL_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)
        return is_system or topic in self._internal

    def get(self, topic: str) -> TopicConfig | None:
        """Return a topic, or None if it does not exist."""
        config = self._configs.get(topic)
        if config and self._is_writable and config.read_queues >= self._queues.get(topic, 0):
            # `TopicView.get` below would return the same, but more slowly. This method runs for every message.
            return config
        if self._is_writable and config is None and topic.startswith(LMQ_PREFIX):
            # A light queue needs no topic of its own (`LmqTopicConfigManager`).
            return TopicConfig(topic, 1, 1) if self._store.config.enable_lmq else None
        return TopicView(self._configs, self._queues, self._deleted, self._is_writable).get(topic)

    def view(self) -> TopicView:
        """Return the topics as they are now."""
        return TopicView(dict(self._configs), self._queues, dict(self._deleted), self._is_writable)

    def floor(self, topic: str, queue_id: int) -> int:
        """Return the queue offset before which messages belong to a deleted topic of this name."""
        ends = self._deleted.get(topic)
        return ends.get(queue_id, 0) if ends else 0

    def create(
        self, topic: str, queues: int, perm: int = PERM_READ | PERM_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return a topic, and create it if it is missing. The next `save` writes it. Any thread may call this.

        Raises LimitError if there are too many topics.
        """
        with self._creating:
            existing = self.get(topic)
            if existing is not None:
                return existing
            return self._put(TopicConfig(topic, queues, queues, perm, sys_flag))

    def _put(self, config: TopicConfig) -> TopicConfig:
        is_new = config.name not in self._configs and config.name not in self._deleted
        if is_new and len(self._configs) + len(self._deleted) >= self._most:
            raise LimitError(
                f"topic[{config.name}] is not created: the maximum of {self._most} topics is reached"
            )
        is_unknown = config.name not in self._configs
        self._configs[config.name] = config
        self._change()
        if is_unknown and self._is_writable:
            self._unsaved[config.name] = self._version["counter"]
        return config

    def _change(self) -> None:
        counter = self._version["counter"] + 1
        self._version = {**self._version, "counter": counter, "timestamp": self._clock_ms()}
        self._file.is_changed = self._is_writable

    def update(self, config: TopicConfig) -> None:
        """Create a topic, or change its settings. The next `save` writes it. Any thread may call this.

        Raises LimitError if there are too many topics.
        """
        with self._creating:
            if self._configs.get(config.name) != config:
                self._put(config)

    def delete(self, topic: str, end_of: Callable[[int], int]) -> None:
        """Delete a topic if it exists. The next `save` updates the file. Any thread may call this.

        Args:
            topic: Name of the topic.
            end_of: A function that takes a queue id, and returns the end of that queue of the topic.
        """
        with self._creating:
            config = self.get(topic)
            if config is None:
                return
            # The topic may have had more queues before, and their files remain.
            queues = max(config.read_queues, config.write_queues, self._queues.get(topic, 0))
            before = self._deleted.get(topic, {})
            ends = {number: end for number in range(queues) if (end := end_of(number)) > 0}
            self._configs.pop(topic, None)
            if ends or before:
                self._deleted[topic] = {**before, **ends}
            self._change()

    def data_version(self) -> dict[str, int]:
        """Return the version number. It changes with each change of topics, so that clients notice changes."""
        return dict(self._version)

    def unsaved(self) -> Iterator[Callable[[], None]]:
        """If any topic has changed, yield a function that saves the topics. Any thread may call the function."""
        if self._file.is_changed:
            yield self.save

    def save(self) -> None:
        """Save the changes. Any thread may call this; one save serves all waiting threads. Raises StoreAccessError."""
        with self._guard:
            if not self._file.is_changed:
                return
            saved: list[int] = []

            def encode() -> bytes:
                with self._creating:
                    saved.append(self._version["counter"])
                    return _encode(dict(self._configs), dict(self._deleted), self._version)

            self._file.saving(encode)()
            # Topics that were created after `encode` ran are not in the written file. So their names stay in
            # `_unsaved`.
            with self._creating:
                after = saved[-1]
                self._unsaved = {name: at for name, at in self._unsaved.items() if at > after}

    def is_saved(self, topic: str) -> bool:
        """Return whether the file has the topic. True for a topic that does not exist: there is nothing to save."""
        return topic not in self._unsaved

    @property
    def is_stale(self) -> bool:
        """Whether the folders of queues should be listed again."""
        return self._clock_ms() - self._found_at >= _LISTED_FOR_MS

    def find(self) -> dict[str, int]:
        """Return the number of queues by topic, according to the folders. Any thread may call this."""
        queues: dict[str, int] = {}
        for topic, queue_id in self._store.list_queues():
            # Ignore huge numbers: a single folder named by a huge number would give its topic that many queues.
            if queue_id < _MOST_QUEUES:
                queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        return queues

    def take_over(self, queues: dict[str, int]) -> None:
        """Replace the known numbers of queues per topic with `queues`, a result of `find`."""
        self._queues, self._found_at = queues, self._clock_ms()

    def _read(self) -> tuple[dict[str, TopicConfig], dict[str, dict[int, int]]]:
        # A broker of 5.x may keep its topics in RocksDB. Then this server only reads the store.
        settings = settings_in_rocksdb(self._store.path, "topics")
        if settings is not None and not self._is_writable:
            return self._parse(self._file.path, {_TABLE: settings})
        return self._file.load_either(self._parse)

    def _parse(
        self, path: Path, content: dict[str, Any]
    ) -> tuple[dict[str, TopicConfig], dict[str, dict[int, int]]]:
        try:
            table = content.get(_TABLE) or {}
            version = content.get(_VERSION) or {}
            self._version = {name: int(value) for name, value in version.items()}
            deleted = content.get(_DELETED) or {}
            return (
                {name: TopicConfig.of_json(name, fields) for name, fields in table.items()},
                {name: numbers(ends) for name, ends in deleted.items()},
            )
        except (ValueError, TypeError, AttributeError):
            raise FormatError(path, 0, "not a table of topics") from None


def _encode(
    configs: Mapping[str, TopicConfig],
    deleted: Mapping[str, Mapping[int, int]],
    version: Mapping[str, int],
) -> bytes:
    topics = {
        name: config.as_json() for name, config in sorted(configs.items()) if name != DEFAULT_TOPIC
    }
    content: dict[str, Any] = {_VERSION: version}
    if deleted:
        content[_DELETED] = dict(sorted(deleted.items()))
    return java_json_file(content | {_TABLE: topics})
