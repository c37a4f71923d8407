"""Write the answer as lines of JSON or CSV, for stdout and for files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import pyarrow as pa

from reput.engine.lookup.answer import LookupAnswer, answer_schema
from reput.engine.lookup.coverage import COVERAGE_COLUMN, IS_COMPLETE
from reput.engine.messages import csv_line, csv_names, csv_rows, json_rows, with_iso_times
from reput.format.message_fields import FIELDS
from reput.io import ArrowFile, StagedFiles

LineFormat = Literal["jsonl", "csv"]


class LineStyle(NamedTuple):
    """How values are written.

    is_safe    whether CSV puts a ' before texts that a spreadsheet would run as a formula
    iso_times  whether times are ISO 8601 (2026-10-14T08:35:06.637Z) instead of milliseconds since 1970
    """

    is_safe: bool = False
    iso_times: bool = False


PLAIN = LineStyle()


def answer_lines(
    answer: LookupAnswer,
    numbers: Iterable[int],
    layout: LineFormat,
    style: LineStyle = PLAIN,
    end: str = "",
) -> Iterator[pa.StringArray | pa.LargeStringArray]:
    """Yield the rows of some parts as lines, after the header line of CSV.

    Args:
        answer: The answer.
        numbers: The numbers of the parts of the key table.
        layout: The format of the lines. In CSV, the coverage is reduced to the column `is_complete`.
        style: How values are written.
        end: The end of each line.
    """
    if layout == "csv":
        yield pa.array([_header(answer) + end], pa.string())
    for number in numbers:
        for batch in answer.batches(number):
            batch = with_iso_times(batch) if style.iso_times else batch
            if layout == "jsonl":
                yield json_rows(batch, _names(answer), end)
            else:
                flat = batch if answer.is_flat else _flat(batch)
                yield csv_rows(flat, is_safe=style.is_safe, end=end)


def _header(answer: LookupAnswer) -> str:
    StagedFiles.register_stores(answer.places)
    rows = ArrowFile.map(f"{answer.parts[0].path}.rows").schema if answer.parts else pa.schema([])
    schema = answer_schema(rows, answer.columns, is_flat=True)
    return csv_line(csv_names(schema, _names(answer))).removesuffix("\n")


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the struct column `coverage` replaced by its field `is_complete`."""
    place = batch.schema.get_field_index(COVERAGE_COLUMN)
    return batch.set_column(place, IS_COMPLETE, batch.column(place).field(IS_COMPLETE))


def _names(answer: LookupAnswer) -> dict[str, str]:
    """Return the JSON names of the message columns. The columns of the caller's key table keep their names."""
    return {field.name: field.json_name for field in FIELDS if field.name in answer.columns}
