"""`readStream` of the data source: follows CommitLogs that brokers are writing.

An offset of the stream is a JSON object of physical offsets by store, each where a record begins or the log ended.
Spark keeps them in its checkpoint and plans a batch that it did not finish again, from the same offsets: so every
message comes once into a sink that takes each batch once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from reput.errors import ReputError, StoreChangedError, UsageError
from reput.spark.errors import one_line
from reput.spark.log import log
from reput.spark.options import EARLIEST, LATEST, SourceOptions
from reput.spark.partitions import LogPartition, offsets_by_store, partitions_of, read_partition
from reput.store.scan import ScanBuffers
from reput.table.log_end import find_log_end, first_record_of, is_at_end, walk_on
from reput.table.plan import Bounds, plan_between
from reput.table.sources import LogSource, open_sources
from reput.table.times import timed_ranges, within

Offset = dict[str, int]


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made by Spark, once in the driver to plan, and sent to executors to read."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        if options.ending_offsets is not None:
            raise UsageError(
                "endingOffsets: a stream has no end; read a batch, or use trigger(availableNow=True)"
            )
        self._options, self._schema = options, schema
        self._conditions = options.conditions()
        self._target: Offset | None = None
        self._known: set[str] = set()

    def initialOffset(self) -> Offset:
        with one_line():
            options, sources = self._options, self._sources()
            wanted = options.starting_offsets
            if wanted is None:
                wanted = LATEST if options.starting_ms is None else EARLIEST
            named = offsets_by_store(wanted, "startingOffsets", sources)
            if wanted == LATEST:
                return self._log_ends(sources)
            return {
                source.name: self._initial(source, named.get(source.name)) for source in sources
            }

    def _initial(self, source: LogSource, offset: int | None) -> int:
        low_ms = self._options.starting_ms
        if offset is not None and offset > source.begin:
            return first_record_of(source, offset, ScanBuffers())
        if low_ms is None or not source.files:
            return source.begin
        timed = [
            part
            for file in source.files
            for part in timed_ranges(source.open_file, file, file.size)
        ]
        return within(timed, low_ms, None)[0].start

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

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        with one_line():
            return self._latest(start, limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with one_line():
            return self._plan(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_partition(partition, self._options, self._schema, self._conditions)

    def _sources(self) -> list[LogSource]:
        return open_sources(self._options.paths, self._options.file_systems)

    def _log_ends(self, sources: Sequence[LogSource]) -> Offset:
        buffers = ScanBuffers()
        return {source.name: find_log_end(source, buffers) for source in sources}

    def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        buffers = ScanBuffers()
        sources = [s for s in self._sources() if self._target is None or s.name in self._target]
        for name in sorted(start.keys() - {source.name for source in sources}):
            self._lose(f"{name}: not there any more")
        latest = dict(start)
        share = _Share.of(limit, self._options)
        for number, source in enumerate(sources):
            # A store that has come since is read from its beginning.
            begin = self._check(source, start.get(source.name, source.begin), buffers)
            end = share.advance(source, begin, len(sources) - number, buffers)
            if self._target is not None:
                end = max(min(end, self._target[source.name]), begin)
            latest[source.name] = end
        return latest

    def _check(self, source: LogSource, begin: int, buffers: ScanBuffers) -> int:
        """Where to go on in a store; what is missing there is data lost."""
        if begin < source.begin:
            self._lose(f"{source.name}: offsets {begin} to {source.begin} have expired")
            begin = source.begin
        if source.name not in self._known:
            self._known.add(source.name)
            end = find_log_end(source, buffers)
            if end < begin:
                self._lose(
                    f"{source.name}: the log ends at {end}, before offset {begin} that was read"
                )
                return end
        return begin

    def _lose(self, what: str) -> None:
        """Raises StoreChangedError, or tells."""
        if self._options.fail_on_data_loss:
            raise StoreChangedError(f"{what}; failOnDataLoss=false goes on without")
        log(f"{what}; going on without")

    def _plan(self, start: Offset, end: Offset) -> list[InputPartition]:
        sources = self._sources()
        bounds = {s.name: Bounds(start.get(s.name, s.begin), end.get(s.name)) for s in sources}
        plan = plan_between(sources, bounds, split_bytes=self._options.split_bytes)
        for store, lost in plan.missing:
            stop = lost.physical_offset + lost.length
            self._lose(f"{store}: no file holds offsets {lost.physical_offset} to {stop}")
        return partitions_of(plan, self._options)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says what is wrong when it is first asked for something: Spark's process follows an error of its making with
    another one, of its own."""

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

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._refuse()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()


@dataclass
class _Share:
    """What is left of a trigger's limit, shared evenly by the stores that are still to come; None is no limit."""

    messages: int | None
    size: int | None

    @classmethod
    def of(cls, limit: ReadLimit, options: SourceOptions) -> _Share:
        if isinstance(limit, ReadMaxRows):
            return cls(limit.max_rows, options.max_bytes_per_trigger)
        return cls(None, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

    def advance(self, source: LogSource, begin: int, stores: int, buffers: ScanBuffers) -> int:
        """How far to read a store in this trigger. Raises StoreError."""
        if (
            self.messages == 0
            or (self.size is not None and self.size <= 0)
            or is_at_end(source, begin)
        ):
            return begin
        if self.messages is None and self.size is None:
            return max(find_log_end(source, buffers), begin)
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
