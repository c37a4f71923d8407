"""Why rows were rejected, or fields left null: the most frequent reasons, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import RejectedRowsError, UsageError

_MOST_REASONS = 100
_MOST_CHARACTERS = 200

Reasons = Counter[str]


def with_reasons(known: Reasons, column: pa.Array) -> Reasons:
    """How often each text is there, shortened, added to what is known; of many the most frequent ones."""
    found = Counter(known)
    for entry in pc.value_counts(column.drop_null()).to_pylist():
        found[entry["values"][:_MOST_CHARACTERS]] += entry["counts"]
    return most_frequent(found, _MOST_REASONS)


def most_frequent(reasons: Mapping[str, int], most: int) -> Reasons:
    return Counter(dict(Counter(reasons).most_common(most)))


class MostRejects:
    """How many rejected rows an export may have: a number, or a share in percent of its rows.

    Raises UsageError for what is neither.
    """

    def __init__(self, given: str | int) -> None:
        text = str(given).strip()
        self._text, self._is_share = text, text.endswith("%")
        try:
            self._most = float(text[:-1]) if self._is_share else int(text)
        except ValueError:
            self._most = -1
        is_possible = 0 <= self._most <= (100 if self._is_share else self._most)
        if not is_possible:  # nor is what is no number
            raise UsageError(
                f"max_rejects {text}: a number of rows, or a share of them such as 1%",
                arguments=["max_rejects"],
            )

    def check(self, rejects: int, rows: int, reasons: Reasons, destination: str) -> None:
        """Raises RejectedRowsError where `rejects` of `rows` messages are too many."""
        most = rows * self._most / 100 if self._is_share else self._most
        if rejects <= most:
            return
        share = f", {rejects / rows:.1%} of {rows:,}" if rows else ""
        often = "; ".join(f"{reason} ({n:,})" for reason, n in reasons.most_common(3))
        raise RejectedRowsError(
            f"{destination}: {rejects:,} rejected rows{share}, more than max_rejects {self._text}; "
            f"nothing was committed. Most frequent: {often}",
            arguments=["max_rejects"],
        )
