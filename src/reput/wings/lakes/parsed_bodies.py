"""Define the result of body decoders: bodies as typed columns, and the reasons why bodies do not match the schema."""

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
    """The text of a JSON number, as it was written."""

    __slots__ = ()


class Misfit(NamedTuple):
    """A reason why a body, or one of its fields, does not match the schema.

    Attributes:
        text: The text for the columns `reason` and `json_error`. It may contain the value.
        reason: The text without the value: field, kind found and kind wanted. Rows are counted by reason, so the number
            of different reasons must be bounded.
        example: The value, shortened; "" if it explains nothing.
    """

    text: str
    reason: str
    example: str = ""


def whole_misfit(reason: str, example: str = "") -> Misfit:
    """Return a reason why a whole body does not match the schema, such as "the body is not JSON".

    For a field, see `field_misfit`.
    """
    return Misfit(f"{reason}: {example}" if example else reason, reason, example)


def field_misfit(path: str, value: Any, kind: pa.DataType) -> Misfit:
    """Return the reason that the value at `path` is not of the type `kind`."""
    kind_of_value = _KINDS.get(
        type(value), "an integer" if INTEGER.fullmatch(str(value)) else "a number"
    )
    kind_or_value = _KINDS.get(type(value), str(value)[:40])
    if isinstance(value, dict | list):
        example = ""
    elif isinstance(value, str):  # A text may be as long as a message, so shorten it.
        short = value[:MOST_EXAMPLE_CHARACTERS]
        example = short if isinstance(value, NumberText) else json.dumps(short)
    elif isinstance(value, bytes):
        example = value[: MOST_EXAMPLE_CHARACTERS // 2].hex()
    else:
        example = json.dumps(value, default=str)
    return Misfit(
        f"{path} is {kind_or_value}, not {kind}", f"{path} is {kind_of_value}, not {kind}", example
    )


@dataclass(frozen=True)
class ParsedBodies:
    """Bodies as typed columns.

    Attributes:
        values: One struct per body; null if the body does not match the schema.
        misfits: By row, the reasons why a body does not match the schema, the most serious one first.
    """

    values: pa.StructArray
    misfits: Mapping[int, Sequence[Misfit]]

    @property
    def reasons(self) -> pa.StringArray:
        """Return one text per body, with the reasons why the body does not match the schema; null if it matches."""
        texts: list[str | None] = [None] * len(self.values)
        for row, misfits in self.misfits.items():
            more = len(misfits) - _MOST_REASONS
            text = "; ".join(misfit.text for misfit in misfits[:_MOST_REASONS])
            texts[row] = f"{text}; and {more} more" if more > 0 else text
        return pa.array(texts, pa.string())
