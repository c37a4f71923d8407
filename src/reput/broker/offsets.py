"""How far each group has consumed each queue (`ConsumerOffsetManager`, tag rocketmq-all-4.9.3).

They are kept as a broker keeps them, in config/consumerOffset.json, under `topic@group`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reput.broker.config_file import ConfigFile
from reput.errors import FormatError
from reput.format.java_json import number_maps_file

_SEPARATOR = "@"
_TABLE = "offsetTable"


class ConsumerOffsets:
    """Offsets by topic, group and queue. Not for several threads at once."""

    def __init__(self, store: Path, is_kept: bool) -> None:
        """`is_kept` says whether they outlive the process. Raises StoreAccessError, FormatError."""
        self._file = ConfigFile(store, "consumerOffset.json", is_kept)
        self._table = _read(self._file)
        self._is_changed = False

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The group's next message of this queue is the one with this number."""
        offsets = self._table.setdefault(f"{topic}{_SEPARATOR}{group}", {})
        if offsets.get(queue_id) != queue_offset:
            offsets[queue_id] = queue_offset
            self._is_changed = True

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Number of the group's next message of a queue; None where it never committed one."""
        return self._table.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id)

    def entries(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, queue id and committed queue offset of each, in no order."""
        for topic, group in self._pairs():
            for queue_id, offset in self._table[f"{topic}{_SEPARATOR}{group}"].items():
                yield group, topic, queue_id, offset

    def topics_of(self, group: str) -> list[str]:
        """Topics that a group has committed offsets of, sorted."""
        return sorted(topic for topic, by in self._pairs() if by == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of a topic, sorted."""
        return sorted(group for of, group in self._pairs() if of == topic)

    def encode(self) -> bytes:
        """All of them, as the file has them."""
        return number_maps_file(_TABLE, self._table)

    def save(self) -> None:
        """Write them where they are kept, and any have changed. Raises StoreAccessError."""
        if self._is_changed:
            self._file.save(self.encode())
            self._is_changed = False

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = (key.split(_SEPARATOR) for key in self._table)
        return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _read(file: ConfigFile) -> dict[str, dict[int, int]]:
    table = file.load().get(_TABLE) or {}
    try:
        return {key: numbers(value) for key, value in table.items()}
    except (ValueError, AttributeError, TypeError):
        raise FormatError(file.path, 0, f"{_TABLE} is not maps of numbers") from None


def numbers(values: dict[str, Any]) -> dict[int, int]:
    """A map as the file has it, with its names as numbers. Raises ValueError, TypeError, AttributeError."""
    return {int(key): int(value) for key, value in values.items()}
