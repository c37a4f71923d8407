"""Bodies as typed columns, and why other bodies do not match: the result of every body decoder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

import pyarrow as pa

MOST_EXAMPLE_CHARACTERS = 80
_MOST_REASONS = 5
INTEGER = re.compile(r"-?\d+", re.ASCII)
_KINDS: dict[type, str] = {
    dict: "an object", list: "a list", str: "a text", bool: "true or false", bytes: "bytes",
    datetime: "a time", date: "a date",
}  # fmt: skip


class NumberText(str):
    """A number as it is written."""

    __slots__ = ()


class Misfit(NamedTuple):
    """A reason why a row or one of its fields does not match.

    Attributes:
        text: The row's text in its column `reason` or `json_error`; it may contain the value.
        reason: The same without the value: field, kind found and kind wanted. Rows are counted by it, so there
            are only as many reasons as the types that bodies should have allow.
        example: The value, shortened; "" if it would explain nothing.
    """

    text: str
    reason: str
    example: str = ""


def whole_misfit(reason: str, example: str = "") -> Misfit:
    """Return a misfit of a whole body."""
    return Misfit(f"{reason}: {example}" if example else reason, reason, example)


def field_misfit(path: str, value: Any, kind: pa.DataType) -> Misfit:
    """Return a misfit of the value at a path, which is of another type than `kind`."""
    found = _KINDS.get(type(value), "an integer" if INTEGER.fullmatch(str(value)) else "a number")
    told = _KINDS.get(type(value), str(value)[:40])
    if isinstance(value, dict | list):
        example = ""
    elif isinstance(value, str):  # it may be as long as a message
        short = value[:MOST_EXAMPLE_CHARACTERS]
        example = short if isinstance(value, NumberText) else json.dumps(short)
    elif isinstance(value, bytes):
        example = value[: MOST_EXAMPLE_CHARACTERS // 2].hex()
    else:
        example = json.dumps(value, default=str)
    return Misfit(f"{path} is {told}, not {kind}", f"{path} is {found}, not {kind}", example)


@dataclass(frozen=True)
class ParsedBodies:
    """Bodies as columns of types.

    Attributes:
        values: One struct for each body, null where the body does not fit.
        misfits: By row, why its body does not fit; most serious first. Other rows fit.
    """

    values: pa.StructArray
    misfits: Mapping[int, Sequence[Misfit]]

    @property
    def reasons(self) -> pa.StringArray:
        """Return one text for each body, null where it matches."""
        texts: list[str | None] = [None] * len(self.values)
        for row, misfits in self.misfits.items():
            more = len(misfits) - _MOST_REASONS
            text = "; ".join(misfit.text for misfit in misfits[:_MOST_REASONS])
            texts[row] = f"{text}; and {more} more" if more > 0 else text
        return pa.array(texts, pa.string())
