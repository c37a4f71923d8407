"""Look up many keys with Spark: `reput.spark.lookup` runs the tasks of `reput.engine.lookup` on a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from os import PathLike
from posixpath import join
from typing import Any, Unpack

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from reput.base import StoreConfig, checked, usable_cpus
from reput.engine.lookup import (
    DEFAULT_COLUMNS,
    METADATA_KEY,
    PLAIN,
    CoverageForm,
    KeyPart,
    Keys,
    LineFormat,
    LineStyle,
    Lookup,
    LookupAnswer,
    LookupOptions,
    LookupStores,
    answer_lines,
    find,
    stage_parts,
    warm_up_look_up,
)
from reput.errors import ReputError, SparkJobError, UsageError
from reput.io import Access, ObjectStore, StagedFiles
from reput.spark.connect import shares_files, ship
from reput.spark.descriptions import STAGE_KEYS, described
from reput.spark.errors import reason_of
from reput.spark.runner import SparkRunner, runner_beside_frames, runner_of, starting_sql
from reput.spark.session import is_connect, is_local
from reput.spark.versions import arrow_columns
from reput.spark.workers import set_modules_aside

StorePath = str | PathLike[str]
# Beginning of Spark's error message if a line of a CSV file has a wrong number of values.
_MALFORMED = "Malformed CSV record: "
_SUMMARY = (
    "store string, is_complete boolean, error string, answered_by string, log_bytes bigint, indexed_bytes bigint, "
    "scanned_bytes bigint, "
    "unreadable_bytes bigint, problems array<string>, "
    "lost array<struct<keys:bigint,problem:string,scanned_bytes:bigint,unreadable_bytes:bigint>>, "
    "inner_batches struct<keys:bigint,messages:bigint,unreadable_bytes:bigint>"
)
_STAGED = "path string, rows bigint, keys bigint, error string"
_STAGED_SCHEMA = pa.schema(
    [("path", pa.string()), ("rows", pa.int64()), ("keys", pa.int64()), ("error", pa.string())]
)


def answer_frame(spark: SparkSession, result: Lookup) -> DataFrame:
    """Return the answer as a DataFrame, one partition per part of the key table. See also `coverage_of`."""
    parts = len(result.answer.parts)
    # Each partition has one row: the number of a part. Spark requires at least one partition, even without parts.
    numbers = spark.range(0, parts, 1, max(parts, 1))
    schema = from_arrow_schema(result.schema)
    schema.fields[-1].metadata = {
        METADATA_KEY: result.schema.metadata[METADATA_KEY.encode()].decode()
    }
    return numbers.mapInArrow(_Rows(result.answer), schema)


@checked
def coverage_of(found: DataFrame) -> DataFrame:
    """Return how much of each store's log was searched for an answer of `lookup`: one row per store.

    The numbers are in the metadata of the answer's columns, so the answer's rows are not read.

    Raises UsageError.
    """
    texts = [
        field.metadata[METADATA_KEY] for field in found.schema if METADATA_KEY in field.metadata
    ]
    if not texts:
        raise UsageError(
            "the DataFrame is not an answer of lookup, or its columns is_complete and coverage were dropped"
        )
    return found.sparkSession.createDataFrame(json.loads(texts[0]), _SUMMARY)


def answer_text(
    spark: SparkSession, result: Lookup, layout: LineFormat, style: LineStyle = PLAIN
) -> DataFrame:
    """Return the answer as lines of text, one partition per part of the key table.

    Each partition of CSV begins with a header line.
    """
    parts = max(len(result.answer.parts), 1)
    numbers = spark.range(0, parts, 1, parts)
    return numbers.mapInArrow(_Lines(result.answer, layout, style), "value string")


@checked
def lookup(
    spark: SparkSession,
    stores: StorePath | Sequence[StorePath],
    keys: DataFrame | Any,
    *,
    columns: str | Iterable[str] = DEFAULT_COLUMNS,
    index: StorePath | None = None,
    config: StoreConfig | None = None,
    staging: StorePath | None = None,
    staging_access: Access = "private",
    storage_options: Mapping[str, str] | None = None,
    coverage: CoverageForm = "summary",
) -> DataFrame:
    """Look up all messages with the given keys. The answer has one row per key and message.

    A key without messages has one row, in which the message's columns are null. The look-up runs immediately, and the
    DataFrame reads the staged result. In addition to the message's columns, it has `is_complete`: whether all data that
    had to be searched for the row was readable. `coverage_of` returns the coverage of each store.

    Args:
        spark: A session. On a cluster, stores and staging must be paths that every executor can read.
        stores: A store directory or its URL, or several. Stores are only read.
        keys: The path of a .csv or .parquet file, a table of Arrow, Polars or pandas, a mapping of columns, a list of
            (topic, key) or of mappings, or a DataFrame, which takes seconds longer. Columns are `topic`, `key` (a
            unique key, or one of a message's KEYS), and optionally `begin` and `end`: store times, both inclusive, as
            milliseconds or timestamps; null means no limit. Further columns are passed on.
        columns: Columns of messages to add, by their names in the table of messages, for example `body`.
        index: Another directory with the index/ of a single store, for example a rebuilt one.
        config: The broker's settings. By default, sizes of IndexFiles are derived from the files.
        storage_options: Options of the file systems of URLs, as for the table (docs/object-storage.md).
        staging: A folder or a URL of object storage for the keys and the matches. The default is the system's temporary
            folder, which requires that all executors run on this machine. A folder given here must not be writable by
            other users. Staged files are deleted at the end of this process.
        staging_access: "private" gives only this user access to staged files; "group" gives access to the folder's
            group, for executors that run under another user of that group.
        coverage: "rows" adds a column `coverage` with the coverage of each row (`reput.engine.lookup.coverage`).

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, SparkJobError.
    """
    with starting_sql(spark):
        result = find_on_spark(
            spark, stores, keys, columns=columns, index=index, config=config, staging=staging,
            staging_access=staging_access, storage_options=storage_options, coverage=coverage,
        )  # fmt: skip
    return answer_frame(spark, result)


def find_on_spark(
    spark: SparkSession,
    stores: LookupStores,
    keys: DataFrame | Any,
    *,
    has_frames: bool = True,
    **options: Unpack[LookupOptions],
) -> Lookup:
    """Look up keys as `lookup` does, but return a Lookup: a caller can read its answer without Spark, and delete it.

    Starting Spark's SQL takes seconds. If neither the keys nor the answer are DataFrames, pass `has_frames=False`, and
    SQL is not started.
    """
    if options.get("staging") is None and not _shares_temporary_files(spark):
        raise UsageError(
            "staging: on a cluster, pass a folder that the driver and all executors can read, or a URL of object "
            "storage",
            arguments=["staging"],
        )
    tasks = runner_beside_frames(spark) if has_frames else runner_of(spark)
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    if isinstance(keys, str | PathLike):
        Keys.check_path(str(keys))
        keys = Keys.read(str(keys))
    if not isinstance(keys, DataFrame):
        keys = _as_spark_has_them(keys if isinstance(keys, Keys) else Keys.of(keys), spark, zone)
    return find(stores, _SparkKeys(spark, keys, zone, tasks), tasks, **options)


class _SparkKeys:
    """Keys of a look-up on Spark. Executors stage the keys of a DataFrame, and this process stages all others."""

    def __init__(
        self, spark: SparkSession, keys: DataFrame | Keys, zone: str, tasks: SparkRunner
    ) -> None:
        self._spark, self._keys, self._tasks = spark, keys, tasks
        self.schema = keys.schema if isinstance(keys, Keys) else arrow_columns(keys.schema, zone)

    def stage(self, folder: str, threads: int) -> list[KeyPart]:
        ship(self._spark)
        warm_up_look_up()
        if isinstance(self._keys, DataFrame):
            return _stage(self._keys, folder)
        with self._tasks.starting_workers(partial(warm_up_look_up, with_kernels=False)):
            return self._keys.stage(folder, usable_cpus())


def _shares_temporary_files(spark: SparkSession) -> bool:
    """Return whether executors can read this process's temporary folder."""
    return shares_files(spark) if is_connect(spark) else is_local(str(spark.sparkContext.master))


def _described(spark: SparkSession) -> AbstractContextManager[None]:
    return nullcontext() if is_connect(spark) else described(spark.sparkContext, STAGE_KEYS)


def _as_spark_has_them(keys: Keys, spark: SparkSession, zone: str) -> Keys | DataFrame:
    """Return the keys with the column types that Spark would return.

    If Spark would also change values, such as times without a zone, Spark itself must convert the keys, which takes
    longer.
    """
    if any(not _is_plain(field.type) for field in keys.schema):
        return spark.createDataFrame(pa.Table.from_batches(keys.batches, keys.schema))
    schema = arrow_columns(from_arrow_schema(keys.schema), zone)
    return Keys(schema, (_cast(batch, schema) for batch in keys.batches))


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether Spark keeps values of this type unchanged. It moves times without a zone to its own zone."""
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and kind.tz is not None
    is_signed = pa.types.is_signed_integer(kind) or pa.types.is_floating(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_text or pa.types.is_boolean(kind) or (is_signed and not pa.types.is_float16(kind))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    pairs = zip(batch.columns, schema, strict=True)
    return pa.RecordBatch.from_arrays([column.cast(to.type) for column, to in pairs], schema=schema)


def _stage(keys: DataFrame, folder: str) -> list[KeyPart]:
    """Stage the keys on the executors. Raises UsageError, SparkJobError."""
    try:
        with _described(keys.sparkSession):
            write = partial(_stage_partition, folder, StagedFiles.stores_of(join(folder, "keys")))
            staged = keys.mapInArrow(write, _STAGED).collect()
    except (PySparkException, Py4JError, OSError) as error:
        reason = reason_of(error)
        if _MALFORMED in reason:
            line = reason.partition(_MALFORMED)[2].partition(" SQLSTATE")[0]
            raise Keys.malformed(line) from error
        raise SparkJobError(f"Spark job failed: {reason}") from error
    if errors := sorted(row.error for row in staged if row.error):
        raise UsageError(errors[0])
    return [KeyPart(row.path, row.rows, row.keys) for row in sorted(staged)]


def _stage_partition(
    folder: str, places: Sequence[ObjectStore], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    set_modules_aside()
    StagedFiles.register_stores(places)
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    attempt = context.taskAttemptId() if context else 0
    # Two attempts of one task may run at the same time, so each attempt has its own files.
    stem = join(folder, f"keys-{partition:06d}-{attempt}")
    try:
        rows: list[tuple[Any, ...]] = [(*part, None) for part in stage_parts(batches, stem)]
    # Return a permanent error as a row, because Spark would repeat a task that raises.
    except ReputError as error:
        rows = [(None, 0, 0, str(error))]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(column, field.type)
            for column, field in zip(columns, _STAGED_SCHEMA, strict=True)
        ],
        schema=_STAGED_SCHEMA,
    )


class _Rows:
    """Maps the number of a part of the key table to the answer's rows for this part."""

    def __init__(self, answer: LookupAnswer) -> None:
        self._answer = answer

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._answer.batches(number)


class _Lines:
    """Maps the number of a part of the key table to the answer's lines for this part."""

    def __init__(self, answer: LookupAnswer, layout: LineFormat, style: LineStyle) -> None:
        self._answer, self._layout, self._style = answer, layout, style

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # If there are no keys, the answer has one partition, which contains only the header.
        numbers = (
            number
            for batch in batches
            for number in batch.column(0).to_pylist()
            if number < len(self._answer.parts)
        )
        yield from map(_values, answer_lines(self._answer, numbers, self._layout, self._style))


def _values(lines: pa.StringArray | pa.LargeStringArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([lines.cast(pa.string())], names=["value"])
