"""Define the differences between the records of broker versions.

Mirrors `MessageExtEncoder`, `CommitLog.encodeMessage` and `MessageDecoder.messageProperties2String` (tag
rocketmq-all-5.3.3). The default form is that of tag rocketmq-all-4.9.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from reput.base import StoreConfig
from reput.errors import MessageRefusedError
from reput.format.commit_log import (
    CRC_PROPERTY_BYTES,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    TOPIC_V1,
    TOPIC_V2,
    encode_crc_property,
)
from reput.format.file_names import is_folder_name
from reput.format.java_string import encode_utf8
from reput.format.properties import PROPERTY_SEPARATOR

# A 5.x broker writes record V2 for a topic of more than Byte.MAX_VALUE characters (UTF-16 units).
_MOST_UNITS_V1 = 127
_SEPARATOR_BYTE = PROPERTY_SEPARATOR.encode()


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The form of a store's records.

    Attributes:
        is_five: Whether records have the form of 5.x: magic V2 for long topics, a separator after each property.
        has_crc: Whether each record ends with a property for its own CRC (enabledAppendPropCRC).
        ending: Text after the last property.
        most_properties_bytes: Maximum size of the properties, without the CRC.
    """

    is_five: bool = False
    has_crc: bool = False
    ending: str = field(init=False, compare=False)
    most_properties_bytes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Compute these two fields once, because every put reads them.
        set_field = object.__setattr__
        set_field(self, "ending", PROPERTY_SEPARATOR if self.is_five else "")
        set_field(self, "most_properties_bytes", MAX_PROPERTIES_BYTES - self.crc_bytes)

    @classmethod
    def of(cls, config: StoreConfig) -> RecordForm:
        return cls(config.is_five, config.append_record_crc and config.is_five)

    @property
    def crc_bytes(self) -> int:
        """Return the size of the CRC property at a record's end; 0 if records have no CRC property."""
        return CRC_PROPERTY_BYTES if self.has_crc else 0

    def encode_topic(self, topic: str) -> bytes:
        """Encode a topic. Raises MessageRefusedError for a topic that does not fit a record or a folder name."""
        data = encode_utf8(topic)
        units = len(topic.encode("utf-16-le", "surrogatepass")) // 2
        if len(data) > MAX_TOPIC_BYTES and not (self.is_five and units > _MOST_UNITS_V1):
            raise MessageRefusedError(
                f"topic of {len(data)} bytes in UTF-8: at most {MAX_TOPIC_BYTES} bytes fit into a record"
                + self._room_of_five()
            )
        if not is_folder_name(topic):
            raise MessageRefusedError(f"topic {topic!r} cannot be the name of a folder")
        return data

    def _room_of_five(self) -> str:
        return f", unless it has more than {_MOST_UNITS_V1} characters" * self.is_five

    def check_properties(self, data: bytes) -> bytes:
        """Return the properties string in the form that a record contains, but without the CRC property at its end.

        Raises MessageRefusedError if it is too long.
        """
        if self.has_crc and data and not data.endswith(_SEPARATOR_BYTE):
            data += _SEPARATOR_BYTE
        if len(data) > self.most_properties_bytes:
            room = f"at most {self.most_properties_bytes} bytes fit into a record"
            raise MessageRefusedError(f"properties of {len(data)} bytes: {room}")
        return data


FORM_OF_FOUR = RecordForm()
FORM_OF_FIVE = RecordForm(is_five=True)


def with_length(topic: bytes) -> bytes:
    """Return an encoded topic with its length in front."""
    layout = TOPIC_V1 if len(topic) <= MAX_TOPIC_BYTES else TOPIC_V2
    return layout.pack(len(topic)) + topic


def magic_of(topic: bytes) -> int:
    """Return the magic of a record with this length-prefixed topic."""
    return MESSAGE_MAGIC if len(topic) <= TOPIC_V1.size + MAX_TOPIC_BYTES else MESSAGE_MAGIC_V2


def with_crc(record: bytes) -> bytes:
    """Fill in the CRC property of a record that ends with room for it."""
    before = record[:-CRC_PROPERTY_BYTES]
    return before + encode_crc_property(crc32(before) & 0x7FFFFFFF)
