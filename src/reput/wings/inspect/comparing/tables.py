"""Compare a store with an export of it, row by row. Finds missing rows, rows without a message, and different values.

The store is read as an export reads it, with the topics, times and columns with which the table was created. Each part
of the log is compared with the rows that have its physical offsets, so memory is bounded by the size of a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import Finding, Kind
from reput.core import LogListing
from reput.engine.messages import COLUMNS, CORRUPT_REASON
from reput.engine.tables import ReadMark, dataset
from reput.errors import UsageError
from reput.wings.inspect.comparing.difference import Difference, Example, Extent, Part, Way, What
from reput.wings.lakes import Destination, ExportRows, open_stores

# Maximum size of one part of the log: memory holds only one part at a time.
_MOST_ROWS, _MOST_BYTES = 500_000, 256 << 20
# The least and greatest possible offsets, so that no row of the export is missed.
_LEAST, _MOST = -(2**63), 2**63 - 1
_PLACE = ("topic", "queue_id", "queue_offset", "physical_offset", "size")
Rows = npt.NDArray[np.int64]


def diff_export(
    store: str,
    destination: Destination,
    name: str | None = None,
    *,
    store_is_b: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Difference:
    """Compare a store with a table that it was exported to. Nothing is written.

    Args:
        store: The store's folder or URL.
        destination: The table.
        name: The store's name in the table; by default its path. If the table has no store of this name, the rows that
            were exported from the same log are used.
        store_is_b: Whether the store is called B in the result, and the table A.
        storage_options: Options of a store's URL.

    Raises:
        UsageError: the table has no messages of this store, or lacks the columns by which rows are paired.
        StoreNotFoundError, StoreAccessError, StoreChangedError: a file cannot be read.
    """
    (source,) = open_stores([store], [name] if name else [], storage_options)
    state = destination.state([source.name])
    if state is not None and state.request.get("upsert_by"):
        raise UsageError(
            f"{destination.name}: has only the newest message of each key, so it cannot be compared with a store"
        )
    marks = {} if state is None else state.marks
    recorded_name, mark = _mark_of(source, marks, destination)
    rows = ExportRows(destination, recorded_name, is_only_one=state is None or len(marks) == 1)
    sides = _Sides(1, 0) if store_is_b else _Sides(0, 1)
    extents = [Extent(0, mark.end)] * 2
    extents[sides.store] = Extent(source.begin, source.begin)
    difference = Difference(Way.BY_ROW, (extents[0], extents[1]))
    request = {} if state is None else dict(state.request)
    _TableComparison(store, source, mark, rows, sides, difference, storage_options).run(request)
    return difference


@dataclass(frozen=True, slots=True)
class _Sides:
    """Which side of the comparison the store is, and which the export is: 0 for the first (A), 1 for the second (B)."""

    store: int
    export: int

    def only_in(self, side: int) -> What:
        return What.ONLY_IN_B if side else What.ONLY_IN_A


def _mark_of(
    source: LogListing, marks: Mapping[str, ReadMark], destination: Destination
) -> tuple[str, ReadMark]:
    """Return the name under which the table records the store, and the offset up to which the store was exported.

    If the table does not contain the store's own name, find a recorded store that has the same log. Return the name and
    the offset of the recorded store.
    """
    if source.name in marks:
        return source.name, marks[source.name]
    for name, mark in marks.items():
        if mark.is_of(source):
            return name, mark
    names = ", ".join(marks) or "none"
    raise UsageError(
        f"{destination.name}: has no messages of {source.name}; its stores are: {names}; "
        "pass one of these as name",
        arguments=["name"],
    )


class _TableComparison:
    """Compares a store with a table, part by part, and adds the differences to a report."""

    def __init__(
        self, store: str, source: LogListing, mark: ReadMark, rows: ExportRows, sides: _Sides,
        difference: Difference, storage_options: Mapping[str, str] | None,
    ) -> None:  # fmt: skip
        self._store, self._source, self._mark = store, source, mark
        self._options = storage_options
        self._rows, self._sides, self._difference = rows, sides, difference
        self._end = source.begin

    def run(self, request: dict[str, Any]) -> None:
        # The store may have another name in the table, so the column `store` is not compared.
        columns = [name for name in COLUMNS.names if name in self._rows.columns and name != "store"]
        self._columns = columns
        if left_out := [name for name in COLUMNS.names if name not in (*columns, "store")]:
            self._difference.notes.append(f"the export has no {', '.join(left_out)}")
        low = _LEAST
        for part in self._parts(request):
            # The last part is an empty table. It stands for the offsets after the store's last message, where the
            # export may still have rows.
            high = int(part["physical_offset"][-1].as_py()) + 1 if len(part) else _MOST
            exported = self._rows.between(low, high, columns or ["physical_offset"])
            self._compare(part, exported)
            low = high
        extents = list(self._difference.logs)
        extents[self._sides.store] = Extent(self._source.begin, self._end)
        self._difference.logs = (extents[0], extents[1])

    def _parts(self, request: dict[str, Any]) -> Iterator[pa.Table]:
        """Yield the store's messages in large parts, in the order of the log.

        The last part is an empty table. It stands for the offsets after the store's last message, where the export may
        still have rows.
        """
        columns = list(dict.fromkeys([*_PLACE, *self._columns, CORRUPT_REASON.name]))
        topics = request.get("topics") or None
        # Damage is returned as rows, so that it can be reported.
        reader = dataset(
            self._store, columns, topic=topics, begin=request.get("begin_ms"),
            end=request.get("end_ms"), on_corrupt="row",
            decompressed=bool(request.get("decompressed", True)), storage_options=self._options,
        ).to_reader()  # fmt: skip
        batches: list[pa.RecordBatch] = []
        for batch in reader:
            batch = self._without_damage(batch)
            if len(batch):
                self._end = int(batch["physical_offset"][-1].as_py() + batch["size"][-1].as_py())
                batches.append(batch)
            is_large = sum(part.nbytes for part in batches) >= _MOST_BYTES
            if is_large or sum(map(len, batches)) >= _MOST_ROWS:
                yield pa.Table.from_batches(batches).combine_chunks()
                batches = []
        if batches:
            yield pa.Table.from_batches(batches).combine_chunks()
        yield pa.Table.from_batches([], reader.schema)

    def _without_damage(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Report unreadable records as damage, and return the other rows."""
        is_read = batch[CORRUPT_REASON.name].is_null()
        if is_read.false_count == 0:
            return batch
        for row in batch.filter(batch[CORRUPT_REASON.name].is_valid()).to_pylist():
            self._difference.damage[self._sides.store].append(
                Finding(
                    Kind.UNREADABLE_RECORD, self._store, row[CORRUPT_REASON.name],
                    physical_offset=row["physical_offset"], length=row["size"] or 0,
                )
            )  # fmt: skip
        return batch.filter(is_read)

    def _compare(self, messages: pa.Table, exported: pa.Table) -> None:
        ours = messages["physical_offset"].to_numpy()
        theirs = exported["physical_offset"].to_numpy()
        _, left, right = np.intersect1d(ours, theirs, assume_unique=False, return_indices=True)
        names = self._differing(messages.take(left), exported.take(right))
        self._difference.equal_messages += len(left) - len(names)
        self._difference.add(Part.MESSAGE, What.DIFFERENT, len(names))
        for row in sorted(names)[: self._difference.room(Part.MESSAGE, What.DIFFERENT)]:
            place = messages.slice(int(left[row]), 1)
            self._add_example(What.DIFFERENT, place, (0, 1), ", ".join(names[row]))
        self._only_in(self._sides.store, messages.take(_rest(len(ours), left)))
        self._only_in(self._sides.export, exported.take(_rest(len(theirs), right)))

    def _differing(self, messages: pa.Table, exported: pa.Table) -> dict[int, list[str]]:
        """Return the names of the columns that differ, for each row with a difference."""
        names: dict[int, list[str]] = {}
        for name in self._columns:
            ours, theirs = _plain(messages[name]), _plain(exported[name])
            # Compare whole columns first, because a comparison of Python values is slow.
            if ours.type == theirs.type and ours.equals(theirs):
                continue
            pairs = zip(ours.to_pylist(), theirs.to_pylist(), strict=True)
            for row, (value, exported_value) in enumerate(pairs):
                if value != exported_value:
                    names.setdefault(row, []).append(name)
        return names

    def _only_in(self, side: int, rows: pa.Table) -> None:
        if not len(rows):
            return
        difference, what = self._difference, self._sides.only_in(side)
        difference.add(Part.MESSAGE, what, len(rows))
        offsets = rows["physical_offset"].to_numpy()
        if side == self._sides.store:
            # The last export ended at the offset `_mark.end`. Later messages have not been exported yet.
            difference.behind[side] += int(np.count_nonzero(offsets >= self._mark.end))
        else:
            # The store has deleted these messages after the export.
            difference.expired[side] += int(np.count_nonzero(offsets < self._source.begin))
        for row in range(min(difference.room(Part.MESSAGE, what), len(rows))):
            self._add_example(what, rows.slice(row, 1), (side,))

    def _add_example(
        self, what: What, row: pa.Table, sides: Sequence[int], detail: str = ""
    ) -> None:
        values = row.select([name for name in _PLACE if name in row.schema.names]).to_pylist()[0]
        words = (("", "topic"), ("queue ", "queue_id"), ("queue offset ", "queue_offset"))
        place = ", ".join(f"{word}{values[name]}" for word, name in words if name in values)
        a, b = (values["physical_offset"] if side in sides else None for side in (0, 1))
        self._difference.examples.append(Example(Part.MESSAGE, what, place, a, b, detail))


def _rest(count: int, rows: Rows) -> Rows:
    rest = np.ones(count, np.bool_)
    rest[rows] = False
    return np.flatnonzero(rest)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with a type that does not depend on the table's format.

    Times become numbers, because some are outside Python's calendar. Arrow's types large_string and large_binary become
    string and binary.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_large_binary(kind) else column
