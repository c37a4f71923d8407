"""Read the broker's settings on which the bytes of a store depend.

Names and defaults mirror `org.apache.rocketmq.store.config.MessageStoreConfig` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike, fspath
from pathlib import Path

from reput.base.arguments import check_fields
from reput.errors import StoreAccessError, StoreNotFoundError, UsageError
from reput.format.consume_queue import BATCH_ENTRY_BYTES, ENTRY_BYTES
from reput.format.index_file import file_bytes

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
STORE_VERSIONS = ("4.9", "5.3", "5.4", "5.5")
LOG_SETTING = "commit_log_file_bytes"
QUEUE_SETTINGS = ("queue_entries", "batch_queue_file_bytes", "extension_file_bytes")
INDEX_SETTINGS = ("hash_slots", "index_items")
"""LOG_SETTING, QUEUE_SETTINGS and INDEX_SETTINGS: the fields of StoreConfig that determine the sizes of files."""
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_DELAY_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
# Name and value of a line in a properties file. The name ends at the first separator that is not escaped.
_PROPERTY = re.compile(r"((?:[^\\=: \t\f]|\\.?)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The broker's settings that determine the bytes of a store or the broker's answers.

    Attributes:
        commit_log_file_bytes: Size of a CommitLog file (mappedFileSizeCommitLog).
        queue_entries: Number of 20-byte entries in a ConsumeQueue file (mappedFileSizeConsumeQueue / 20, rounded up).
        hash_slots: Number of slots of an IndexFile (maxHashSlotNum).
        index_items: Number of items of an IndexFile (maxIndexNum). The first item is never used.
        delay_levels: Delays of SCHEDULE_TOPIC_XXXX, level 1 first (messageDelayLevel).
        enable_multi_dispatch: Whether to dispatch messages to the queues in INNER_MULTI_DISPATCH (enableMultiDispatch).
        enable_lmq: Whether the queues in INNER_MULTI_DISPATCH whose names start with %LMQ% have the queue id 0
            (enableLmq).
        max_query_messages: Maximum number of offsets that IndexService.queryOffset returns (maxMsgsNumBatch).
        max_message_bytes: Longest record that can be put (maxMessageSize).
        batch_queue_file_bytes: Size of a batch queue file (mapperFileSizeBatchConsumeQueue, 5.x).
        extension_files: Whether ConsumeQueue entries have units in consumequeue_ext/ (enableConsumeQueueExt).
        extension_file_bytes: Size of a file of such units (mappedFileSizeConsumeQueueExt).
        queues_in_rocksdb: Whether queues are in a RocksDB database (storeType=defaultRocksDB, 5.x).
        log_folders: All folders of a CommitLog that is spread over several folders. Their paths are written as in the
            broker's settings (storePathCommitLog, readOnlyCommitLogStorePaths). Empty for a CommitLog in one folder.
        store_version: "4.9", "5.3", "5.4" or "5.5", the version whose records are written. None stands for the version
            of the store, and for 4.9 in a new store.
        append_record_crc: Whether to end each record with its own CRC (enabledAppendPropCRC, 5.x).
        check_record_crc: Whether recovery verifies the record's own CRC instead of the body's, and ends the log at a
            record without it (forceVerifyPropCRC, 5.x).
        index_tags_from: Physical offset from which IndexFiles also have an item for the tags of each message, as
            brokers of 5.4 and later write it. None if no message has one. By default, the IndexFiles and the version
            decide.
        accelerated_recovery: Whether recovery checks the log only from the offset that queues in RocksDB state
            (enableAcceleratedRecovery, 5.4).

    In RocketMQ: mappedFileSize, fileSize, fileTotalSize, checkMultiDispatchQueue.
    """

    commit_log_file_bytes: int = 1 << 30
    queue_entries: int = 300_000
    hash_slots: int = 5_000_000
    index_items: int = 20_000_000
    delay_levels: str = DEFAULT_DELAY_LEVELS
    enable_multi_dispatch: bool = False
    enable_lmq: bool = False
    max_query_messages: int = 64
    max_message_bytes: int = 4 << 20
    log_folders: tuple[str, ...] = ()
    batch_queue_file_bytes: int = 300_000 * BATCH_ENTRY_BYTES
    store_version: str | None = None
    append_record_crc: bool = False
    check_record_crc: bool = False
    extension_files: bool = False
    extension_file_bytes: int = 48 << 20
    queues_in_rocksdb: bool = False
    index_tags_from: int | None = None
    accelerated_recovery: bool = False

    def __post_init__(self) -> None:
        # JSON has no tuples: if the settings were read from JSON, `log_folders` is a list, which is not hashable.
        object.__setattr__(self, "log_folders", tuple(self.log_folders))
        check_fields(self)
        _require(self.queue_entries >= 1, "queue_entries must be at least 1", "queue_entries")
        _require(
            self.queue_entries * ENTRY_BYTES <= _INT32_MAX,
            "queue_entries must leave a ConsumeQueue file below 2 GiB",
            "queue_entries",
        )
        _require(self.hash_slots >= 1, "hash_slots must be at least 1", "hash_slots")
        _require(self.index_items >= 2, "index_items must be at least 2", "index_items")
        _require(
            self.index_file_bytes <= _INT32_MAX,
            "hash_slots and index_items make an IndexFile of 2 GiB or more",
            "hash_slots",
            "index_items",
        )
        _require(
            BATCH_ENTRY_BYTES <= self.batch_queue_file_bytes <= _INT32_MAX,
            "batch_queue_file_bytes must have room for an entry",
            "batch_queue_file_bytes",
        )
        _require(
            self.store_version in (None, *STORE_VERSIONS),
            f"store_version must be one of {', '.join(STORE_VERSIONS)}, not {self.store_version!r}",
            "store_version",
        )
        _require(
            64 <= self.extension_file_bytes <= _INT32_MAX,
            "extension_file_bytes must have room for a unit",
            "extension_file_bytes",
        )
        self.delay_table_ms()

    @property
    def is_five(self) -> bool:
        """Return whether records are written in the form of 5.x."""
        return self.store_version not in (None, STORE_VERSIONS[0])

    @property
    def is_since_5_4(self) -> bool:
        """Return whether the broker is of 5.4 or later: it indexes tags, and adds no properties of a batch."""
        return self.store_version in STORE_VERSIONS[2:]

    @property
    def queue_file_bytes(self) -> int:
        return self.queue_entries * ENTRY_BYTES

    @property
    def index_file_bytes(self) -> int:
        return file_bytes(self.hash_slots, self.index_items)

    def delay_table_ms(self) -> list[int]:
        """Return the delay of each level (ms), level 1 at position 0 (ScheduleMessageService.parseDelayLevel).

        Raises UsageError for a text with which the broker would not start.
        """
        table = []
        for text in self.delay_levels.rstrip(" ").split(" "):
            number, unit = text[:-1], text[-1:]
            if unit not in _DELAY_UNIT_MS or not _NUMBER.fullmatch(number):
                raise UsageError(
                    f"messageDelayLevel: {text!r} is not a number followed by s, m, h or d"
                )
            table.append(int(number) * _DELAY_UNIT_MS[unit])
            _require(
                abs(table[-1]) <= _INT64_MAX, f"messageDelayLevel: {text!r} is too long a time"
            )
        return table

    @classmethod
    def from_broker_config(cls, path: str | PathLike[str]) -> StoreConfig:
        """Read the settings of a `broker.conf`, a Java properties file.

        Unknown names are ignored. Raises StoreNotFoundError, StoreAccessError, UsageError.
        """
        return cls.from_broker_settings(read_properties(path), fspath(path))

    @classmethod
    def from_broker_settings(
        cls, settings: Mapping[str, str], where: str = "settings"
    ) -> StoreConfig:
        """Return a configuration from a broker's settings: a mapping of names (`maxHashSlotNum`, ...) to texts."""
        changes: dict[str, int | bool | str | tuple[str, ...]] = {}
        for name, text in settings.items():
            field = _BROKER_NAMES.get(name)
            if field is None:
                continue
            changes[field] = _convert(field, text, f"{where}: {name}")
        queue_bytes = changes.get("queue_entries")
        # Like the broker, round the file size up to whole entries.
        if isinstance(queue_bytes, int):
            changes["queue_entries"] = -(-queue_bytes // ENTRY_BYTES)
        if len(named := _log_paths(settings)) > 1:
            changes["log_folders"] = named
        if settings.get("storeType", "").strip() == _ROCKSDB_STORE:
            changes["queues_in_rocksdb"] = True
        return replace(cls(), **changes)  # type: ignore[arg-type]


_BROKER_NAMES = {
    "mappedFileSizeCommitLog": "commit_log_file_bytes",
    "mappedFileSizeConsumeQueue": "queue_entries",
    "maxHashSlotNum": "hash_slots",
    "maxIndexNum": "index_items",
    "messageDelayLevel": "delay_levels",
    "enableMultiDispatch": "enable_multi_dispatch",
    "enableLmq": "enable_lmq",
    "maxMsgsNumBatch": "max_query_messages",
    "maxMessageSize": "max_message_bytes",
    "mapperFileSizeBatchConsumeQueue": "batch_queue_file_bytes",
    "enabledAppendPropCRC": "append_record_crc",
    "forceVerifyPropCRC": "check_record_crc",
    "enableConsumeQueueExt": "extension_files",
    "mappedFileSizeConsumeQueueExt": "extension_file_bytes",
    "enableAcceleratedRecovery": "accelerated_recovery",
}
_ROCKSDB_STORE = "defaultRocksDB"
_LOG_PATHS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
_FIELD_TYPES = {field.name: field.type for field in fields(StoreConfig)}


def _log_paths(settings: Mapping[str, str]) -> tuple[str, ...]:
    folders = [part for name in _LOG_PATHS for part in settings.get(name, "").split(",")]
    return tuple(part.strip() for part in folders if part.strip())


def log_paths_of(path: str | PathLike[str]) -> tuple[str, ...]:
    """Return the folders of the CommitLog that a broker's configuration file names; none by default.

    Raises StoreNotFoundError, StoreAccessError.
    """
    return _log_paths(read_properties(path))


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """Read a Java properties file as java.util.Properties.load does. The last value of a name wins.

    Raises StoreNotFoundError, StoreAccessError.
    """
    try:
        text = Path(path).read_text(encoding="latin-1")
    except FileNotFoundError:
        raise StoreNotFoundError(f"{fspath(path)}: no such file (broker configuration)") from None
    except OSError as error:
        raise StoreAccessError(f"{fspath(path)}: cannot be read: {error.strerror}") from error
    settings = {}
    for line in _logical_lines(text):
        name, value = _PROPERTY.fullmatch(line).groups()  # type: ignore[union-attr]
        settings[_unescape(name)] = _unescape(value)
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank lines. A line that ends with a backslash is joined with the next one."""
    line = ""
    for part in text.split("\n"):
        part = part.lstrip(" \t\f")
        if not line and (not part or part[0] in "#!"):
            continue
        line += part
        # Only an odd number of backslashes continues the line: each pair is one escaped backslash.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1]
        else:
            yield line
            line = ""
    if line:
        yield line


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _character(match[1]), text)


def _character(escape: str) -> str:
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escape, escape)


def _convert(field: str, text: str, where: str) -> int | bool | str:
    kind = _FIELD_TYPES[field]
    if kind == "bool":
        return text.lower() == "true"
    return whole_number(text, where) if kind == "int" else text


def whole_number(text: str, where: str) -> int:
    """Parse a 32-bit integer as a broker does. Raises UsageError, whose message begins with `where`."""
    if not _NUMBER.fullmatch(text) or not -_INT32_MAX - 1 <= int(text) <= _INT32_MAX:
        raise UsageError(f"{where} must be an integer of 32 bits, not {text!r}")
    return int(text)


def _require(true: bool, otherwise: str, *arguments: str) -> None:
    if not true:
        raise UsageError(otherwise, arguments=arguments)
