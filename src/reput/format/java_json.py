"""Parse and write JSON as fastjson does in RocketMQ's files and bodies: number keys of maps are not quoted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from reput.format.json_budget import check_json

# Matches a whole string, or a number that is the unquoted key of an object. An unterminated string is matched up to the
# end of the text: otherwise the search would start again at each quote in the string, and take quadratic time.
_NAME = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])\s*+-?[0-9]++\s*+(?=:)', re.DOTALL)


def parse_java_json(data: bytes, most_bytes: int | None = None) -> Any:
    """Parse JSON in the form that RocketMQ writes, and return its value. Keys of maps are strings.

    Raises ValueError for invalid JSON, and for more than the limits of `json_budget` (`check_json`).
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
