"""A broker's configuration in RocksDB: consumer offsets and topics (tag rocketmq-all-5.3.3).

Version 1 (`broker.config.v1`) has one database for each kind of setting: `config/consumerOffsets/`, `config/topics/`
and `config/subscriptionGroups/`, column family `default`. Keys are names, values are JSON. For offsets, the name is
`topic@group`, and the JSON is `{"offsetTable":{queue id:offset}}`. A broker of 5.5 may have one database for all kinds
(`useSingleRocksDBForAllConfigs`): `config/metadata/`, with a column family for each kind, and the same keys and values.

Version 2 (`configManagerVersion=v2`, `broker.config.v2`) has one database, `config/rdb/`, column family `default`:

    offsets  key:   1 | table 2 (1) | 2 | length 2 | group | 1 | length 2 | topic | 1 | queue id 4
             value: offset 8
    topics   key:   1 | table 2 (3) | 2 | length 2 | topic
             value: 1 | JSON
    groups   key:   1 | table 2 (4) | 2 | length 2 | group
             value: 1 | JSON

Fields are separated by bars. A number without a name is a field of one byte with this value. A number after a name is
the length of the field in bytes, and a number in parentheses is its value. All integers are big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from reput.format.file_names import (
    ROCKSDB_CONFIG_FOLDER,
    ROCKSDB_GROUPS_FOLDER,
    ROCKSDB_SINGLE_FOLDER,
    ROCKSDB_TOPICS_FOLDER,
)
from reput.format.java_string import decode_utf8, wrap_int64
from reput.format.untrusted_json import parse_java_json

FAMILY = "default"
SINGLE_OFFSETS_FAMILY, SINGLE_TOPICS_FAMILY = "consumerOffset", "topic"
SINGLE_GROUPS_FAMILY = "subscriptionGroup"
_PREFIX = struct.Struct(">bhb")
_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_TABLE, _DATA = 1, 2
_OFFSETS, _TOPICS, _GROUPS = 1, 3, 4
_SEPARATOR = b"\x01"
_JSON = 1
OFFSETS_PREFIX_V2 = _PREFIX.pack(_TABLE, _OFFSETS, _DATA)
TOPICS_PREFIX_V2 = _PREFIX.pack(_TABLE, _TOPICS, _DATA)
GROUPS_PREFIX_V2 = _PREFIX.pack(_TABLE, _GROUPS, _DATA)
SETTINGS = {
    "topics": {
        ROCKSDB_CONFIG_FOLDER: (FAMILY, TOPICS_PREFIX_V2),
        ROCKSDB_SINGLE_FOLDER: (SINGLE_TOPICS_FAMILY, b""),
        ROCKSDB_TOPICS_FOLDER: (FAMILY, b""),
    },
    "groups": {
        ROCKSDB_CONFIG_FOLDER: (FAMILY, GROUPS_PREFIX_V2),
        ROCKSDB_SINGLE_FOLDER: (SINGLE_GROUPS_FAMILY, b""),
        ROCKSDB_GROUPS_FOLDER: (FAMILY, b""),
    },
}
"""Where a database has settings, by its folder in config/: the column family, and in version 2 the prefix of keys."""


class CommittedOffset(NamedTuple):
    """The queue offset of the next message that a group reads from a queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


def decode_offset_v2(key: bytes, value: bytes) -> CommittedOffset | None:
    """Return the offset that an item of version 2 states; None for any other item."""
    if not key.startswith(OFFSETS_PREFIX_V2) or len(value) != _LONG.size:
        return None
    group = _name(key, len(OFFSETS_PREFIX_V2))
    if group is None or key[group[1] : group[1] + 1] != _SEPARATOR:
        return None
    topic = _name(key, group[1] + 1)
    if topic is None or key[topic[1] : topic[1] + 1] != _SEPARATOR:
        return None
    if len(key) != topic[1] + 1 + _INT.size:
        return None
    queue_id = _INT.unpack_from(key, topic[1] + 1)[0]
    return CommittedOffset(group[0], topic[0], queue_id, _LONG.unpack(value)[0])


def decode_offsets_v1(key: bytes, value: bytes) -> Iterator[CommittedOffset]:
    """Yield the offsets that an item of version 1 states. Other items and malformed JSON are skipped."""
    names = decode_utf8(key).split("@")
    try:
        table = parse_java_json(value).get("offsetTable")
        offsets = {int(queue_id): wrap_int64(int(offset)) for queue_id, offset in table.items()}
    # The JSON may have any form, because the database also has items of other kinds.
    except (ValueError, TypeError, AttributeError, RecursionError):
        return
    # Other items have keys of another form than `topic@group`.
    if len(names) == 2:
        for queue_id, offset in offsets.items():
            yield CommittedOffset(names[1], names[0], queue_id, offset)


def decode_settings(
    key: bytes, value: bytes, prefix: bytes = b""
) -> tuple[str, dict[str, Any]] | None:
    """Return a topic or group and its settings; None for any other item.

    `prefix` is the one of the table in version 2, and empty in version 1.
    """
    if not prefix:
        name, json = decode_utf8(key), value
    else:
        found = _name(key, len(prefix)) if key.startswith(prefix) else None
        if found is None or found[1] != len(key) or value[:1] != bytes([_JSON]):
            return None
        name, json = found[0], value[1:]
    try:
        config = parse_java_json(json)
    except (ValueError, RecursionError):
        return None
    return (name, config) if isinstance(config, dict) else None


def _name(key: bytes, at: int) -> tuple[str, int] | None:
    """Return a length-prefixed name and the position after it."""
    if len(key) < at + _SHORT.size:
        return None
    begin = at + _SHORT.size
    end = begin + _SHORT.unpack_from(key, at)[0]
    return (decode_utf8(key[begin:end]), end) if begin <= end <= len(key) else None
