"""The answer to a look-up on stdout, and in words what was searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from reput.store.coverage_text import coverage_in_words

if TYPE_CHECKING:
    from reput.lookup.answer import LookupAnswer
    from reput.lookup.lines import LineFormat, LineStyle


def print_rows(answer: LookupAnswer, layout: LineFormat, style: LineStyle | None = None) -> None:
    """All rows as JSON Lines or CSV, in UTF-8, part by part."""
    from reput.lookup.lines import PLAIN, answer_header, answer_lines
    from reput.messages.table_text import bytes_of

    for line in answer_header(answer, layout):
        click.echo(line)
    for number in range(len(answer.parts)):
        for lines in answer_lines(answer, number, layout, style or PLAIN, "\n"):
            click.echo(bytes(bytes_of(lines)), nl=False)


def remarks(answer: LookupAnswer, stores: Sequence[str]) -> Iterator[str]:
    """What was found and what the answer covers, one sentence per line."""
    counts = answer.counts()
    yield (
        f"{counts.rows:,} keys: {counts.found:,} have messages, {counts.messages:,} in all; "
        f"{counts.rows - counts.found:,} have none."
    )
    for store, coverage in zip(stores, answer.coverage.stores, strict=True):
        lines = [*coverage_in_words(coverage), *map(str, coverage.unreadable)]
        yield from (line if len(stores) == 1 else f"{store}: {line}" for line in lines)
    for lost in answer.coverage.lost:
        keys = f"{len(lost.numbers):,} key{'' if len(lost.numbers) == 1 else 's'}"
        yield f"Not used for {keys}: {lost.problem}"
