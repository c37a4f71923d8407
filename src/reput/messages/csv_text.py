"""The CSV dialect: RFC 4180 with a newline after each line, a header, UTF-8.

A missing value is an empty cell, an empty text is `""`. docs/message-json.md describes the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reput.format.commit_log import MessageExt
from reput.format.properties import KEYS, TAGS, UNIQ_KEY
from reput.messages.bodies import sent_body
from reput.messages.json_codec import text_or_base64

MESSAGE_COLUMNS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "born_timestamp",
    "tags", "keys", "unique_key", "message_id", "body", "body_base64", "body_error",
)  # fmt: skip
"""What CSV contains of a message; a subset of the names that JSON has."""

QUOTED = r'[",\r\n]|^$|^[ \t]|[ \t]$'
"""Cells that need quotes, as a regular expression."""

FORMULA = r"^[=+\-@\t\r]"
"""Texts that a spreadsheet would run as a formula, as a regular expression."""

_QUOTED, _FORMULA = re.compile(QUOTED), re.compile(FORMULA)


def csv_line(cells: Iterable[str | int | None], *, is_safe: bool = False) -> str:
    """Return cells as one line with its end.

    Args:
        cells: values in their order.
        is_safe: whether to put a ' before texts that a spreadsheet would run as a formula.
    """
    return ",".join(_cell(cell, is_safe) for cell in cells) + "\n"


def message_cells(
    message: MessageExt, most_body_bytes: int | None = None
) -> tuple[str | int | None, ...]:
    """Return the values of MESSAGE_COLUMNS; a body that is longer than `most_body_bytes` stays compressed."""
    properties, sent = message.properties, sent_body(message, most_body_bytes)
    text, base64 = text_or_base64(sent.data)
    return (
        message.topic, message.queue_id, message.queue_offset, message.physical_offset,
        message.store_timestamp, message.born_timestamp, properties.get(TAGS), properties.get(KEYS),
        properties.get(UNIQ_KEY), message.message_id, text, base64, sent.error,
    )  # fmt: skip


def _cell(value: str | int | None, is_safe: bool) -> str:
    if not isinstance(value, str):
        return "" if value is None else str(value)
    if is_safe and _FORMULA.search(value):
        value = f"'{value}"
    return '"' + value.replace('"', '""') + '"' if _QUOTED.search(value) else value
