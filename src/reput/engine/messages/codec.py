"""Write a message as JSON or CSV. `query`, `tail`, `show` and `export` use these forms; `json_lines` reads JSON back.

docs/message-json.md describes the fields and columns, which are stable; new ones may be added. CSV is that of RFC 4180,
with a header line, LF line ends and UTF-8; a missing value is an empty cell, an empty text is `""`.
`reput.engine.messages.message_lines` writes the same lines for many records at once, `reput.engine.messages.table_text`
for rows of a table.
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from reput.base import json_text
from reput.core import LocatedRecord
from reput.format.bodies import sent_body
from reput.format.commit_log import MessageExt
from reput.format.java_string import encode_utf8, hash_map_order
from reput.format.message_fields import CSV_NAMES, JSON_FIELDS, MessageField
from reput.format.properties import KEYS, TAGS, UNIQ_KEY, encode_properties, split_keys

_KERNELS = "reput.engine.messages.message_lines"
# For so few messages, Python is faster than the kernels.
_FEW_AT_ONCE = 64
_FEW_IN_ALL = 10_000


def message_fields(message: MessageExt, most_body_bytes: int | None = None) -> dict[str, Any]:
    """Return the JSON fields of a message, in order.

    Bytes that are not UTF-8 become `body_base64` and `properties_base64`. The body is decompressed. If it was
    compressed, its stored bytes are a further field, so that `put` can write them unchanged. If decompression fails,
    the body is as stored, and `body_error` states the reason. A body above `most_body_bytes` is omitted, which
    `body_error` reports.
    """
    # Each attribute of a message that comes from its properties would decode them once more.
    properties = message.properties
    decoded = {
        "unique_key": properties.get(UNIQ_KEY),
        "tags": properties.get(TAGS),
        "keys": split_keys(properties.get(KEYS, "")),
        "properties": properties,
    }
    return {
        **{
            name: decoded[name] if name in decoded else value_of(message)
            for name, value_of in _VALUES
        },
        **_properties_string(message.properties_bytes, properties),
        **_body(message, most_body_bytes),
    }


def field_value(field: MessageField) -> Callable[[MessageExt], Any]:
    """Return a function that returns the value of a field of a message, except the name of its store."""
    value_of = attrgetter(field.json_name)
    return (lambda message: str(value_of(message))) if field.type == "host" else value_of


_VALUES = [
    (field.json_name, field_value(field))
    for field in JSON_FIELDS
    if field.name not in ("body", "body_error")
]


def message_line(message: MessageExt) -> bytes:
    """Return a message as one line of JSON Lines in UTF-8, without the line end."""
    return json_text(message_fields(message)).encode()


def text_or_base64(data: bytes) -> tuple[str, None] | tuple[None, str]:
    """Return (text, None) if the bytes are UTF-8, else (None, base64)."""
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, b64encode(data).decode("ascii")


def _body(message: MessageExt, most_bytes: int | None) -> dict[str, str]:
    sent = sent_body(message, most_bytes)
    if most_bytes is not None and max(len(sent.data), len(message.body)) > most_bytes:
        return {
            "body": "",
            "body_error": f"the body is omitted, because it is longer than {most_bytes} bytes",
        }
    fields = _text("body", "body_base64", sent.data)
    if sent.was_compressed:
        fields["body_stored_base64"] = b64encode(message.body).decode("ascii")
    if sent.error is not None:
        fields["body_error"] = sent.error
    return fields


def _properties_string(data: bytes, properties: dict[str, str]) -> dict[str, str]:
    """Return a field with the stored properties string if the map `properties` is not enough to restore it.

    The map is enough if a message that is put with these properties gets the same string. Then return no field.
    """
    if UNIQ_KEY in properties:  # Without a UNIQ_KEY, a put would add a new one to the properties.
        order = hash_map_order(tuple(properties))
        if data == encode_utf8(encode_properties({name: properties[name] for name in order})):
            return {}
    return _text("properties_string", "properties_base64", data)


def _text(name: str, name_of_base64: str, data: bytes) -> dict[str, str]:
    text, base64 = text_or_base64(data)
    return {name: text or ""} if base64 is None else {name_of_base64: base64}


class RecordLines:
    """Writes one JSON line per message, in UTF-8 with a line end.

    If there are few lines, Python writes them: loading the kernels takes as long as writing ten thousand lines in
    Python.
    """

    def __init__(self) -> None:
        self._count = 0

    def of(self, records: Sequence[LocatedRecord]) -> Iterator[bytes | memoryview]:
        """Yield the lines of records in pieces. A piece is valid until the next one is requested."""
        self._count += len(records)
        is_worth_loading = self._count > _FEW_IN_ALL or _KERNELS in sys.modules
        if len(records) <= _FEW_AT_ONCE or not is_worth_loading:
            for record in records:
                yield message_line(record.message()) + b"\n"
            return
        from reput.engine.messages.message_lines import record_lines

        yield from record_lines(records)


QUOTED = r'[",\r\n]|^$|^[ \t]|[ \t]$'
"""Regular expression of cells that need quotes."""

FORMULA = r"^[=+\-@\t\r]"
"""Regular expression of texts that a spreadsheet would run as a formula."""

_QUOTED, _FORMULA = re.compile(QUOTED), re.compile(FORMULA)


def csv_line(cells: Iterable[str | int | None], *, is_safe: bool = False) -> str:
    """Return cells as one line, including the line end.

    Args:
        cells: The values.
        is_safe: Whether to put a ' before texts that a spreadsheet would run as a formula.
    """
    return ",".join(_cell(cell, is_safe) for cell in cells) + "\n"


def message_cells(
    message: MessageExt, most_body_bytes: int | None = None
) -> tuple[str | int | None, ...]:
    """Return the values of CSV_NAMES.

    A body stays compressed if its decompressed size exceeds `most_body_bytes`.
    """
    properties, sent = message.properties, sent_body(message, most_body_bytes)
    text, base64 = text_or_base64(sent.data)
    decoded = {
        "tags": properties.get(TAGS), "keys": properties.get(KEYS), "unique_key": properties.get(UNIQ_KEY),
        "body": text, "body_base64": base64, "body_error": sent.error,
    }  # fmt: skip
    return tuple(decoded[name] if name in decoded else getattr(message, name) for name in CSV_NAMES)


def _cell(value: str | int | None, is_safe: bool) -> str:
    if not isinstance(value, str):
        return "" if value is None else str(value)
    if is_safe and _FORMULA.search(value):
        value = f"'{value}"
    return '"' + value.replace('"', '""') + '"' if _QUOTED.search(value) else value
