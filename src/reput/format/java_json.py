"""JSON as RocketMQ's files and bodies have it (fastjson): maps with numbers for names, which it leaves unquoted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

# A text as a whole, or a number where the name of a map's entry is. A text that does not end is taken up to the end:
# tried from each of its quotes anew, it would cost time in proportion to the square of its length.
_NAME = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])\s*+-?[0-9]++\s*+(?=:)', re.DOTALL)


def parse_java_json(data: bytes) -> Any:
    """Return the value of JSON as RocketMQ writes it, with maps' keys as strings.

    Raises ValueError for invalid JSON.
    """
    try:
        return msgspec.json.decode(data)
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
    """Return a file of RocketMQ with tables of objects (`ConfigManager.persist`)."""
    return json.dumps(content, indent="\t", separators=(",", ":"), ensure_ascii=False).encode()


def number_maps_file(name: str, maps: Mapping[str, Mapping[int, int]]) -> bytes:
    """Return a file of RocketMQ with one table of maps from number to number (`ConfigManager.persist`)."""
    entries = ",".join(
        f"\n\t\t{json.dumps(key, ensure_ascii=False)}:{_number_map(value)}\n\t\t}}"
        for key, value in maps.items()
    )
    return f'{{\n\t"{name}":{{{entries}\n\t}}\n}}'.encode()


def number_map_file(name: str, values: Mapping[int, int]) -> bytes:
    """Return a file of RocketMQ with one map from number to number."""
    return f'{{\n\t"{name}":{_number_map(values)}\n\t}}\n}}'.encode()


def _number_map(values: Mapping[int, int]) -> str:
    return "{" + ",".join(f"{number}:{value}" for number, value in values.items())
