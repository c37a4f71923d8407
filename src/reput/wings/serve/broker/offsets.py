"""Keep the committed offsets of each group in each queue (`ConsumerOffsetManager`, tag rocketmq-all-4.9.3).

A served store keeps them in config/consumerOffset.json, under `topic@group`. `committed_offsets` reads the
offsets from every place in which a broker may keep them, and mirrors `LmqConsumerOffsetManager` and the managers of
`broker.config.v1` and `.v2` (tag rocketmq-all-5.3.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from reput.core import MessageStore, facts_of
from reput.errors import FormatError, UsageError
from reput.format import rocksdb_config
from reput.format.file_names import (
    CONFIG_FOLDER,
    CONSUMER_OFFSET_FILE,
    LMQ_OFFSET_FILE,
    ROCKSDB_CONFIG_FOLDER,
    ROCKSDB_CONFIGS,
    ROCKSDB_OFFSETS_FOLDER,
    ROCKSDB_SINGLE_FOLDER,
)
from reput.format.properties import lite_topic_of
from reput.format.untrusted_json import number_maps_file
from reput.io import RocksFolder
from reput.wings.serve.broker.config_file import ConfigFile
from reput.wings.serve.broker.limits import LimitError, Limits, check_name

_SEPARATOR = "@"
_TABLE = "offsetTable"
# Maximum size of a file to read. Brokers may write larger files than this server, so the maximum is far above the size
# that this server writes.
_MOST_READ_BYTES = 256 << 20
# Upper bounds for the size of the file: bytes of one queue id with its offset, and bytes of the punctuation around one
# key `topic@group`.
_ENTRY_BYTES, _PAIR_BYTES = 27, 16
_log = logging.getLogger("reput.broker")
_LMQ_TABLE = "lmqOffsetTable"


class PulledOffsets:
    """The offset after each group's last pull from a queue (`pullOffsetTable` of 5.3.3), in memory.

    Any thread may call `get`; only one thread may call the other methods. If there are `most` queues, a new one
    replaces the oldest.
    """

    def __init__(self, most: int = Limits().counters) -> None:
        self._most = most
        self._next: dict[tuple[str, str, int], int] = {}

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Record the queue offset at which the next pull begins."""
        key = group, topic, queue_id
        if key not in self._next and len(self._next) >= self._most:
            del self._next[next(iter(self._next))]
        self._next[key] = next_offset

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Return the queue offset at which the next pull begins, or -1 if unknown."""
        return self._next.get((group, topic, queue_id), -1)

    def remove(self, predicate: Callable[[str, str], bool]) -> None:
        """Remove the offsets of all topics and groups for which `predicate(topic, group)` is true."""
        for key in [(group, topic, n) for group, topic, n in self._next if predicate(topic, group)]:
            del self._next[key]


class ConsumerOffsets:
    """Offsets by topic, group and queue.

    Any thread may commit, because the map of a topic and group is replaced as a whole.
    """

    def __init__(
        self,
        store: Path,
        is_writable: bool,
        most_bytes: int = Limits().offsets_bytes,
    ) -> None:
        """Open the offsets of a store.

        Args:
            store: Folder of the store.
            is_writable: Whether changes are written.
            most_bytes: Maximum size of the file.

        Raises:
            FormatError: The file and its previous version are damaged.
            StoreAccessError: The file cannot be read.
        """
        self._file = ConfigFile(
            store, CONSUMER_OFFSET_FILE, is_writable, most_bytes=_MOST_READ_BYTES
        )
        self._is_writable, self._most_bytes = is_writable, most_bytes
        self._guard, self._saving = Lock(), Lock()
        self._resets: dict[str, dict[int, int]] = {}
        self._table = self._file.load_either(_parse)
        self._bytes = sum(map(_size, self._table.items()))

    def take_over(self, committed: Iterable[rocksdb_config.CommittedOffset]) -> None:
        """Replace the file's offsets by offsets that a broker has kept elsewhere, for example in RocksDB."""
        table: dict[str, dict[int, int]] = {}
        for entry in committed:
            key = f"{entry.topic}{_SEPARATOR}{entry.group}"
            table.setdefault(key, {})[entry.queue_id] = entry.queue_offset
        with self._guard:
            self._table, self._bytes = table, sum(map(_size, table.items()))

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the queue offset of the group's next message in a queue.

        Raises:
            LimitError: The file would become too long.
            NameRefusedError: A broker would refuse a name.
        """
        key = f"{topic}{_SEPARATOR}{group}"
        with self._guard:
            offsets = self._table.get(key, {})
            if offsets.get(queue_id) == queue_offset:
                return
            if queue_id not in offsets:
                check_name(group, "group")
                # Of the light queue of a Lite topic, check both topics in its name, which has separators.
                for name in lite_topic_of(topic) or (topic,):
                    check_name(name, "topic")
                self._grow(_ENTRY_BYTES + (0 if offsets else _PAIR_BYTES + len(key)))
            self._table[key] = {**offsets, queue_id: queue_offset}
            self._file.is_changed = self._is_writable

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set an offset.

        The group's consumer learns the offset from the answer to its next pull. Until then, its commits are ignored.

        Raises as `commit` does.
        """
        self.commit(group, topic, queue_id, queue_offset)
        key = f"{topic}{_SEPARATOR}{group}"
        with self._guard:
            self._resets[key] = {**self._resets.get(key, {}), queue_id: queue_offset}

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether the queue was reset, and the group's consumer has not received the new offset yet."""
        return queue_id in self._resets.get(f"{topic}{_SEPARATOR}{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset to which a queue was reset, or None. A second call returns None."""
        if not self._resets:  # Every pull calls this, so the usual case is quick.
            return None
        key = f"{topic}{_SEPARATOR}{group}"
        with self._guard:
            resets = dict(self._resets.get(key, {}))
            offset = resets.pop(queue_id, None)
            if offset is not None:
                self._resets.pop(key)
                if resets:
                    self._resets[key] = resets
        return offset

    def remove(self, predicate: Callable[[str, str], bool]) -> None:
        """Remove the offsets of all topics and groups that the caller wants removed.

        `is_wanted(topic, group)` returns whether to remove the group's offsets in the topic.
        """
        with self._guard:
            for topic, group in self._pairs():
                if predicate(topic, group):
                    key = f"{topic}{_SEPARATOR}{group}"
                    self._bytes -= _size((key, self._table.pop(key)))
                    self._resets.pop(key, None)
                    self._file.is_changed = self._is_writable

    def clone(self, group: str, target: str, topic: str) -> None:
        """Copy a group's offsets of a topic to another group. Raises as `commit` does."""
        for queue_id, offset in self._table.get(f"{topic}{_SEPARATOR}{group}", {}).items():
            self.commit(target, topic, queue_id, offset)

    def _grow(self, size: int) -> None:
        if self._bytes + size > self._most_bytes:
            raise LimitError(
                f"the offset is not kept: all committed offsets would take more than {self._most_bytes} bytes; "
                f"remove groups from {self._file.path}"
            )
        self._bytes += size

    def drop_strangers(self, has_topic: Callable[[str], bool]) -> None:
        """If the table of committed offsets has too many bytes, remove the offsets of topics that the store lacks.

        The previous file is kept with `.bak` at the end of its name.
        """
        if self._bytes <= self._most_bytes:
            return
        pairs = len(self._table)
        self._table = {
            key: offsets
            for key, offsets in self._table.items()
            if has_topic(key.partition(_SEPARATOR)[0])
        }
        self._bytes = sum(map(_size, self._table.items()))
        self._file.is_changed = self._is_writable
        _log.warning(
            "%s: committed offsets of %d groups and topics are dropped: the store has no such topics",
            self._file.path, pairs - len(self._table),
        )  # fmt: skip

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the queue offset of the group's next message in a queue, or None if it has committed none."""
        return self._table.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id)

    def entries(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, queue id and committed queue offset, in any order."""
        for topic, group in self._pairs():
            for queue_id, offset in self._table[f"{topic}{_SEPARATOR}{group}"].items():
                yield group, topic, queue_id, offset

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has committed offsets, sorted."""
        return sorted(topic for topic, by in self._pairs() if by == group)

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets in a topic, sorted."""
        return sorted(group for of, group in self._pairs() if of == topic)

    def snapshot(
        self, predicate: Callable[[str, str], bool] = lambda topic, group: True
    ) -> Callable[[], bytes]:
        """Return a function that encodes the current offsets in the file's form. The function may run in any thread.

        `is_wanted(topic, group)` returns whether to include the group's offsets in the topic.
        """
        # A copy of the outer map is enough, because `commit` replaces the inner maps.
        table = dict(self._table)

        def encode() -> bytes:
            selection = {
                key: offsets
                for key, offsets in table.items()
                if predicate(key.partition(_SEPARATOR)[0], key.partition(_SEPARATOR)[2])
            }
            return number_maps_file(_TABLE, selection)

        return encode

    def unsaved(self) -> Iterator[Callable[[], None]]:
        """If any offset has changed, yield a function that saves the offsets. Any thread may call the function."""
        if self._file.is_changed:
            yield self.save

    def save(self) -> None:
        """Save the changes. Any thread may call this; one save serves all waiting threads. Raises StoreAccessError."""
        # Save one state at a time. Otherwise, a slower thread could replace a newer state by an older one.
        with self._saving:
            if not self._file.is_changed:
                return
            with self._guard:
                save = self._file.saving(self.snapshot())
            save()

    def _pairs(self) -> list[tuple[str, str]]:
        # Names of topics and groups contain no `@`. Skip keys of the file that do not have the form `topic@group`.
        pairs = (key.split(_SEPARATOR) for key in list(self._table))
        return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _parse(path: Path, content: dict[str, Any]) -> dict[str, dict[int, int]]:
    table = content.get(_TABLE) or {}
    try:
        return {key: numbers(value) for key, value in table.items()}
    except (ValueError, AttributeError, TypeError):
        raise FormatError(
            path, 0, f"{_TABLE} must be an object whose values are maps of numbers"
        ) from None


def _size(pair: tuple[str, dict[int, int]]) -> int:
    return _PAIR_BYTES + len(pair[0]) + _ENTRY_BYTES * len(pair[1])


def numbers(values: dict[str, Any]) -> dict[int, int]:
    """Return the map with its keys and values as numbers. Raises ValueError, TypeError, AttributeError."""
    return {int(key): int(value) for key, value in values.items()}


def check_kept_in_files(store: Path) -> None:
    """Check that a broker keeps topics, groups and offsets of a store in files. Raises UsageError for RocksDB."""
    for name in ROCKSDB_CONFIGS:
        folder = store / CONFIG_FOLDER / name
        if folder.is_dir() and facts_of(store).local_database(CONFIG_FOLDER, name) is not None:
            raise UsageError(
                f"{folder}: the broker keeps its configuration in RocksDB, which reput only reads; let the broker "
                "write it as files (mqadmin rocksDBConfigToJson), and move the database away"
            )


def is_kept_elsewhere(store: Path) -> bool:
    """Return whether a broker may have kept offsets outside of consumerOffset.json."""
    names = (ROCKSDB_CONFIG_FOLDER, ROCKSDB_SINGLE_FOLDER, ROCKSDB_OFFSETS_FOLDER, LMQ_OFFSET_FILE)
    return any((store / CONFIG_FOLDER / name).exists() for name in names)


def committed_offsets(store: Path) -> list[rocksdb_config.CommittedOffset]:
    """Return each group's offset in each queue, in any order.

    If RocksDB has offsets, the files of offsets are ignored: a broker that keeps offsets in RocksDB does not delete its
    old files, but no longer reads them.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError: A file or database is damaged.
        StoreAccessError: A file cannot be read.
    """
    offsets: dict[tuple[str, str, int], rocksdb_config.CommittedOffset] = {}
    for read in (_of_version_2, _of_single_database, _of_version_1, _in_files):
        for entry in read(store):
            offsets.setdefault(entry[:3], entry)
        if offsets:
            break
    return list(offsets.values())


def end_offsets_with_queues(store: Path) -> int:
    """Reduce each committed offset that is beyond the end of its queue to this end. Return the number of changes.

    Otherwise, consumers would skip new messages, which get queue offsets from this end on.
    """
    offsets, count = ConsumerOffsets(store, is_writable=True), 0
    with MessageStore(store) as reader:
        queues = set(reader.list_queues())
        for group, topic, queue_id, offset in list(offsets.entries()):
            end = reader.max_queue_offset(topic, queue_id) if (topic, queue_id) in queues else 0
            if offset > end:
                offsets.commit(group, topic, queue_id, end)
                count += 1
    offsets.save()
    return count


def _of_version_2(store: Path) -> Iterator[rocksdb_config.CommittedOffset]:
    folder = facts_of(store).local_database(CONFIG_FOLDER, ROCKSDB_CONFIG_FOLDER)
    if folder is not None:
        with RocksFolder(folder, (rocksdb_config.FAMILY,)) as database:
            for key, value in database.family_items(
                rocksdb_config.FAMILY, rocksdb_config.OFFSETS_PREFIX_V2
            ):
                if not key.startswith(rocksdb_config.OFFSETS_PREFIX_V2):
                    return
                if (entry := rocksdb_config.decode_offset_v2(key, value)) is not None:
                    yield entry


def _of_single_database(store: Path) -> Iterator[rocksdb_config.CommittedOffset]:
    yield from _in_family(store, ROCKSDB_SINGLE_FOLDER, rocksdb_config.SINGLE_OFFSETS_FAMILY)


def _of_version_1(store: Path) -> Iterator[rocksdb_config.CommittedOffset]:
    yield from _in_family(store, ROCKSDB_OFFSETS_FOLDER, rocksdb_config.FAMILY)


def _in_family(store: Path, name: str, family: str) -> Iterator[rocksdb_config.CommittedOffset]:
    folder = facts_of(store).local_database(CONFIG_FOLDER, name)
    if folder is not None:
        with RocksFolder(folder, (family,)) as database:
            for key, value in database.family_items(family):
                yield from rocksdb_config.decode_offsets_v1(key, value)


def _in_files(store: Path) -> Iterator[rocksdb_config.CommittedOffset]:
    """Yield offsets from files.

    With `enableLmq`, a broker has a further file for its light queues (LMQ), with one offset per light queue and group.
    """
    light = ConfigFile(store, LMQ_OFFSET_FILE, is_writable=False)
    content = light.load()
    try:
        for pair, offset in (content.get(_LMQ_TABLE) or {}).items():
            topic, _, group = pair.partition("@")
            yield rocksdb_config.CommittedOffset(group, topic, 0, int(offset))
        for pair, by_queue in (content.get("offsetTable") or {}).items():
            topic, _, group = pair.partition("@")
            for queue_id, offset in numbers(by_queue).items():
                yield rocksdb_config.CommittedOffset(group, topic, queue_id, offset)
    except (ValueError, TypeError, AttributeError):
        raise FormatError(
            light.path, 0, "offsetTable must be an object whose values are maps of numbers"
        ) from None
    for entry in ConsumerOffsets(store, is_writable=False).entries():
        yield rocksdb_config.CommittedOffset(*entry)
