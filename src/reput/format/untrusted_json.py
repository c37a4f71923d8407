"""JSON that others wrote: parse it within limits of memory, and in the form that fastjson writes.

A value of one or two characters, such as `[]` or `{}`, takes up to 100 bytes as a Python object. So the number of
values is limited as well as the size. The limit is an upper bound: commas and brackets in strings count.

In RocketMQ's files and bodies, which fastjson writes and reads, number keys of maps are not quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

MOST_JSON_BYTES = 64 << 20
MOST_JSON_VALUES = 4 << 20
"""They take some 400 MiB. A topic in `topics.json` has 12 values, a group with 8 queues in `consumerOffset.json` 10."""
# Matches a whole string, or a number that is the unquoted key of an object. An unterminated string is matched up to the
# end of the text: otherwise the search would start again at each quote in the string, and take quadratic time.
_NAME = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])\s*+-?[0-9]++\s*+(?=:)', re.DOTALL)


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


def parse_java_json(data: bytes, most_bytes: int | None = None) -> Any:
    """Parse JSON in the form that RocketMQ writes, and return its value. Keys of maps are strings.

    Raises ValueError for invalid JSON, and for more than the limits of `check_json`.
    """
    check_json(data, most_bytes)
    try:
        return msgspec.json.decode(data)
    # Most files are standard JSON. Only files with unquoted keys need the slower pass, which quotes the keys.
    except msgspec.DecodeError:
        pass
    except RecursionError:
        raise ValueError("nested too deeply") from None
    try:
        return msgspec.json.decode(_NAME.sub(_quoted, data.decode()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _quoted(match: re.Match[str]) -> str:
    text = match[0]
    return text if text.startswith('"') else f'"{text.strip()}"'


def java_json_file(content: Mapping[str, Any]) -> bytes:
    """Return the content of a RocketMQ configuration file with these fields (`ConfigManager.persist`)."""
    return json.dumps(content, indent="\t", separators=(",", ":"), ensure_ascii=False).encode()


def number_maps_file(name: str, maps: Mapping[str, Mapping[int, int]]) -> bytes:
    """Return the content of a RocketMQ configuration file with a single field (`ConfigManager.persist`).

    The field has the given name. Its value is an object, whose values are maps with numbers as keys, such as the
    offsets of a group by queue id.
    """
    entries = ",".join(
        f"\n\t\t{json.dumps(key, ensure_ascii=False)}:{_number_map(value)}\n\t\t}}"
        for key, value in maps.items()
    )
    return f'{{\n\t"{name}":{{{entries}\n\t}}\n}}'.encode()


def number_map_file(name: str, values: Mapping[int, int]) -> bytes:
    """Return the content of a configuration file whose only field has this name and maps numbers to numbers."""
    return f'{{\n\t"{name}":{_number_map(values)}\n\t}}\n}}'.encode()


def _number_map(values: Mapping[int, int]) -> str:
    return "{" + ",".join(f"{number}:{value}" for number, value in values.items())
