"""Limit the memory that untrusted JSON takes when it is decoded.

A value of one or two characters, such as `[]` or `{}`, takes up to 100 bytes as a Python object. So the number of
values is limited as well as the size. The limit is an upper bound: commas and brackets in strings count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MOST_JSON_BYTES = 64 << 20
MOST_JSON_VALUES = 4 << 20
"""They take some 400 MiB. A topic in `topics.json` has 12 values, a group with 8 queues in `consumerOffset.json` 10."""


def check_json(data: bytes, most_bytes: int | None = None) -> None:
    """Raise ValueError for more than `most_bytes` (by default MOST_JSON_BYTES) or MOST_JSON_VALUES."""
    most = most_bytes or MOST_JSON_BYTES
    if len(data) > most:
        raise ValueError(f"has more than {most:,} bytes")
    _check_values(len(data), map(data.count, (b",", b"[", b"{")))


def parse_json(data: str | bytes, most_values: int | None = None) -> Any:
    """Parse JSON of at most `most_values` (by default MOST_JSON_VALUES). Raises ValueError."""
    text = data if isinstance(data, str) else data.decode()
    _check_values(len(text), map(text.count, ",[{"), most_values)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _check_values(length: int, counts: Iterable[int], most_values: int | None = None) -> None:
    most = most_values or MOST_JSON_VALUES
    # Each value takes at least one character, so most files need not be counted.
    if length > most and sum(counts) > most:
        raise ValueError(f"has more than {most:,} values")
