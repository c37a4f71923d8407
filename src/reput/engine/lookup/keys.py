"""The keys of a look-up, as Arrow batches: from objects in memory, or from a file of Parquet or CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from posixpath import join
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from reput.base import first_line
from reput.engine.lookup.key_parts import KeyPart, stage_parts
from reput.errors import FormatError, StoreNotFoundError, StoreUnreachableError, UsageError
from reput.io import Bucket, Parquet, resolve

_BATCH_BYTES, _BATCH_ROWS = 256 << 20, 1 << 16
_LEAST_BYTES, _BYTES_PER_BYTE = 1 << 30, 1024
"""A Parquet file may contain a gigabyte of keys, plus this number of bytes for each of its own."""


class Keys(NamedTuple):
    """Batches of keys, which can be read once. Errors in reading are raised unchanged, not as errors of Arrow."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]

    @classmethod
    def of(cls, keys: Any) -> Keys:
        """Return keys in any accepted form as Arrow batches, with strings as large_string. Raises UsageError."""
        if isinstance(keys, list | tuple | Mapping):
            keys = _table_of(keys)
        try:
            reader = pa.RecordBatchReader.from_stream(keys)
        except TypeError as error:
            raise UsageError(
                f"keys must be an Arrow table or reader, or a list of (topic, key), "
                f"not {type(keys).__name__}",
                arguments=["keys"],
            ) from error
        schema = pa.schema([field.with_type(_plain(field.type)) for field in reader.schema])
        return cls(schema, reader if schema == reader.schema else reader.cast(schema))

    @classmethod
    def read(cls, keys: str, options: Mapping[str, str] | None = None) -> Keys:
        """Return keys from a Parquet file, or from a .csv file with a header and text in all columns.

        Args:
            keys: A path, or the URL of a file in a bucket.
            options: Options of the URL's file system, as for `reput.open_store`.

        Raises:
            UsageError: The file cannot be read. Reading a batch also raises it for a line with too many or too few
                values.
        """
        malformed: list[str] = []
        with _explained(keys, malformed):
            system, place = None, keys
            if Bucket.accepts(keys):
                file_system, place = resolve(keys, options or {})
                system = file_system.arrow
            if Path(keys).suffix == ".csv":
                open_file = partial(system.open_input_stream, place) if system else lambda: keys
                schema, batches = _csv_keys(open_file, malformed)
            else:
                schema, batches = _parquet_keys(place, system)
        return cls(schema, _explained_batches(batches, keys, malformed))

    def stage(self, folder: str, threads: int) -> list[KeyPart]:
        """Write the keys into a folder, in parts. Raises the errors of `stage_parts`, and those of the batches."""
        return list(stage_parts(self.batches, join(folder, "keys"), threads))

    @staticmethod
    def check_path(keys: str) -> None:
        """Raise StoreNotFoundError if the file of keys is missing, UsageError if its name is that of no such file."""
        if "://" not in keys and not Path(keys).exists():
            raise StoreNotFoundError(f"keys {keys}: no such file", arguments=["keys"])
        if Path(keys).suffix not in (".csv", ".parquet") and not Path(keys).is_dir():
            raise UsageError(
                f"keys {keys}: must be a .csv file with a header line, or .parquet",
                arguments=["keys"],
            )

    @staticmethod
    def malformed(line: str) -> UsageError:
        """Return the error for a line of CSV with too many or too few values."""
        return UsageError(f"keys: a line with more or fewer values than names: {line}")


def _table_of(keys: Sequence[Any] | Mapping[str, Any]) -> pa.Table:
    """Return a table made from rows or columns of Python objects. Raises UsageError."""
    try:
        if isinstance(keys, Mapping):
            return pa.table(dict(keys))
        if all(isinstance(row, Mapping) for row in keys) and keys:
            return pa.Table.from_pylist(list(keys))
        pairs = [(topic, key) for topic, key in keys]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(
            f"keys: neither rows of (topic, key) nor columns: {error}", arguments=["keys"]
        ) from error
    for number, pair in enumerate(pairs):
        for name, value in zip(("topic", "key"), pair, strict=True):
            if not isinstance(value, str):
                raise UsageError(
                    f"keys: {name} of row {number} must be a string, not {value!r}",
                    arguments=["keys"],
                )
    topics, texts = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"topic": pa.array(topics, pa.string()), "key": pa.array(texts, pa.string())})


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _parquet_keys(place: str, system: pa.fs.FileSystem | None) -> Keys:
    # The headers of all pages are checked, also in a bucket, because a file of keys is small.
    files_without_columns = pa.dataset.dataset(
        place, schema=pa.schema([]), filesystem=system, format="parquet"
    )
    sizes = Parquet.check(files_without_columns, has_pages=True)
    files = pa.dataset.dataset(place, filesystem=system, format="parquet")
    # Every row can refer to the longest text of a dictionary, so a few bytes can state terabytes of text.
    rows = max(min(_BATCH_BYTES // max(sizes.dictionary_bytes, 1), _BATCH_ROWS), 1)
    scanner = files.scanner(batch_size=rows, batch_readahead=0, fragment_readahead=1)
    keys = Keys.of(scanner.to_reader())
    return Keys(keys.schema, _limited(keys.batches, sizes.file_bytes))


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


def _explained_batches(
    batches: Iterable[pa.RecordBatch], keys: str, malformed: list[str]
) -> Iterator[pa.RecordBatch]:
    with _explained(keys, malformed):
        yield from batches


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
            raise Keys.malformed(malformed[0]) from error
        raise UsageError(
            f"keys {keys}: cannot be read: {first_line(error)}", arguments=["keys"]
        ) from error
