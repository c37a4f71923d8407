"""Read the parts of a record that a query by key needs, without its body and hosts."""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.core.log.reader import LocatedRecord
from reput.format.commit_log import (
    PHYSICAL_OFFSET_POSITION,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.format.index_file import index_key, key_hash
from reput.format.java_string import decode_utf8
from reput.format.properties import UNIQ_KEY, decode_properties, index_keys, replaced_ids

_LONG = struct.Struct(">q")


class KeyedRecord(NamedTuple):
    """Topic and keys of a record, as a broker would index them.

    physical_offset  place of the record in the log
    stated_offset    the physical offset that the record states
    keys             keys of its index entries: the unique key, then KEYS; empty for a rolled-back message,
                     because a broker does not index it
    own_ids          values of UNIQ_KEY without an index entry: if a record has several, only the last one is indexed
    """

    physical_offset: int
    stated_offset: int
    size_bytes: int
    topic: str
    keys: tuple[str, ...]
    unique_key: str | None
    store_timestamp: int
    own_ids: tuple[str, ...] = ()

    def has_key_hash(self, wanted: int) -> bool:
        """Return whether an index entry with this hash can refer to this record."""
        # The unique key comes last: it is the longest key, and rarely the wanted one.
        return any(key_hash(index_key(self.topic, key)) == wanted for key in reversed(self.keys))


def read_properties(record: LocatedRecord) -> dict[str, str]:
    """Return the record's properties as the broker's parser reads them."""
    return decode_properties(_properties_text(record))


def _properties_text(record: LocatedRecord) -> str:
    _, data, layout = record
    start = layout.properties_position
    return decode_utf8(data[start : start + layout.properties_bytes])


def store_timestamp(record: LocatedRecord) -> int:
    """Return the record's store time, in milliseconds since 1970."""
    timestamp: int = _LONG.unpack_from(record.data, record.layout.store_timestamp_position)[0]
    return timestamp


def read_keyed_record(record: LocatedRecord) -> KeyedRecord:
    offset, data, layout = record
    topic = data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    text = _properties_text(record)
    properties = decode_properties(text)
    rolled_back = layout.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_ROLLBACK
    return KeyedRecord(
        physical_offset=offset,
        stated_offset=_LONG.unpack_from(data, layout.position + PHYSICAL_OFFSET_POSITION)[0],
        size_bytes=layout.total_bytes,
        topic=decode_utf8(topic),
        keys=() if rolled_back else tuple(index_keys(properties)),
        unique_key=None if rolled_back else properties.get(UNIQ_KEY),
        store_timestamp=store_timestamp(record),
        own_ids=() if rolled_back else tuple(replaced_ids(text)),
    )
