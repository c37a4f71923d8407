"""Provide messages as an Arrow dataset, which DuckDB, Polars, pandas and pyarrow read."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from reput.base import Time, checked, optional_milliseconds
from reput.core import BrokerNames, LogListing, ScanBuffers
from reput.engine.messages import CORRUPT_REASON, select
from reput.engine.stores import NamedStore
from reput.engine.tables.explain import estimated_seconds, plan_lines
from reput.engine.tables.expressions import conditions_of, used_columns
from reput.engine.tables.filters import (
    Condition,
    OnCorrupt,
    check_on_corrupt,
    light_queues,
    selected,
)
from reput.engine.tables.found_records import OpenedQueues
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.naming import named_from
from reput.engine.tables.plan import ReadPlan, plan_reading, unknown_topics
from reput.engine.tables.read import RangeBatches
from reput.engine.tables.small_files import joined
from reput.engine.tables.warm_up import compile_for
from reput.errors import UsageError
from reput.io import Location

_log = logging.getLogger("reput.table")
_Value = TypeVar("_Value", str, int)

_Columns = Sequence[str] | Mapping[str, pc.Expression] | None
_LONGEST_STEP_S, _PAUSE_S = 10.0, 0.05


def logs_of(
    stores: Sequence[str | NamedStore],
    options: Mapping[str, str] | None = None,
    name_from: str | None = None,
) -> list[LogListing]:
    """Return the logs of stores, without duplicates.

    Args:
        stores: Paths, URLs, and NamedStores, which have their own names and options.
        options: Options of the URLs' file systems.
        name_from: Pattern that derives names of stores from their paths (`reput.engine.tables.naming`).

    Raises the errors of `find_logs`, and UsageError if two stores have the same name.
    """
    paths = [one for one in stores if not isinstance(one, NamedStore)]
    logs = named_from(find_logs(paths, options), name_from) if paths else []
    for store in stores:
        logs += _log_of(store, options) if isinstance(store, NamedStore) else []
    return logs


def _log_of(store: NamedStore, options: Mapping[str, str] | None = None) -> list[LogListing]:
    """Return the log of a NamedStore, joined with its archive.

    If the store's path is a pattern, return all matching logs. Raises the errors of `find_logs`.
    """
    path, settings = (
        (store.path, store.options)
        if Location.is_pattern(store.path)
        else store.arguments(joined=True)
    )
    logs = find_logs([Location.absolute(path)], settings.get("storage_options", options))
    names = BrokerNames(store.broker, store.cluster)
    is_named = store.name != store.path
    return [replace(log, names=names, name=store.name if is_named else log.name) for log in logs]


@dataclass(frozen=True)
class _Request:
    """The arguments of `dataset`, in the form that scans need."""

    stores: tuple[str | NamedStore, ...]
    name_from: str | None
    names: tuple[str, ...]
    conditions: tuple[Condition, ...]
    on_corrupt: OnCorrupt
    decompressed: bool
    unwrap_batches: bool
    storage_options: Mapping[str, str] | None

    def logs(self) -> list[LogListing]:
        """List the files of all stores."""
        return logs_of(self.stores, self.storage_options, self.name_from)


class _BatchSteps:
    """Stops threads of other libraries that read batches, before the interpreter ends.

    Polars continues to read in a thread after a limit is reached. If such a thread calls into the interpreter during
    its shutdown, CPython before 3.14 terminates the thread, which aborts the process (SIGABRT). Therefore such a thread
    is made to wait for a lock forever: a waiting thread does not need the interpreter.
    """

    def __init__(self) -> None:
        self._is_ending = False
        self._running = self._unfinished = 0
        self._changed = threading.Condition()
        atexit.register(self._end)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a scan as unfinished during the `with` block."""
        self._unfinished += 1
        try:
            yield
        finally:
            self._unfinished -= 1

    def __enter__(self) -> None:
        self._stop_here()
        with self._changed:
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()
        self._stop_here()

    def _stop_here(self) -> None:
        if self._is_ending and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()

    def _end(self) -> None:
        self._is_ending = True
        if self._unfinished:
            # A thread may be between two batches: wait until it begins the next batch, where `_stop_here` stops it.
            time.sleep(_PAUSE_S)
        with self._changed:
            self._changed.wait_for(lambda: not self._running, _LONGEST_STEP_S)


_steps = _BatchSteps()


class DatasetScanner(ds.Scanner):  # type: ignore[misc]
    """Reads selected columns and rows of a dataset, in the calling thread.

    pyarrow's own scanner reads ahead in threads, which need the interpreter to create a batch. DuckDB waits for these
    threads while it holds the interpreter's lock, which would be a deadlock.
    """

    def __init__(
        self,
        open_reader: Callable[[], pa.RecordBatchReader],
        schema: pa.Schema,
        columns: _Columns,
        filter: pc.Expression | None,
    ) -> None:
        self._open_reader, self._columns, self._filter = open_reader, columns, filter
        self._schema = self._projected(schema.empty_table()).schema

    @property
    def projected_schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        return self._schema

    dataset_schema = projected_schema

    def _projected(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        columns = self._columns
        names = (
            list(columns) if columns is not None and not isinstance(columns, Mapping) else columns
        )
        return ds.InMemoryDataset(rows).to_table(columns=names, filter=self._filter)

    def to_batches(self) -> Generator[pa.RecordBatch]:
        """Yield batches. No batch is empty."""
        with _steps.reading():
            reader = iter(self._open_reader())
            while True:
                with _steps:
                    batch = next(reader, None)
                    parts = [] if batch is None else self._projected(batch).to_batches()
                if batch is None:
                    return
                yield from (part for part in parts if len(part))

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the batches."""
        return pa.RecordBatchReader.from_batches(self._schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Read all rows into memory."""
        return pa.Table.from_batches(self.to_batches(), self._schema)

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows. Reading stops after the batch that completes them."""
        parts, missing = [], num_rows
        with closing(self.to_batches()) as batches:
            while missing > 0 and (batch := next(batches, None)) is not None:
                parts.append(batch.slice(0, missing))
                missing -= len(parts[-1])
        return pa.Table.from_batches(parts, self._schema)

    def count_rows(self) -> int:
        """Count the rows."""
        return sum(map(len, self.to_batches()))

    def take(self, indices: Any) -> pa.Table:
        """Read all rows, and return the rows with these numbers."""
        return self.to_table().take(indices)


class Dataset(ds.Dataset):  # type: ignore[misc]
    """Messages of stores as an Arrow dataset, created by `reput.dataset`.

    It can be read any number of times. Each read returns the messages that exist at that time. Only the requested
    columns are decoded. Filters on topic, queue, store time or unique key use ConsumeQueues and IndexFiles, like the
    arguments of `reput.dataset`. An IndexFile is used only if all of its items, or samples of them, agree with the log.

    Reading raises CorruptMessageError, StoreNotFoundError (if a file expired in the meantime), StoreAccessError and
    StoreChangedError. Libraries that read through C, such as DuckDB, raise their own error with the same text.
    """

    def __init__(self, request: _Request) -> None:
        self._request = request
        self._schema = select(request.names)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self._schema

    def scanner(
        self,
        columns: _Columns = None,
        filter: pc.Expression | None = None,
        **_: Any,
    ) -> DatasetScanner:
        """Return a scanner for some columns and rows.

        Args:
            columns: Names of columns, or expressions by name; None for all.
            filter: The condition for rows.

        Returns:
            A scanner, which reads only when rows are requested. Other arguments of `pyarrow.dataset.Scanner` are
            ignored.
        """
        needed = [] if filter is None else used_columns(filter, self._schema)
        if isinstance(columns, Mapping):
            for expression in columns.values():
                needed += used_columns(expression, self._schema)
        else:
            needed += self._schema.names if columns is None else columns
        # A batch needs at least one column, which shows the number of rows.
        names = [name for name in self._schema.names if name in needed] or self._schema.names[:1]
        pushed = self._pushed(filter)
        return DatasetScanner(lambda: self._reader(names, pushed), select(names), columns, filter)

    def _pushed(self, filter: pc.Expression | None) -> list[Condition]:
        """Return conditions that reduce the rows to read. The scanner applies the whole filter to these rows.

        Warns of light queues, because no row has one as its topic.
        """
        pushed = [] if filter is None else conditions_of(filter, self._schema)
        for line in light_queues(pushed):
            warnings.warn(line, stacklevel=3)
        return pushed

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of all batches, which reads them once."""
        return self._reader(self._schema.names, ())

    def _reader(self, names: Sequence[str], pushed: Iterable[Condition]) -> pa.RecordBatchReader:
        request = replace(
            self._request, names=tuple(names), conditions=(*self._request.conditions, *pushed)
        )
        return _read(request, request.logs())

    def explain(self, filter: pc.Expression | None = None) -> str:
        """Return how rows that meet a filter are found: which index answers, what is read, and how long it takes.

        A filter that cannot be used to skip messages is applied to all of them. Only indexes and a few MiB of the log
        are read; the latter show how fast this machine reads all columns.
        """
        request, logs = self._request, self._request.logs()
        conditions = (*request.conditions, *self._pushed(filter))
        request = replace(request, conditions=conditions, on_corrupt="row")
        plan = plan_reading(logs, request.conditions, unwrap_batches=request.unwrap_batches)
        whole = sum(file.size for source in logs for file in source.files)
        compile_for(request.names)
        seconds = estimated_seconds(
            plan, lambda tasks: [*_batches(ReadPlan([*tasks]), self._schema, request)]
        )
        conditions_text = ", ".join(map(str, request.conditions)) or "none"
        lines = [f"conditions: {conditions_text}", *plan_lines(plan, whole)]
        return "\n".join([*lines, f"time: about {seconds:,.1f} s, by a sample"])

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        """Count the messages that meet a filter. Only columns that the filter names are decoded."""
        columns = [] if filter is None else used_columns(filter, self._schema)
        return self.scanner(columns or self._schema.names[:1], filter).count_rows()

    def filter(self, expression: pc.Expression) -> NoReturn:
        """Raise UsageError: pass the filter to `scanner` or `to_table` instead."""
        self._refuse("filter")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches for a reader of the Arrow PyCapsule protocol."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self._request,)

    def __repr__(self) -> str:
        conditions = "".join(f", {condition}" for condition in self._request.conditions)
        stores = ", ".join(
            store.name if isinstance(store, NamedStore) else store for store in self._request.stores
        )
        return f"<reput.dataset {stores}{conditions}: {len(self._schema)} columns>"

    # These methods of pyarrow need a dataset implemented in C++.

    def get_fragments(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UsageError: a dataset of messages has no Arrow fragments."""
        self._refuse("get_fragments")

    def replace_schema(self, *_: Any) -> NoReturn:
        """Raise UsageError: the columns of messages are fixed."""
        self._refuse("replace_schema")

    def sort_by(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UsageError: a dataset of messages cannot be sorted, but the result of `to_table` can."""
        self._refuse("sort_by")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UsageError: a dataset of messages cannot be joined, but the result of `to_table` can."""
        self._refuse("join")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UsageError: a dataset of messages cannot be joined, but the result of `to_table` can."""
        self._refuse("join_asof")

    @property
    def partition_expression(self) -> NoReturn:
        """Raise UsageError: a dataset of messages has no Arrow partitions."""
        self._refuse("partition_expression")

    def _refuse(self, name: str) -> NoReturn:
        raise UsageError(
            f"{name}: a dataset of messages does not support this; use to_table(columns, filter)"
        )


@checked
def dataset(
    stores: str | PathLike[str] | NamedStore | Sequence[str | PathLike[str] | NamedStore],
    columns: Iterable[str] | None = None,
    *,
    topic: str | Collection[str] | None = None,
    key: str | Collection[str] | None = None,
    unique_key: str | Collection[str] | None = None,
    queue_id: int | Collection[int] | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    on_corrupt: OnCorrupt = "fail",
    decompressed: bool = True,
    unwrap_batches: bool = False,
    storage_options: Mapping[str, str] | None = None,
    name_from: str | None = None,
) -> Dataset:
    """Return an Arrow dataset of messages, in the order of the log, for DuckDB, Polars, pandas and pyarrow.

    The dataset can be read any number of times, batch by batch, so a store may be larger than memory. Messages are
    found through ConsumeQueues and IndexFiles where these are complete; the rest of the log is scanned. Nothing is
    written into the store.

    Args:
        stores: A store directory, its commitlog folder, CommitLog files, a pattern or URL of these, or a NamedStore;
            or several of them.
        columns: Names from `reput.engine.messages.schema`, in the desired order; None for all columns of a message.
        topic: Only messages of this topic, or of one of these topics. `orders-*` matches all topics that begin with
            `orders-`; a pattern is compared with the topic of every message. A topic that no store has causes a
            warning. A light queue (%LMQ%) is refused, because its messages have their own topic.
        key: Only messages with this key, or one of these keys, in their KEYS.
        unique_key: Only messages with this unique key, or one of these unique keys, which may be in lower case. If a
            5.x client sends a list of messages in one call, each has two unique keys, its own and the list's.
        queue_id: Only messages of queues with this id, or one of these ids.
        begin: Only messages stored at this time or later: milliseconds since 1970, a datetime with a timezone, or a
            text such as "2026-10-14T08:35:06" (UTC) or "2h ago".
        end: Only messages stored at this time or earlier.
        on_corrupt: "fail" raises an error at a damaged range of the log. "skip" skips it with a warning of the logger
            "reput.table". "row" returns a row for the range, if the lost messages might meet the conditions; the column
            `corrupt_reason` describes the loss.
        decompressed: Whether to decompress bodies. A body that cannot be decompressed is returned as stored, with a
            warning; the column `body_error` has the reason.
        unwrap_batches: Whether to return the messages of an inner batch (5.x) instead of the batch, each with its own
            queue offset, keys, properties and decompressed body. Keys are then searched in the whole log, because
            indexes do not have them. A batch that cannot be unwrapped is returned as stored, with a warning.
        storage_options: Options of the file system of URLs, such as `s3.endpoint_override`.
        name_from: A path such as "/data/{cluster}/{broker}/store". Stores whose paths match get their names, and the
            values of the columns `cluster` and `broker`, from their paths. NamedStores have their own names.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, FormatError.
    """
    check_on_corrupt(on_corrupt)
    names = None if columns is None else list(columns)
    if names is None and on_corrupt == "row":
        names = [*select(None).names, CORRUPT_REASON.name]
    schema = select(names)
    if not schema.names:
        raise UsageError("columns is empty; name at least one column", arguments=["columns"])
    conditions = selected(
        patterns=_several(topic),
        keys=_several(key),
        unique_keys=_several(unique_key),
        queue_ids=_several(queue_id),
        begin_ms=optional_milliseconds(begin),
        end_ms=optional_milliseconds(end, is_end=True),
    )
    several = (stores,) if isinstance(stores, str | PathLike | NamedStore) else stores
    request = _Request(
        tuple(store if isinstance(store, NamedStore) else fspath(store) for store in several), name_from,
        tuple(schema.names), conditions, on_corrupt, decompressed, unwrap_batches, storage_options,
    )  # fmt: skip
    logs = request.logs()
    for line in unknown_topics(logs, conditions):
        # The warning must show the caller's line. It is 3 frames up, because `checked` adds a stack frame.
        warnings.warn(line, stacklevel=3)
    return Dataset(request)


def to_arrow(*arguments: Any, **named: Any) -> pa.RecordBatchReader:
    """Return a reader of the messages that the stores have now. The reader can be read only once.

    The arguments are the same as for `dataset`.
    """
    return dataset(*arguments, **named).to_reader()


def _several(values: _Value | Collection[_Value] | None) -> tuple[_Value, ...] | None:
    if values is None:
        return None
    return (values,) if isinstance(values, str | int) else tuple(values)


def _read(request: _Request, logs: Sequence[LogListing]) -> pa.RecordBatchReader:
    plan = plan_reading(logs, request.conditions, unwrap_batches=request.unwrap_batches)
    if plan.missing and request.on_corrupt == "fail":
        raise plan.missing[0].lost.as_error(
            "; on_corrupt 'skip' or 'row' continues after the damage"
        )
    schema = select(request.names)
    return pa.RecordBatchReader.from_batches(schema, _batches(plan, schema, request))


def _batches(plan: ReadPlan, schema: pa.Schema, request: _Request) -> Iterator[pa.RecordBatch]:
    buffers = ScanBuffers()
    conditions, on_corrupt = request.conditions, request.on_corrupt
    with closing(OpenedQueues()) as queues:
        for task in joined(plan.tasks):
            batches = RangeBatches(
                task.part, schema.names, conditions, on_corrupt=on_corrupt,
                decompressed=request.decompressed, unwrap_batches=request.unwrap_batches,
                open_file=task.open_file, buffers=buffers, opened=queues,
            )  # fmt: skip
            for batch in batches:
                yield batch.select(schema.names)
            for lost in batches.report.damage if on_corrupt != "row" else ():
                _log.warning("%s", lost)
    for missing in plan.missing:
        if on_corrupt == "row":
            yield missing.row(conditions).select(schema.names)
        else:
            _log.warning("%s; continuing after them", missing.lost)
