"""How far each group has consumed each queue (`ConsumerOffsetManager`, tag rocketmq-all-4.9.3).

They are kept as a broker keeps them, in config/consumerOffset.json, under `topic@group`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from reput.broker.config_file import ConfigFile
from reput.broker.limits import LimitError, Limits
from reput.broker.names import check_name
from reput.errors import FormatError
from reput.format.file_names import CONSUMER_OFFSET_FILE
from reput.format.java_json import number_maps_file

_SEPARATOR = "@"
_TABLE = "offsetTable"
_MOST_READ_BYTES = (
    256 << 20
)  # far more than is ever written: a file that others wrote is served, too
# What an entry and a pair take of the file at most: 5 digits, 20 of a number, and what is around them.
_ENTRY_BYTES, _PAIR_BYTES = 27, 16
_log = logging.getLogger("reput.broker")


class ConsumerOffsets:
    """Offsets by topic, group and queue. Any thread may commit; a map of a pair is replaced, never changed."""

    def __init__(
        self,
        store: Path,
        is_kept: bool,
        most_bytes: int = Limits().offsets_bytes,
        *,
        uses_backup: bool = False,
    ) -> None:
        """Open them.

        Args:
            store: Its folder.
            is_kept: Whether they outlive the process.
            most_bytes: How long the file may grow.
            uses_backup: Whether the file before stands in for one that is damaged.

        Raises:
            FormatError: the file is damaged.
            StoreAccessError: it cannot be read.
        """
        self._file = ConfigFile(store, CONSUMER_OFFSET_FILE, is_kept, most_bytes=_MOST_READ_BYTES)
        self._is_kept, self._most_bytes = is_kept, most_bytes
        self._guard = Lock()
        if uses_backup:
            self._table = self._file.load_either(_parse)
        else:
            self._table = _parse(self._file.path, self._file.load())
        self._bytes = sum(map(_size, self._table.items()))

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The group's next message of this queue is the one with this number.

        Raises:
            LimitError: the file would become too long.
            NameRefusedError.
        """
        key = f"{topic}{_SEPARATOR}{group}"
        with self._guard:
            offsets = self._table.get(key, {})
            if offsets.get(queue_id) == queue_offset:
                return
            if queue_id not in offsets:
                check_name(group, "group")
                check_name(topic, "topic")
                self._grow(_ENTRY_BYTES + (0 if offsets else _PAIR_BYTES + len(key)))
            self._table[key] = {**offsets, queue_id: queue_offset}
            self._file.is_changed = self._is_kept

    def _grow(self, size: int) -> None:
        if self._bytes + size > self._most_bytes:
            raise LimitError(
                f"the offset is not kept: all committed offsets take {self._bytes} bytes of {self._most_bytes}; "
                f"remove groups from {self._file.path}"
            )
        self._bytes += size

    def drop_strangers(self, is_there: Callable[[str], bool]) -> None:
        """Where they take more than they may, forget those of topics that the store does not have.

        The file as it was is kept with `.bak` at the end of its name.
        """
        if self._bytes <= self._most_bytes:
            return
        pairs = len(self._table)
        self._table = {
            key: offsets
            for key, offsets in self._table.items()
            if is_there(key.partition(_SEPARATOR)[0])
        }
        self._bytes = sum(map(_size, self._table.items()))
        self._file.is_changed = self._is_kept
        _log.warning(
            "%s: committed offsets of %d groups and topics are dropped: the store has no such topics",
            self._file.path, pairs - len(self._table),
        )  # fmt: skip

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

    def snapshot(
        self, is_wanted: Callable[[str, str], bool] = lambda topic, group: True
    ) -> Callable[[], bytes]:
        """What encodes them, as the file has them and as they are now, in any thread: those of wanted pairs."""
        table = dict(self._table)

        def encode() -> bytes:
            wanted = {
                key: offsets
                for key, offsets in table.items()
                if is_wanted(key.partition(_SEPARATOR)[0], key.partition(_SEPARATOR)[2])
            }
            return number_maps_file(_TABLE, wanted)

        return encode

    def unsaved(self) -> Iterator[Callable[[], None]]:
        """What saves them, in any thread; nothing where none has changed."""
        with self._guard:
            if self._file.is_changed:
                yield self._file.saving(self.snapshot())

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = (key.split(_SEPARATOR) for key in list(self._table))
        return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _parse(path: Path, content: dict[str, Any]) -> dict[str, dict[int, int]]:
    table = content.get(_TABLE) or {}
    try:
        return {key: numbers(value) for key, value in table.items()}
    except (ValueError, AttributeError, TypeError):
        raise FormatError(path, 0, f"{_TABLE} is not maps of numbers") from None


def _size(pair: tuple[str, dict[int, int]]) -> int:
    return _PAIR_BYTES + len(pair[0]) + _ENTRY_BYTES * len(pair[1])


def numbers(values: dict[str, Any]) -> dict[int, int]:
    """A map as the file has it, with its names as numbers. Raises ValueError, TypeError, AttributeError."""
    return {int(key): int(value) for key, value in values.items()}
