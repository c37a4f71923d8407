"""Stage the keys of a look-up in parts of some hundred thousand rows. Each part has two files.

<name>.rows   the caller's rows, unchanged, with all columns
<name>.keys   topic, key, time window and hash of the rows that have both a topic and a key, by ascending hash. A row
              whose key is an id in lower case is there twice, because stores have ids in upper case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import starmap
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import SECONDS, in_seconds
from reput.core import TimeWindow
from reput.engine.messages import one_array
from reput.errors import UsageError
from reput.format.message_id import ID_PATTERN
from reput.io import ArrowFile
from reput.kernels.key_match import hash_keys

PART_ROWS, PART_BYTES = 1 << 18, 256 << 20
_UNBOUNDED = 2**63 - 1
_MS_PER_UNIT = {"s": 1000, "ms": 1}
_UNITS_PER_MS = {"us": 1000, "ns": 1_000_000}

KEYS_SCHEMA = pa.schema(
    [
        ("row", pa.int32()),
        ("hash", pa.int32()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("topic", pa.large_string()),
        ("key", pa.large_string()),
    ]
)


class KeyPart(NamedTuple):
    """A staged part: path of its files without their endings, number of rows, number of keys to search."""

    path: str
    rows: int
    keys: int


class KeyTexts(NamedTuple):
    """Strings in the form that kernels accept: text n is data[at[n]:at[n + 1]]."""

    data: npt.NDArray[np.uint8]
    at: npt.NDArray[np.int64]


def check_columns(rows: pa.Schema, names_of_answer: Iterable[str]) -> None:
    """Raise UsageError if rows lack the columns of a look-up, or have a column with a name in `names_of_answer`.

    The answer has its own columns with these names.
    """
    kinds = {field.name: field.type for field in rows}
    if len(kinds) < len(rows):
        twice = next(name for name in kinds if rows.names.count(name) > 1)
        raise UsageError(f"keys: {twice!r} names two columns; rename one", arguments=["keys"])
    for name in ("topic", "key"):
        if name not in kinds:
            raise UsageError(
                f"keys: no column {name!r} (columns: {', '.join(map(repr, kinds)) or 'none'}); "
                "topic and key are required, begin and end are optional",
                arguments=["keys"],
            )
        if not _is_text(kinds[name]):
            raise UsageError(
                f"keys: column {name!r} must contain strings, not {kinds[name]}", arguments=["keys"]
            )
    for name in ("begin", "end"):
        kind = kinds.get(name, pa.int64())
        if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or _is_text(kind)):
            raise UsageError(
                f"keys: column {name!r} must contain milliseconds or timestamps, not {kind}",
                arguments=["keys"],
            )
    # Spark ignores case in column names.
    lowered = {name.lower() for name in names_of_answer}
    if conflicts := sorted(name for name in kinds if name.lower() in lowered):
        raise UsageError(f"keys: the answer has a column {conflicts[0]!r} of its own; rename yours")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def stage_parts(
    batches: Iterable[pa.RecordBatch], stem: str | PathLike[str], threads: int = 1
) -> Iterator[KeyPart]:
    """Write the parts of the key table with `threads` threads. The names of the files begin with `stem`.

    Raises StoreAccessError, and UsageError for an invalid time.
    """
    parts = (
        (f"{fspath(stem)}-{number:06d}", table) for number, table in enumerate(_tables(batches))
    )
    if threads == 1:
        yield from starmap(_stage_part, parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[KeyPart]] = deque()
        for part in parts:
            waiting.append(pool.submit(_stage_part, *part))
            # The queue is bounded, so that the keys are not all in memory.
            if len(waiting) > threads:
                yield waiting.popleft().result()
        yield from (staged.result() for staged in waiting)


def _stage_part(path: str, table: pa.Table) -> KeyPart:
    ArrowFile.write(f"{path}.rows", table.schema, table.to_batches())
    keys = _sorted_keys(table)
    ArrowFile.write(f"{path}.keys", KEYS_SCHEMA, [keys])
    return KeyPart(path, table.num_rows, keys.num_rows)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches in tables of about PART_ROWS rows, or fewer if they are large."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, PART_ROWS):
            piece = batch.slice(start, PART_ROWS)
            if rows + piece.num_rows > PART_ROWS or size > PART_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if rows:
        yield pa.Table.from_batches(waiting)


def _sorted_keys(table: pa.Table) -> pa.RecordBatch:
    topic, key = table["topic"], table["key"]
    rows = np.flatnonzero(pc.and_(pc.is_valid(topic), pc.is_valid(key)).to_numpy())
    texts = [
        one_array(column.take(pa.array(rows)).cast(pa.large_string())) for column in (topic, key)
    ]
    rows, texts = _with_spellings(rows, *texts)
    hashes = np.empty(len(rows), np.int32)
    hash_keys(*texts_of(texts[0]), *texts_of(texts[1]), hashes)
    # Sort by hash, because an IndexFile is searched for the hashes in ascending order.
    order = np.argsort(hashes, kind="stable")
    times = [
        _milliseconds(table, name, unbounded)[rows[order]]
        for name, unbounded in (("begin", -_UNBOUNDED - 1), ("end", _UNBOUNDED))
    ]
    arrays = [
        pa.array(rows[order].astype(np.int32)),
        pa.array(hashes[order]),
        *map(pa.array, times),
    ]
    arrays += [text.take(pa.array(order)) for text in texts]
    return pa.RecordBatch.from_arrays(arrays, schema=KEYS_SCHEMA)


def _with_spellings(
    rows: npt.NDArray[np.int64], topics: pa.Array, keys: pa.Array
) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    """Add each id in lower case once more in upper case (see `spellings`). Return the rows, and topics and keys."""
    upper = pc.ascii_upper(keys)
    lower = np.flatnonzero(pc.not_equal(upper, keys).to_numpy(zero_copy_only=False))
    # The regular expression is slow, so it is applied only to keys that have a letter in lower case.
    is_id = pc.match_substring_regex(keys.take(pa.array(lower)), f"^(?:{ID_PATTERN})$")
    ids = lower[is_id.to_numpy(zero_copy_only=False)]
    if not len(ids):
        return rows, [topics, keys]
    further = [topics.take(pa.array(ids)), upper.take(pa.array(ids))]
    texts = [pa.concat_arrays(pair) for pair in zip((topics, keys), further, strict=True)]
    return np.concatenate([rows, rows[ids]]), texts


def _milliseconds(table: pa.Table, name: str, unbounded: int) -> npt.NDArray[np.int64]:
    """Return a bound of each row's time window, in milliseconds; null is unbounded. Both bounds are inclusive."""
    if name not in table.column_names:
        return np.full(table.num_rows, unbounded, np.int64)
    column = table[name]
    if _is_text(column.type):
        column = _from_text(column, name)
    is_number = pa.types.is_integer(column.type)
    if pa.types.is_timestamp(column.type):
        column = _from_timestamp(column, up=name == "begin")
    filled: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(unbounded).to_numpy()
    if is_number and (seconds := filled[(SECONDS.start <= filled) & (filled < SECONDS.stop)]).size:
        raise UsageError(f"keys: column {name!r}: {in_seconds(int(seconds[0]))}")
    return filled


def _from_timestamp(column: pa.ChunkedArray, up: bool) -> pa.ChunkedArray:
    unit = column.type.unit
    values = column.cast(pa.int64())
    if unit in _MS_PER_UNIT:
        return pc.multiply_checked(values, _MS_PER_UNIT[unit])
    step = _UNITS_PER_MS[unit]
    # The begin is rounded up and the end down, so that a window never becomes wider.
    # floor_divide also rounds times before 1970 down, unlike a division of integers in Arrow.
    floor = np.floor_divide(values.fill_null(0).to_numpy() + (step - 1 if up else 0), step)
    return pa.chunked_array([pa.array(floor, mask=column.is_null().to_numpy())])


def _from_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Parse times: integers are milliseconds, all other values ISO 8601, in UTC if they have no zone."""
    # An empty value is a null.
    column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
    # All rows must have the same form, because Arrow casts whole columns.
    for kind in (pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:
            reason = str(error)
    raise UsageError(
        f"keys: column {name!r} must contain only milliseconds or only ISO 8601 times: {reason}"
    )


def window_of(parts: Iterable[KeyPart]) -> TimeWindow | None:
    """Return the smallest window that contains the windows of all keys.

    Return None if there are no keys, or if the smallest window is unbounded at both ends.
    """
    begin, end = _UNBOUNDED, -_UNBOUNDED - 1
    for part in parts:
        keys = _keys_of(part.path)
        if len(keys):
            begin = min(begin, pc.min(keys.column("begin")).as_py())
            end = max(end, pc.max(keys.column("end")).as_py())
            if (begin, end) == (-_UNBOUNDED - 1, _UNBOUNDED):
                # The window is already unbounded at both ends, so further keys cannot widen it.
                return None
    return TimeWindow(begin, end) if begin <= end else None


def texts_of(array: pa.Array) -> KeyTexts:
    """Return the strings of a large_string array without nulls."""
    _, offsets, data = array.buffers()
    at = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    # Arrow may omit the buffer of empty strings, but kernels need an array.
    if data is None or not data.size:
        return KeyTexts(np.empty(1, np.uint8), np.zeros(len(array) + 1, np.int64))
    return KeyTexts(np.frombuffer(data, np.uint8), at)


def _keys_of(path: str) -> pa.RecordBatch:
    return ArrowFile.map(f"{path}.keys").get_batch(0)


class SortedKeys:
    """The memory-mapped `.keys` file of a part.

    batch   the keys, with KEYS_SCHEMA
    hashes  int32[n], the distinct hashes, ascending
    first   int64[n + 1], for each hash the number of its first row in the batch
    """

    def __init__(self, path: str) -> None:
        self.batch: pa.RecordBatch = _keys_of(path)
        every = self.batch.column("hash").to_numpy()
        begins = np.flatnonzero(np.diff(every, prepend=-1))
        self.hashes: npt.NDArray[np.int32] = np.ascontiguousarray(every[begins])
        self.first = np.append(begins, len(every))

    def rows_of(
        self, numbers: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Find the keys that have one of the hashes `self.hashes[numbers]`.

        Return two arrays with a value per found key: the index i for which `self.hashes[numbers[i]]` is the key's hash,
        and the key's row in `self.batch`.
        """
        begins, counts = (
            self.first[numbers],
            self.first[numbers.astype(np.int64) + 1] - self.first[numbers],
        )
        which = np.repeat(np.arange(len(numbers)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(which)) - np.repeat(ends - counts, counts)
        return which, begins[which] + within

    def rows_with(
        self, hashes: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Find the keys that have one of these hashes.

        Return two arrays with a value per key: the index of its hash in `hashes`, and its row in `self.batch`.
        """
        place = np.searchsorted(self.hashes, hashes)
        inside = np.flatnonzero(place < len(self.hashes))
        inside = inside[self.hashes[place[inside]] == hashes[inside]]
        which, rows = self.rows_of(place[inside])
        return inside[which], rows
