"""The fields of a message. Tables, JSON, CSV, downloads and puts derive from this list, and docs are compared with it.

A field is a column of the table, a field of JSON, or both. A new column of fixed size needs only a line in `FIELDS`.
Any other column also needs a method of `reput.engine.messages.decode.Records` that fills it. A field of JSON also needs
its name in `JSON_FIELDS`, and an attribute of `reput.format.commit_log.MessageExt`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from reput.format.commit_log import (
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    FLAG_POSITION,
    HEAD,
    PREPARED_OFFSET_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECONSUME_TIMES_POSITION,
    STORE_TIMESTAMP,
    SYS_FLAG_POSITION,
)

FieldType = Literal[
    "text", "host", "texts", "map", "bytes", "boolean", "int32", "int64", "time"
]  # fmt: skip
"""The type of a field. A host is a text. A time is a timestamp in a table, and milliseconds since 1970 elsewhere."""

IGNORED = "ignored"
"""Marks a field that a put accepts and ignores, because the store sets it."""

REQUIRED = "required"
"""Marks a field without which a message cannot be put."""


class Place(NamedTuple):
    """A place in a record: a part, by its name in `reput.kernels.record_columns.PARTS_DTYPE`, and a distance in bytes.

    The distance is from the start of the part, and may be negative.
    """

    part: Literal["record", "store_timestamp", "body"]
    step: int


class MessageField(NamedTuple):
    """A field of a message.

    Attributes:
        name: The column of the table.
        type: The type.
        put: The value that a put uses if the field is missing; or REQUIRED, or IGNORED.
        place: Where the value of a number, a time or a host begins in a record; None if it is derived otherwise.
        stop: Where a host ends.
        json: The field of JSON, and the attribute of `MessageExt`, if the name differs from the column's.
        forms: Further fields of JSON that have the value in another form.
        group: "message" for the columns that every table has, "damage" and "origin" for columns that must be named.
    """

    name: str
    type: FieldType
    put: object = IGNORED
    place: Place | None = None
    stop: Place | None = None
    json: str = ""
    forms: tuple[str, ...] = ()
    group: Literal["message", "damage", "origin"] = "message"

    @property
    def json_name(self) -> str:
        return self.json or self.name


_STORE_TIMESTAMP = Place("store_timestamp", 0)
_STORE_HOST = Place("store_timestamp", STORE_TIMESTAMP.size)
_RECONSUME_TIMES = Place("body", RECONSUME_TIMES_POSITION - HEAD.size)
_PREPARED_OFFSET = Place("body", PREPARED_OFFSET_POSITION - HEAD.size)

FIELDS = (
    MessageField("store", "text"),
    MessageField("topic", "text", REQUIRED),
    MessageField("queue_id", "int32", 0, Place("record", QUEUE_ID_POSITION)),
    MessageField("queue_offset", "int64", IGNORED, Place("record", QUEUE_OFFSET_POSITION)),
    MessageField("physical_offset", "int64"),
    MessageField("size", "int64", json="size_bytes"),
    MessageField("flag", "int32", 0, Place("record", FLAG_POSITION)),
    MessageField("sys_flag", "int32", 0, Place("record", SYS_FLAG_POSITION)),
    MessageField("born_timestamp", "time", None, Place("record", BORN_TIMESTAMP_POSITION)),
    MessageField("born_host", "host", None, Place("record", BORN_HOST_POSITION), _STORE_TIMESTAMP),
    MessageField("store_timestamp", "time", IGNORED, _STORE_TIMESTAMP),
    MessageField("store_host", "host", IGNORED, _STORE_HOST, _RECONSUME_TIMES),
    MessageField("reconsume_times", "int32", 0, _RECONSUME_TIMES),
    MessageField("prepared_transaction_offset", "int64", 0, _PREPARED_OFFSET),
    MessageField("transaction", "text"),
    MessageField("unique_key", "text", None),
    MessageField("keys", "texts", None),
    MessageField("tags", "text", None),
    MessageField("properties", "map", None, forms=("properties_string", "properties_base64")),
    MessageField("body", "bytes", None, forms=("body_base64", "body_stored_base64")),
    MessageField("body_crc_ok", "boolean", True),
    MessageField("message_id", "text"),
    MessageField("corrupt_reason", "text", group="damage"),
    MessageField("body_error", "text", None, group="damage"),
    MessageField("unique_keys", "texts", group="damage"),
    MessageField("broker", "text", group="origin"),
    MessageField("cluster", "text", group="origin"),
    MessageField("real_topic", "text", group="origin"),
    MessageField("real_queue_id", "int32", group="origin"),
)
"""All fields, in the order of the table's columns.

store                  name of the store; its path unless another name was given
physical_offset        actual position in the CommitLog, even if the record states another one
size                   bytes of the record
times                  null in a table if the stored milliseconds do not fit into 64 bits as microseconds
unique_key, tags       null if they are missing; missing keys and properties are empty
body                   decompressed, unless requested as stored; see body_error
body_crc_ok            whether the stored body matches the stored CRC
corrupt_reason         why a range of the log could not be read; null for messages
body_error             why a compressed body was not decompressed: it is damaged, or would exceed
                       `reput.format.bodies.MAX_BODY_BYTES`. `body` then has the stored bytes
unique_keys            all UNIQ_KEYs of a message, in order. If a 5.x client sends a list of messages in one call, each
                       has two: first its own id, which the producer receives, and last the id of the list. The column
                       `unique_key` has the last one
broker, cluster        names; null if the store was given without names
real_topic             topic for which a delayed, timed, half, retry or dead-letter message is meant, null if unknown;
                       other messages: their topic
real_queue_id          queue of that topic; null for retry and dead-letter messages, whose records do not state it
"""

NAMED_FIELDS = {field.name: field for field in FIELDS}
"""The fields by the names of their columns."""

JSON_FIELDS = tuple(
    NAMED_FIELDS[name]
    for name in (
        "message_id", "unique_key", "topic", "queue_id", "queue_offset", "physical_offset", "size", "store_timestamp",
        "store_host", "born_timestamp", "born_host", "flag", "sys_flag", "transaction", "reconsume_times",
        "prepared_transaction_offset", "body_crc_ok", "tags", "keys", "properties", "body", "body_error",
    )
)  # fmt: skip
"""The fields of a message in JSON, in order. Answers of several stores have the field `store` before these."""

CSV_NAMES = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "born_timestamp", "tags", "keys",
    "unique_key", "message_id", "body", "body_base64", "body_error",
)  # fmt: skip
"""The columns of a message in CSV: some fields of JSON."""

PUT_NAMES = tuple(
    name
    for field in (NAMED_FIELDS["store"], *JSON_FIELDS)
    for name in (field.json_name, *field.forms)
)
"""All fields of JSON that a put accepts."""

IGNORED_FIELDS = tuple(
    field for field in (NAMED_FIELDS["store"], *JSON_FIELDS) if field.put == IGNORED
)
"""The fields of JSON that a put ignores, because the store sets them."""
