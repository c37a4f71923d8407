"""Write messages as CSV: RFC 4180 with a header line, LF line ends and UTF-8.

A missing value is an empty cell; an empty text is `""`. docs/message-json.md describes the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reput.engine.messages.json_codec import text_or_base64
from reput.format.bodies import sent_body
from reput.format.commit_log import MessageExt
from reput.format.message_fields import CSV_NAMES
from reput.format.properties import KEYS, TAGS, UNIQ_KEY

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
