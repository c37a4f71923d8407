"""Read the keys of a look-up from files, and write its answer to files, in folders or buckets, without Spark.

For other URLs, `reput.spark.lookup_files` lets Spark read and write them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from posixpath import join
from typing import Any, Literal
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq

from reput.base import Runner, first_line, no_progress
from reput.engine.messages import bytes_of
from reput.engine.tables.lookup.arrow import Keys, Lookup, keys_of
from reput.engine.tables.lookup.coverage import coverage_of
from reput.engine.tables.lookup.lines import PLAIN, LineStyle, answer_header, answer_lines
from reput.errors import (
    FormatError,
    ObjectConflictError,
    StoreNotFoundError,
    StoreUnreachableError,
    UsageError,
    explained,
)
from reput.io import (
    DISK,
    AnchoredRunner,
    Bucket,
    Parquet,
    PlacedRunner,
    Scratch,
    StagedFiles,
    at_once,
    resolve,
)

Format = Literal["parquet", "jsonl", "csv"]
SUFFIXES: dict[Format, str] = {"parquet": ".parquet", "jsonl": ".json", "csv": ".csv"}
_BATCH_BYTES, _BATCH_ROWS = 256 << 20, 1 << 16
_LEAST_BYTES, _BYTES_PER_BYTE = 1 << 30, 1024
"""A Parquet file may contain a gigabyte of keys, plus this number of bytes for each of its own."""
MALFORMED_LINE = "keys: a line with more or fewer values than names: "


def check_paths(keys: str, output: str | None) -> None:
    """Raise StoreNotFoundError if the file of keys is missing, UsageError if the output exists already."""
    if "://" not in keys and not Path(keys).exists():
        raise StoreNotFoundError(f"keys {keys}: no such file", arguments=["keys"])
    if Path(keys).suffix not in (".csv", ".parquet") and not Path(keys).is_dir():
        raise UsageError(
            f"keys {keys}: must be a .csv file with a header line, or .parquet",
            arguments=["keys"],
        )
    if output is not None and Path(output).exists():
        raise UsageError(
            f"output {output}: exists already; choose a new directory", arguments=["output"]
        )


def read_keys(keys: str, options: Mapping[str, str] | None = None) -> Keys:
    """Return batches of keys, read from a Parquet file or from a .csv file with a header and text in all columns.

    Args:
        keys: A path, or the URL of a file in a bucket.
        options: Options of the URL's file system, as for `reput.open_store`.

    Raises:
        UsageError: The file cannot be read. Reading a batch also raises it for a line with too many or too few values.
    """
    malformed: list[str] = []
    with _explained(keys, malformed):
        system, place = None, keys
        if Bucket.accepts(keys):
            opened, place = resolve(keys, options or {})
            system = opened.arrow
        if Path(keys).suffix == ".csv":
            open_file = partial(system.open_input_stream, place) if system else lambda: keys
            found = _csv_keys(open_file, malformed)
        else:
            found = _parquet_keys(place, system)
    return Keys(found.schema, _explained_batches(found, keys, malformed))


def _parquet_keys(place: str, system: pa.fs.FileSystem | None) -> Keys:
    # The headers of all pages are checked, also in a bucket, because a file of keys is small.
    listed = pa.dataset.dataset(place, schema=pa.schema([]), filesystem=system, format="parquet")
    checked = Parquet.check(listed, has_pages=True)
    files = pa.dataset.dataset(place, filesystem=system, format="parquet")
    # Every row can refer to the longest text of a dictionary, so a few bytes can state terabytes of text.
    rows = max(min(_BATCH_BYTES // max(checked.dictionary_bytes, 1), _BATCH_ROWS), 1)
    scanner = files.scanner(batch_size=rows, batch_readahead=0, fragment_readahead=1)
    keys = keys_of(scanner.to_reader())
    return Keys(keys.schema, _limited(keys.batches, checked.file_bytes))


def _limited(batches: Iterable[pa.RecordBatch], file_bytes: int) -> Iterator[pa.RecordBatch]:
    most, size = _LEAST_BYTES + _BYTES_PER_BYTE * file_bytes, 0
    for batch in batches:
        size += batch.nbytes
        if size > most:
            raise pa.ArrowInvalid(f"{file_bytes:,} bytes contain more than {most:,} bytes of keys")
        # pyarrow does not check whether texts in Parquet files are UTF-8.
        batch.validate(full=True)
        yield batch


def _csv_keys(open_file: Callable[[], Any], malformed: list[str]) -> Keys:
    """Read CSV as Spark does: an empty value without quotes is null."""

    def refuse(row: pa.csv.InvalidRow) -> str:
        malformed.append(row.text)
        return "error"

    parse = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse)
    # The options must state the type of each column by name, so the names are read first. Without types, Arrow would
    # convert keys like 007 to numbers.
    with pa.csv.open_csv(open_file(), parse_options=parse) as first:
        names = first.schema.names
    text = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""],
        strings_can_be_null=True, quoted_strings_can_be_null=False,
    )  # fmt: skip

    def batches() -> Iterator[pa.RecordBatch]:
        # The file is opened only when it is read, and then closed. A reader that stays open reads ahead in threads.
        # Some processes with such threads have aborted at exit.
        with pa.csv.open_csv(open_file(), parse_options=parse, convert_options=text) as reader:
            yield from reader

    return Keys(pa.schema([(name, pa.string()) for name in names]), batches())


def _explained_batches(found: Keys, keys: str, malformed: list[str]) -> Iterator[pa.RecordBatch]:
    with _explained(keys, malformed):
        yield from found.batches


@contextmanager
def _explained(keys: str, malformed: list[str]) -> Iterator[None]:
    """Raise pyarrow's errors about the keys as UsageError, which names a malformed line."""
    try:
        yield
    except StoreUnreachableError:
        # Do not report an unreachable bucket as an invalid file of keys.
        raise
    except (pa.ArrowException, UnicodeDecodeError, OSError, FormatError) as error:
        if malformed:
            raise UsageError(MALFORMED_LINE + malformed[0]) from error
        raise UsageError(
            f"keys {keys}: cannot be read: {first_line(error)}", arguments=["keys"]
        ) from error


def write_answer(
    runner: Runner, found: Lookup, output: str, layout: Format, style: LineStyle = PLAIN
) -> None:
    """Write the answer as a new directory of files, one per part of the key table, atomically.

    Args:
        runner: Runs a task per file.
        found: The look-up.
        output: A directory that does not exist yet.
        layout: The format of the files; `reput.engine.tables.lookup.lines` writes lines of JSON and CSV.
        style: How values in lines are written.

    Raises:
        StoreAccessError.
    """
    with DISK.new_folder(Path(output).absolute()) as folder:
        write = partial(_write_part, _Writing(found, str(folder), layout, style))
        numbers = range(max(len(found.answer.parts), 1))
        AnchoredRunner(runner).run(write, numbers, [1] * len(numbers), no_progress)


def coverage_path(output: str) -> Path:
    """Return the path of an answer's coverage summary, which lies beside the answer's folder."""
    path = Path(output).absolute()
    return path.with_name(f"{path.name}.coverage.json")


def coverage_text(found: Lookup) -> bytes:
    """Return the coverage of the answer: a list with a JSON object per store."""
    return f"{json.dumps(coverage_of(found.schema), indent=1)}\n".encode()


def write_coverage(found: Lookup, output: str) -> None:
    """Write a file beside the answer that states how completely the stores were searched (the coverage).

    Raises StoreAccessError.
    """
    path = coverage_path(output)
    with DISK.writing_to(path), DISK.replacing(path) as attempt:
        DISK.write_durable(attempt, coverage_text(found))


class BucketOutput:
    """A new folder of result files in a bucket.

    An object beside the folder states how completely the stores were searched (the coverage).

    A bucket cannot publish a folder atomically, so `_SUCCESS` is written last, as Hadoop does.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        """Prepare the output. Raises MissingExtraError, StoreAccessError, and UsageError if the output exists."""
        self._url = url.rstrip("/")
        parent, _, self._name = self._url.rpartition("/")
        if not urlsplit(self._url).path.strip("/"):
            raise UsageError(
                f"output {url}: specify a folder in the bucket, such as {self._url}/found",
                arguments=["output"],
            )
        self._store = Bucket(parent, options or {})
        if next(self._store.list(f"{self._name}/"), None) is not None:
            raise UsageError(
                f"output {url}: exists already; choose a new directory", arguments=["output"]
            )

    def write_coverage(self, found: Lookup) -> None:
        """Write an object beside the answer that states how completely the stores were searched (the coverage).

        Raises StoreAccessError, and UsageError if the object exists.
        """
        try:
            self._store.put_new(f"{self._name}.coverage.json", coverage_text(found))
        except ObjectConflictError:
            raise UsageError(
                f"output {self._url}: its coverage.json exists already; choose a new directory",
                arguments=["output"],
            ) from None

    def write_answer(
        self, runner: Runner, found: Lookup, layout: Format, style: LineStyle = PLAIN
    ) -> None:
        """Write the answer, one object per part of the key table. See `write_answer` of this module."""
        staging = f"{self._name}.reput-{uuid.uuid4().hex}"
        try:
            StagedFiles.register_stores([self._store])
            writing = _Writing(found, join(self._store.place, staging), layout, style)
            numbers = range(max(len(found.answer.parts), 1))
            written = PlacedRunner(AnchoredRunner(runner), [self._store]).run(
                partial(_upload_part, writing), numbers, [1] * len(numbers), no_progress
            )
            # name[:-33] drops the hyphen and the 32 digits that make the attempt's name unique.
            # Only the results of successful attempts are copied to their final names.
            at_once(self._bring, [(f"{staging}/{name}", name[:-33]) for name in written])
            self._store.put_new(f"{self._name}/_SUCCESS", b"")
        finally:
            at_once(self._store.delete, [one.name for one in self._store.list(f"{staging}/")])

    def _bring(self, names: tuple[str, str]) -> None:
        source, name = names
        self._store.copy(source, f"{self._name}/{name}")


def _upload_part(to: _Writing, number: int) -> str:
    """Write a part under a name that is unique to this attempt, so that attempts do not replace each other's objects.

    Return this name.
    """
    with Scratch.folder() as folder:
        local = replace(to, folder=str(folder))
        path = _write_part(local, number)
        name = f"{path.name}-{uuid.uuid4().hex}"
        StagedFiles.put_verified(path, join(to.folder, name))
    return name


@dataclass(frozen=True, slots=True)
class _Writing:
    found: Lookup
    folder: str
    layout: Format
    style: LineStyle


def _write_part(to: _Writing, number: int) -> Path:
    answer = to.found.answer
    path = Path(to.folder) / f"part-{number:05d}{SUFFIXES[to.layout]}"
    # Without any keys, one file without rows is written.
    is_there = number < len(answer.parts)
    if to.layout != "parquet":
        DISK.write_chunks(path, _text(to, number) if is_there else iter(()))
        return path
    with (
        explained(path, "be written"), DISK.create_part(path) as file,
        pq.ParquetWriter(file, to.found.schema) as writer,
    ):  # fmt: skip
        for batch in answer.batches(number) if is_there else ():
            writer.write_batch(batch)
    return path


def _text(to: _Writing, number: int) -> Iterator[bytes | memoryview]:
    assert to.layout != "parquet"
    answer = to.found.answer
    yield "".join(f"{line}\n" for line in answer_header(answer, to.layout)).encode()
    for lines in answer_lines(answer, number, to.layout, to.style, "\n"):
        yield bytes_of(lines)
