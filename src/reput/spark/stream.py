"""Implement `readStream` of the data source, which follows CommitLogs that brokers are writing.

An offset of the stream is a JSON object with a read mark (`reput.engine.tables.ReadMark`) for each store. The mark has
the physical offset up to which the store's log was read, and a digest that identifies the log before this offset. The
physical offset is always the beginning of a record, or the end that the log had when the mark was created. Spark keeps
the stream's offsets in its checkpoint, and repeats an unfinished batch with the same offsets. So every message arrives
exactly once in a sink that accepts each batch once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from reput.core import LogListing, ScanBuffers
from reput.engine.rebuild import find_log_end, first_record_of, walk_on
from reput.engine.tables import Bounds, ReadMark, first_stored, plan_between
from reput.errors import ReputError, StoreChangedError, UsageError
from reput.spark.errors import log, one_line
from reput.spark.options import EARLIEST, LATEST, SourceOptions
from reput.spark.partitions import LogPartition, offsets_by_store, partitions_of, read_partition
from reput.spark.versions import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

# Count messages in this many unread bytes of the log (the size of one read of a remote file), and estimate the rest.
_COUNTED_BYTES = 4 << 20
_ANY_NUMBER = 1 << 62
Offset = dict[str, dict[str, Any]]
"""For the name of each store, the position up to which its log was read, as the fields of a ReadMark."""


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream. Spark creates it in the driver for planning, and sends it to executors for reading."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        if options.ending_offsets is not None:
            raise UsageError(
                "endingOffsets: a stream has no end; use read instead of readStream, or trigger(availableNow=True)"
            )
        if not HAS_LIMITS and options.has_trigger_limit:
            raise UsageError(
                "maxOffsetsPerTrigger, maxBytesPerTrigger: Spark 4.1 cannot limit a trigger; use Spark 4.2"
            )
        self._options, self._schema = options, schema
        self._conditions = options.conditions()
        self._reached: Offset = {}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offset:
        with one_line():
            options, sources = self._options, self._sources()
            offsets = options.starting_offsets
            if offsets is None:
                offsets = LATEST if options.starting_ms is None else EARLIEST
            named = offsets_by_store(offsets, "startingOffsets", sources)
            if offsets == LATEST:
                begins = self._log_ends(sources)
            else:
                begins = {
                    source.name: self._initial(source, named.get(source.name)) for source in sources
                }
            return {
                source.name: ReadMark.at(source, begins[source.name]).as_json()
                for source in sources
            }

    def _initial(self, source: LogListing, offset: int | None) -> int:
        low_ms = self._options.starting_ms
        # The offset may be inside a record, so search for the next record.
        if offset is not None and offset > source.begin:
            return first_record_of(source, offset, ScanBuffers())
        if low_ms is None or not source.files:
            return source.begin
        return first_stored(source, low_ms)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with one_line():
            self._target = self._log_ends(self._sources())

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of the next batch.

        Spark 4.1 passes no arguments. In that case, this returns the end of every log, and `partitions` checks the
        start of the batch.
        """
        with one_line():
            self._reached = self._latest(start or {}, limit)
            return self._reached

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the ends of the logs and their distance from the last `latestOffset`, for Spark's progress reports."""
        with one_line():
            read_to = {name: mark.end for name, mark in marks_of(self._reached).items()}
            return lag_of(self._sources(), read_to)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with one_line():
            begins, ends = marks_of(start), marks_of(end)
            if not HAS_LIMITS:
                self._check_start(begins, self._sources())
            return self._plan(begins, ends)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_partition(partition, self._options, self._schema, self._conditions)

    def _sources(self) -> list[LogListing]:
        return self._options.logs()

    def _log_ends(self, sources: Sequence[LogListing]) -> dict[str, int]:
        buffers = ScanBuffers()
        return {source.name: find_log_end(source, buffers) for source in sources}

    def _check_start(self, marks: dict[str, ReadMark], sources: list[LogListing]) -> None:
        """Check the start of a batch for Spark 4.1, which does not pass the start to `latestOffset`.

        Raises StoreChangedError.
        """
        self._look_for(marks, sources)
        buffers = ScanBuffers()
        for source in sources:
            if source.name in marks:
                self._begin(source, marks[source.name], buffers)

    def _look_for(self, marks: dict[str, ReadMark], sources: list[LogListing]) -> None:
        for name in sorted(marks.keys() - {source.name for source in sources}):
            self._lose(f"{name}: no longer exists")

    def _latest(self, start: Offset, limit: ReadLimit | None) -> Offset:
        buffers = ScanBuffers()
        marks = marks_of(start)
        sources = [s for s in self._sources() if self._target is None or s.name in self._target]
        self._look_for(marks, sources)
        latest = dict(start)
        share = _Share.of(limit, self._options)
        for number, source in enumerate(sources):
            # The stream's offset has a read mark for each store that was read before. A store without a mark is new, so
            # read the store from its beginning.
            mark = marks.get(source.name, ReadMark(source.begin))
            begin = self._begin(source, mark, buffers)
            end = share.advance(source, begin, len(sources) - number, buffers)
            if self._target is not None:
                # With Trigger.AvailableNow, read no further than the ends that the logs had when the run started.
                end = max(min(end, self._target[source.name]), begin)
            # Spark starts a batch whenever the stream's offset has changed. So if a store has nothing new to read, do
            # not change the store's part of the offset.
            if end != mark.end or begin != mark.end or source.name not in latest:
                latest[source.name] = ReadMark.at(source, end).as_json()
        return latest

    def _begin(self, source: LogListing, mark: ReadMark, buffers: ScanBuffers) -> int:
        """Return the offset from which to continue in a store. Report missing messages before it as lost data."""
        if mark.end < source.begin:
            self._lose(f"{source.name}: offsets {mark.end} to {source.begin} have expired")
            return source.begin
        if why := self._why_another(source, mark, buffers):
            end = find_log_end(source, buffers)
            self._give_up(source, mark, why, f"reading it from offset {source.begin} to {end}")
            return source.begin
        return mark.end

    def _why_another(self, source: LogListing, mark: ReadMark, buffers: ScanBuffers) -> str:
        """Return why a store's log is not the log that was read up to `mark`, or an empty string if it is that log.

        The log may now end before the mark. To find the log's end, the last file must be read. So look for the end only
        if the mark is in the last file or after it.
        """
        last = source.last_with_data()
        near = last is None or mark.end > last.start
        return mark.why_another(source, find_log_end(source, buffers) if near else mark.end)

    def _give_up(self, source: LogListing, mark: ReadMark, why: str, instead: str) -> None:
        """Raise StoreChangedError because the log was replaced. If failOnDataLoss is false, print a warning instead."""
        reason = f"{source.name}: the log was replaced or truncated since it was read up to offset {mark.end}: {why}"
        if self._options.fail_on_data_loss:
            raise StoreChangedError(
                f"{reason}; set failOnDataLoss=false to read the new log from its beginning (messages in both logs are "
                "read a second time), or start a new stream, with another checkpointLocation and startingOffsets"
            )
        log(f"{reason}; {instead}")

    def _lose(self, reason: str) -> None:
        """Raise StoreChangedError, or log a warning if failOnDataLoss is false."""
        if self._options.fail_on_data_loss:
            raise StoreChangedError(
                f"{reason}; failOnDataLoss=false continues without these messages"
            )
        log(f"{reason}; continuing without these messages")

    def _plan(self, start: dict[str, ReadMark], end: dict[str, ReadMark]) -> list[InputPartition]:
        sources = self._sources()
        buffers = ScanBuffers()
        bounds = {
            source.name: self._bounds(source, start.get(source.name), end[source.name], buffers)
            for source in sources
            if source.name in end
        }
        plan = plan_between(sources, bounds, split_bytes=self._options.split_bytes)
        for store, lost, _ in plan.missing:
            self._lose(f"{store}: no file has offsets {lost.start} to {lost.stop}")
        return [*partitions_of(plan, self._options)]

    def _bounds(
        self, source: LogListing, start: ReadMark | None, end: ReadMark, buffers: ScanBuffers
    ) -> Bounds:
        """Return the range of a store in a batch. The log may have been replaced since the batch was planned."""
        if start == end:
            return Bounds(end.end, end.end)
        if why := self._why_another(source, end, buffers):
            self._give_up(source, end, why, f"nothing is read up to offset {end.end}")
            return Bounds(end.end, end.end)
        # If the log was replaced after it was read up to `start`, the batch begins at the beginning of the new log.
        is_replaced = start is None or self._why_another(source, start, buffers)
        return Bounds(source.begin if start is None or is_replaced else start.end, end.end)


def marks_of(offset: Offset) -> dict[str, ReadMark]:
    """Return, for each store that a stream's offset names, the position up to which its log was read.

    Raises StoreChangedError for an invalid offset.
    """
    try:
        return {name: ReadMark.from_json(mark) for name, mark in offset.items()}
    except (TypeError, ValueError):
        raise StoreChangedError(
            f"the stream's checkpoint has an invalid offset: {offset}; "
            "pass a new checkpointLocation, and startingOffsets"
        ) from None


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that raises its error on first use.

    If the creation of a stream fails, Spark's process replaces the error by another one.
    """

    def __init__(self, error: ReputError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        with one_line():
            raise self._error

    def initialOffset(self) -> Offset:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        self._refuse()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()


@dataclass
class _Share:
    """How many messages and bytes a trigger may still read; None for no limit.

    The stores that the trigger has not read yet share these numbers evenly.
    """

    messages: int | None
    size: int | None

    @classmethod
    def of(cls, limit: ReadLimit | None, options: SourceOptions) -> _Share:
        if isinstance(limit, ReadMaxRows):
            return cls(limit.max_rows, options.max_bytes_per_trigger)
        return cls(None, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

    def advance(self, source: LogListing, begin: int, stores: int, buffers: ScanBuffers) -> int:
        """Return the physical offset up to which to read a store in this trigger. Raises StoreError."""
        if (
            self.messages == 0
            or (self.size is not None and self.size <= 0)
            or source.is_at_end(begin)
        ):
            return begin
        if self.messages is None and self.size is None:
            return max(find_log_end(source, buffers), begin)
        # Shares are rounded up, so that no store's share is 0 if the limit is below the number of stores.
        walked = walk_on(
            source, begin, buffers,
            max_messages=self.messages and -(-self.messages // stores),
            max_bytes=self.size and -(-self.size // stores),
        )  # fmt: skip
        if self.messages is not None:
            self.messages -= walked.messages
        if self.size is not None:
            self.size -= walked.end - begin
        return walked.end


def lag_of(sources: Iterable[LogListing], read_to: Mapping[str, int]) -> dict[str, Any]:
    """Return how far the log of each store continues after `read_to`.

    The values of a store are `end` (the log's present end), `bytes_behind` and `messages_behind`. The messages in the
    first 4 MiB after `read_to` are counted. The number of messages after the 4 MiB is estimated from this count. Raises
    StoreError.
    """
    buffers = ScanBuffers()
    return {
        source.name: _of_store(source, read_to.get(source.name, source.begin), buffers)
        for source in sources
    }


def _of_store(source: LogListing, position: int, buffers: ScanBuffers) -> dict[str, int]:
    end = position if source.is_at_end(position) else find_log_end(source, buffers)
    behind, messages = max(end - position, 0), 0
    if behind:
        walked = walk_on(
            source, position, buffers, max_bytes=_COUNTED_BYTES, max_messages=_ANY_NUMBER
        )
        messages = walked.messages
        if position < walked.end < end:
            messages = messages * behind // (walked.end - position)
    return {"end": end, "bytes_behind": behind, "messages_behind": messages}
