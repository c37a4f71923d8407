"""Count the reasons for which rows were rejected or fields are null, with one example of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from reput.base import counted
from reput.errors import RejectedRowsError, UsageError
from reput.wings.lakes.parsed_bodies import MOST_EXAMPLE_CHARACTERS, Misfit

# A report or an error lists this many reasons, and only counts the others.
_MOST_TOLD = 3


@dataclass
class Reasons:
    """The number of rows for each reason, and the first example of each."""

    rows: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, misfits: Iterable[Misfit], rows: int = 1) -> None:
        """Count rows with these misfits, which are values that do not fit the types of the table.

        Each reason counts once per row, even if several misfits have it.
        """
        for reason, example in {misfit.reason: misfit.example for misfit in misfits}.items():
            self._add(reason, rows, example)

    def __iadd__(self, other: Reasons) -> Self:
        for reason, rows in other.rows.items():
            self._add(reason, rows, other.examples.get(reason, ""))
        return self

    def _add(self, reason: str, rows: int, example: str) -> None:
        self.rows[reason] += rows
        if example:
            self.examples.setdefault(reason, example[:MOST_EXAMPLE_CHARACTERS])


def most_frequent(rows: Mapping[str, int], examples: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each of the most frequent reasons, with an example, then the number of other reasons."""
    often = Counter(rows).most_common()
    for reason, count in often[:_MOST_TOLD]:
        example = f", such as {examples[reason]}" if reason in examples else ""
        yield f"{reason} ({count:,}){example}"
    rest = often[_MOST_TOLD:]
    if rest:
        yield f"and {counted(len(rest), 'other')} ({sum(count for _, count in rest):,})"


class MostRejects:
    """The limit of rejected rows of an export: a number of rows, or a share of its rows in percent.

    Raises:
        UsageError: The limit is invalid.
    """

    def __init__(self, limit: str | int) -> None:
        text = str(limit).strip()
        self._text, self._is_share = text, text.endswith("%")
        try:
            self._most = float(text[:-1]) if self._is_share else int(text)
        except ValueError:
            self._most = -1
        # Comparisons with NaN are false, so NaN is refused.
        is_possible = 0 <= self._most <= (100 if self._is_share else self._most)
        if not is_possible:
            raise UsageError(
                f"max_rejects {text}: must be a number of rows, or a share of them such as 1%",
                arguments=["max_rejects"],
            )

    def check(self, rejects: int, rows: int, reasons: Iterable[str], destination: str) -> None:
        """Check the rejected rows of an export.

        Raises:
            RejectedRowsError: `rejects` exceeds the limit for `rows` messages. The text of the error ends with the
                most frequent reasons, which the caller passes in `reasons`.
        """
        most = rows * self._most / 100 if self._is_share else self._most
        if rejects <= most:
            return
        share = f", {rejects / rows:.1%} of {rows:,}" if rows else ""
        raise RejectedRowsError(
            f"{destination}: {rejects:,} rejected rows{share}, more than max_rejects {self._text}; "
            f"nothing was committed. Most frequent: {'; '.join(reasons)}",
            arguments=["max_rejects"],
        )
