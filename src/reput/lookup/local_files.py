"""The keys of a look-up from files, and its answer into files, without Spark.

`reput.spark.lookup_files` has Spark read and write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq

from reput.errors import StoreNotFoundError, UsageError
from reput.files.anchors import AnchoredRunner, writing_to
from reput.files.parts import new_folder, open_part, write_chunks
from reput.files.writer import explained, replacing, write_durable
from reput.lookup.arrow import Keys, Lookup, keys_of
from reput.lookup.coverage import coverage_of
from reput.lookup.lines import PLAIN, LineStyle, answer_header, answer_lines
from reput.messages.table_text import bytes_of
from reput.tasks import Runner

Format = Literal["parquet", "jsonl", "csv"]
SUFFIXES: dict[Format, str] = {"parquet": ".parquet", "jsonl": ".json", "csv": ".csv"}
MALFORMED_LINE = "keys: a line with more or fewer values than names: "


def check_paths(keys: str, output: str | None) -> None:
    """Raises StoreNotFoundError without keys, UsageError for an output that is there already."""
    if "://" not in keys and not Path(keys).exists():
        raise StoreNotFoundError(f"keys {keys}: no such file", arguments=["keys"])
    if Path(keys).suffix not in (".csv", ".parquet") and not Path(keys).is_dir():
        raise UsageError(
            f"keys {keys}: neither a .csv file with a line of names nor .parquet",
            arguments=["keys"],
        )
    if output is not None and Path(output).exists():
        raise UsageError(
            f"output {output}: exists already; name a new directory", arguments=["output"]
        )


def read_keys(keys: str) -> Keys:
    """A .csv file with a line of names, all of its columns text, else Parquet.

    Raises:
        UsageError: also from the batches: a line of another number of values, left alone, would be other keys.
    """
    malformed: list[str] = []
    with _explained(keys, malformed):
        if Path(keys).suffix == ".csv":
            found = _csv_keys(keys, malformed)
        else:
            found = keys_of(pa.dataset.dataset(keys, format="parquet").scanner().to_reader())
    return Keys(found.schema, _explained_batches(found, keys, malformed))


def _csv_keys(keys: str, malformed: list[str]) -> Keys:
    """Values without quotes that are empty are null, as Spark reads them."""

    def refuse(row: pa.csv.InvalidRow) -> str:
        malformed.append(row.text)
        return "error"

    parse = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse)
    with pa.csv.open_csv(keys, parse_options=parse) as first:
        names = first.schema.names
    text = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""],
        strings_can_be_null=True, quoted_strings_can_be_null=False,
    )  # fmt: skip

    def batches() -> Iterator[pa.RecordBatch]:
        # Opened when it is read, and closed: a reader left to the end of the process still reads ahead in threads,
        # and has aborted it.
        with pa.csv.open_csv(keys, parse_options=parse, convert_options=text) as reader:
            yield from reader

    return Keys(pa.schema([(name, pa.string()) for name in names]), batches())


def _explained_batches(found: Keys, keys: str, malformed: list[str]) -> Iterator[pa.RecordBatch]:
    with _explained(keys, malformed):
        yield from found.batches


@contextmanager
def _explained(keys: str, malformed: list[str]) -> Iterator[None]:
    """What pyarrow says of the keys, as a UsageError; of a malformed line, the line."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if malformed:
            raise UsageError(MALFORMED_LINE + malformed[0]) from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"keys {keys}: cannot be read: {reason}", arguments=["keys"]) from error


def write_answer(
    runner: Runner, found: Lookup, output: str, layout: Format, style: LineStyle = PLAIN
) -> None:
    """Write the answer as a new directory of files, one per part of the keys, all of them or none.

    Args:
        runner: Runs a task per file.
        found: The look-up.
        output: A directory that is not there yet.
        layout: Lines of JSON and CSV are those that `reput.lookup.lines` makes.
        style: Of lines.

    Raises:
        StoreAccessError.
    """
    with new_folder(Path(output).absolute()) as folder:
        write = partial(_write_part, _Writing(found, folder, layout, style))
        numbers = range(max(len(found.answer.parts), 1))
        AnchoredRunner(runner).run(write, numbers, [1] * len(numbers), lambda done, total: None)


def coverage_path(output: str) -> Path:
    """Where the summary of what an answer covers is written: beside it, not among its files."""
    path = Path(output).absolute()
    return path.with_name(f"{path.name}.coverage.json")


def coverage_text(found: Lookup) -> bytes:
    """What the answer covers, store by store: a list of JSON objects."""
    return f"{json.dumps(coverage_of(found.schema), indent=1)}\n".encode()


def write_coverage(found: Lookup, output: str) -> None:
    """Write it beside the answer. Raises StoreAccessError."""
    path = coverage_path(output)
    with writing_to(path), replacing(path) as attempt:
        write_durable(attempt, coverage_text(found))


@dataclass(frozen=True, slots=True)
class _Writing:
    found: Lookup
    folder: Path
    layout: Format
    style: LineStyle


def _write_part(to: _Writing, number: int) -> None:
    answer = to.found.answer
    path = to.folder / f"part-{number:05d}{SUFFIXES[to.layout]}"
    is_there = number < len(answer.parts)  # without keys there is a file, with no row
    if to.layout != "parquet":
        write_chunks(path, _text(to, number) if is_there else iter(()))
        return
    with (
        explained(path, "be written"), open_part(path) as file,
        pq.ParquetWriter(file, to.found.schema) as writer,
    ):  # fmt: skip
        for batch in answer.batches(number) if is_there else ():
            writer.write_batch(batch)


def _text(to: _Writing, number: int) -> Iterator[bytes | memoryview]:
    assert to.layout != "parquet"
    answer = to.found.answer
    yield "".join(f"{line}\n" for line in answer_header(answer, to.layout)).encode()
    for lines in answer_lines(answer, number, to.layout, to.style, "\n"):
        yield bytes_of(lines)
