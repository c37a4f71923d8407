"""Limit the memory that untrusted JSON takes when it is decoded.

A value of one or two characters, such as `[]` or `{}`, takes up to 100 bytes as a Python object. So the number of
values is limited as well as the size. The limit is an upper bound: commas and brackets in strings count.
"""

from __future__ import annotations

MOST_JSON_BYTES = 64 << 20
MOST_JSON_VALUES = 4 << 20
"""They take some 400 MiB. A topic in `topics.json` has 12 values, a group with 8 queues in `consumerOffset.json` 10."""


def check_json(data: bytes) -> None:
    """Raise ValueError if the text is longer than MOST_JSON_BYTES, or has more than MOST_JSON_VALUES values."""
    if len(data) > MOST_JSON_BYTES:
        raise ValueError(f"has more than {MOST_JSON_BYTES:,} bytes")
    # Each value takes at least one byte, so most files need not be counted.
    if len(data) > MOST_JSON_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > MOST_JSON_VALUES:
        raise ValueError(f"has more than {MOST_JSON_VALUES:,} values")
