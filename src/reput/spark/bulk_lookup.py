"""`reput.spark.lookup`: the bulk look-up of `reput.query.bulk` with its tasks run by a cluster."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from reput.config import StoreConfig
from reput.errors import ReputError, SparkJobError, UsageError
from reput.query.bulk.answer import COVERAGE_COLUMN, Answer, answer_schema
from reput.query.bulk.driver import Progress, look_up
from reput.query.bulk.key_parts import KeyPart, check_columns, stage_parts
from reput.query.bulk.warm_up import warm_up
from reput.spark.runner import FrameRunner, reason_of
from reput.spark.session import is_local
from reput.spark.ship import ship_code
from reput.store.store_reader import StoreReader
from reput.table.schema import select

StorePath = str | PathLike[str]
DEFAULT_COLUMNS = (
    "store", "physical_offset", "store_timestamp", "queue_id", "queue_offset", "size",
    "message_id", "unique_key", "tags",
)  # fmt: skip
_MALFORMED = "Malformed CSV record: "  # what Spark says of keys out of a CSV file
_STAGED = "path string, rows bigint, keys bigint, error string"
_STAGED_SCHEMA = pa.schema(
    [("path", pa.string()), ("rows", pa.int64()), ("keys", pa.int64()), ("error", pa.string())]
)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A look-up that is done.

    stores  that were searched, each once, as they were given
    answer  what was found, to be read part by part
    schema  of the answer's rows
    """

    spark: SparkSession
    stores: tuple[str, ...]
    answer: Answer
    schema: pa.Schema

    def frame(self) -> DataFrame:
        """The answer as a DataFrame, one partition a part of the keys."""
        parts = len(self.answer.parts)
        numbers = self.spark.range(0, parts, 1, max(parts, 1))
        return numbers.mapInArrow(_Rows(self.answer), from_arrow_schema(self.schema))


def lookup(
    spark: SparkSession,
    stores: StorePath | Sequence[StorePath],
    keys: DataFrame,
    *,
    columns: Iterable[str] = DEFAULT_COLUMNS,
    index: StorePath | None = None,
    config: StoreConfig | None = None,
    staging: StorePath | None = None,
) -> DataFrame:
    """All messages that have the keys, exactly: each row of `keys` with each of its messages, or with none.

    Args:
        spark: a session; on a cluster stores and staging must be paths that every executor sees.
        stores: a store directory, or several, each taken once; nothing is written there.
        keys: rows with `topic` and `key` (a unique key, or one of a message's KEYS), and perhaps `begin` and `end`:
            store times, both inclusive, as milliseconds or timestamps, null for none. Further columns are passed on.
        columns: which columns of a message to add, by their names in the table of messages (`body`, say).
        index: another directory that holds index/ of the one store, a rebuilt one for instance.
        config: the broker's settings; None takes the sizes of IndexFiles from the files.
        staging: a folder for the keys and what is found; the system's temporary one when None, which will not do on a
            cluster of several machines. What is in it is deleted at the end of this process.

    The look-up runs now; the DataFrame reads its staged result. Beside the message's columns it has `coverage`, what
    the row's answer speaks for: see `reput.query.bulk.coverage`.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, SparkJobError.
    """
    return run_lookup(
        spark, stores, keys, columns=columns, index=index, config=config, staging=staging
    ).frame()


def run_lookup(
    spark: SparkSession,
    stores: StorePath | Sequence[StorePath],
    keys: DataFrame,
    *,
    columns: Iterable[str] = DEFAULT_COLUMNS,
    index: StorePath | None = None,
    config: StoreConfig | None = None,
    hash_slots: int | None = None,
    index_items: int | None = None,
    staging: StorePath | None = None,
    progress: Progress = lambda phase, done, total: None,
) -> Lookup:
    """The same, for who wants to read the answer without Spark or to see its progress."""
    given = [stores] if isinstance(stores, str | PathLike) else list(stores)
    # By their real places: a store that is given twice has its messages once.
    paths = list({os.path.realpath(path): fspath(path) for path in reversed(given)}.values())[::-1]
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    rows = to_arrow_schema(keys.schema, timezone=zone)
    kinds = {field.name: field.type for field in rows}
    check_columns(kinds, [*select(wanted).names, COVERAGE_COLUMN])
    if not paths:
        raise UsageError("stores: give at least one store")
    if index is not None and len(paths) > 1:
        raise UsageError("index (--index) is for one store; these are several")
    with ExitStack() as stack:
        opened = [
            stack.enter_context(
                StoreReader(
                    Path(path).absolute(), config=config, hash_slots=hash_slots,
                    index_items=index_items, index=index and Path(index).absolute(),
                )
            )
            for path in paths
        ]  # fmt: skip
        folder = _staging_folder(spark, staging)
        ship_code(spark.sparkContext)
        warm_up()
        parts = _stage(keys, folder)
        answer = look_up(FrameRunner(spark), opened, parts, folder, wanted, progress)
    return Lookup(spark, tuple(paths), answer, answer_schema(rows, wanted))


def _staging_folder(spark: SparkSession, staging: StorePath | None) -> Path:
    if staging is None and not is_local(str(spark.sparkContext.master)):
        raise UsageError(
            "staging (--staging): on a cluster name a folder that the driver and all executors see"
        )
    if staging is not None:
        Path(staging).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="reput-lookup-", dir=staging)).absolute()
    folder.chmod(0o700 if staging is None else 0o777)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _stage(keys: DataFrame, folder: Path) -> list[KeyPart]:
    """Have the executors stage the keys. Raises UsageError, SparkJobError."""
    try:
        staged = keys.mapInArrow(partial(_stage_partition, str(folder)), _STAGED).collect()
    except (PySparkException, Py4JError, OSError) as error:
        reason = reason_of(error)
        if _MALFORMED in reason:
            line = reason.partition(_MALFORMED)[2].partition(" SQLSTATE")[0]
            raise UsageError(
                f"keys: a line with more or fewer values than names: {line}"
            ) from error
        raise SparkJobError(f"Spark job failed: {reason}") from error
    if errors := sorted(row.error for row in staged if row.error):
        raise UsageError(errors[0])
    return [KeyPart(row.path, row.rows, row.keys) for row in sorted(staged)]


def _stage_partition(folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    attempt = context.taskAttemptId() if context else 0
    stem = Path(folder) / f"keys-{partition:06d}-{attempt}"
    try:
        rows: list[tuple[Any, ...]] = [(*part, None) for part in stage_parts(batches, stem)]
    except ReputError as error:  # trying again would not help
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
    """Maps numbers of parts to the answer's rows."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._answer.batches(number)
