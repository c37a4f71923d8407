"""Bodies as columns of types, and why each other body does not fit: the result of every decoder of bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

MOST_EXAMPLE_CHARACTERS = 80
_MOST_REASONS = 5


class Misfit(NamedTuple):
    """One reason why a row or a field of it does not fit.

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
        """One text for each body, null where it fits."""
        texts: list[str | None] = [None] * len(self.values)
        for row, misfits in self.misfits.items():
            more = len(misfits) - _MOST_REASONS
            text = "; ".join(misfit.text for misfit in misfits[:_MOST_REASONS])
            texts[row] = f"{text}; and {more} more" if more > 0 else text
        return pa.array(texts, pa.string())
