"""The answer to a look-up on stdout, and in words what was searched."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from reput.cli.answer import coverage_in_words
from reput.query.bulk.answer import COVERAGE_COLUMN

if TYPE_CHECKING:
    from reput.query.bulk.answer import Answer

_TIME = "%Y-%m-%dT%H:%M:%SZ"


def print_rows(answer: Answer, layout: str) -> None:
    """All rows as JSON Lines or CSV, in UTF-8, part by part."""
    first = True
    for number in range(len(answer.parts)):
        for batch in answer.batches(number):
            rows = _with_times_as_text(batch)
            if layout == "csv":
                click.echo(_as_csv(rows, with_names=first), nl=False)
            else:
                lines = [
                    json.dumps(row, ensure_ascii=False, default=_plain) for row in rows.to_pylist()
                ]
                click.echo("\n".join(lines).encode())
            first = False


def _with_times_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Python knows no year 10,000; a store may."""
    arrays = [
        pc.strftime(column, _TIME) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return "base64:" + b64encode(value).decode("ascii")
    return str(value)


def _as_csv(rows: pa.RecordBatch, with_names: bool) -> bytes:
    complete = rows.column(COVERAGE_COLUMN).field("is_complete")
    place = rows.schema.get_field_index(COVERAGE_COLUMN)
    flat = rows.set_column(place, "is_complete", complete)
    sink = pa.BufferOutputStream()
    options = pa.csv.WriteOptions(include_header=with_names)
    pa.csv.write_csv(flat, sink, options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def remarks(answer: Answer, stores: Sequence[str]) -> Iterator[str]:
    """What was found and what the answer speaks for, a sentence a line."""
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
