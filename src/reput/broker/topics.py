"""The topics of a store: those of config/topics.json, and those that have queues (`TopicConfigManager`, 4.9.3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reput.broker.config_file import ConfigFile
from reput.clock import now_ms
from reput.errors import FormatError
from reput.format.properties import DEFAULT_TOPIC
from reput.store.readable_store import ReadableStore

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
_DEFAULT_QUEUES = 8
_MOST_QUEUES = 1 << 16
_LISTED_FOR_MS = 1_000  # so long the folders of queues are not listed again


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic: its queues, and what may be done with them (PERM_…)."""

    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = PERM_READ | PERM_WRITE
    sys_flag: int = 0
    is_ordered: bool = False

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    def as_json(self) -> dict[str, Any]:
        """As clients and the file have it."""
        return {
            "order": self.is_ordered,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @classmethod
    def of_json(cls, name: str, found: dict[str, Any]) -> TopicConfig:
        """Raises ValueError, TypeError for what cannot be one."""
        return cls(
            name,
            _queues(found.get("readQueueNums", 16)),
            _queues(found.get("writeQueueNums", 16)),
            int(found.get("perm", PERM_READ | PERM_WRITE)),
            int(found.get("topicSysFlag", 0)),
            bool(found.get("order", False)),
        )


def _queues(number: Any) -> int:
    if not 0 <= int(number) <= _MOST_QUEUES:
        raise ValueError(f"{number} queues")
    return int(number)


class TopicTable:
    """The topics of one store, as clients see them. Not for several threads at once."""

    def __init__(
        self,
        store: ReadableStore,
        path: Path,
        is_writable: bool,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """Raises StoreAccessError, FormatError."""
        self._store, self._is_writable, self._clock_ms = store, is_writable, clock_ms
        self._file = ConfigFile(path, "topics.json", is_writable)
        self._known, self._counter = self._read()
        self._timestamp = clock_ms()
        self._found: dict[str, int] = {}  # queues by topic, as the folders show them
        self._listed_at = -_LISTED_FOR_MS
        if is_writable:
            example = PERM_INHERIT | PERM_READ | PERM_WRITE
            self._known[DEFAULT_TOPIC] = TopicConfig(
                DEFAULT_TOPIC, _DEFAULT_QUEUES, _DEFAULT_QUEUES, example
            )

    def get(self, topic: str) -> TopicConfig | None:
        """A topic; None where the store has none of that name. Raises StoreAccessError."""
        known = self._known.get(topic)
        if known is None or topic not in self._found:
            self._list()
        queues = self._found.get(topic, 0)
        if known is None:
            if not queues:
                return None
            known = TopicConfig(topic, queues, queues)
        if known.read_queues < queues:  # nothing that is there stays out of reach
            known = replace(known, read_queues=queues)
        return known if self._is_writable else replace(known, perm=known.perm & ~PERM_WRITE)

    def all(self) -> list[TopicConfig]:
        """All topics, sorted by name. Raises StoreAccessError."""
        self._list()
        found = (self.get(name) for name in sorted(self._known.keys() | self._found.keys()))
        return [config for config in found if config is not None]

    def create(
        self, topic: str, queues: int, perm: int = PERM_READ | PERM_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """A topic, made where there is none, and kept where the store is written. Raises StoreAccessError."""
        existing = self.get(topic)
        if existing is not None:
            return existing
        made = self._known[topic] = TopicConfig(topic, queues, queues, perm, sys_flag)
        self._counter += 1
        self._timestamp = self._clock_ms()
        self.save()
        return made

    def data_version(self) -> dict[str, int]:
        """By which clients see that topics have changed."""
        return {"counter": self._counter, "timestamp": self._timestamp}

    def save(self) -> None:
        """Write what is kept. Raises StoreAccessError."""
        topics = {
            name: config.as_json()
            for name, config in sorted(self._known.items())
            if name != DEFAULT_TOPIC
        }
        content = {"dataVersion": self.data_version(), "topicConfigTable": topics}
        text = json.dumps(content, indent="\t", separators=(",", ":"), ensure_ascii=False)
        self._file.save(text.encode())

    def _list(self) -> None:
        now = self._clock_ms()
        if now - self._listed_at < _LISTED_FOR_MS:
            return
        found: dict[str, int] = {}
        for topic, queue_id in self._store.list_queues():
            if queue_id < _MOST_QUEUES:
                found[topic] = max(found.get(topic, 0), queue_id + 1)
        self._found, self._listed_at = found, now

    def _read(self) -> tuple[dict[str, TopicConfig], int]:
        content = self._file.load()
        try:
            table = content.get("topicConfigTable") or {}
            version = content.get("dataVersion") or {}
            known = {name: TopicConfig.of_json(name, found) for name, found in table.items()}
            return known, int(version.get("counter", 0))
        except (ValueError, TypeError, AttributeError):
            raise FormatError(self._file.path, 0, "not a table of topics") from None
