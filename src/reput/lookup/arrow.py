"""`reput.look_up`: keys that Arrow holds, looked up without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import pyarrow as pa

from reput.config import StoreConfig
from reput.errors import UsageError
from reput.lookup.bulk import DEFAULT_COLUMNS, Lookup, LookupOptions, StorePath, run_lookup
from reput.lookup.coverage import CoverageForm
from reput.lookup.key_parts import KeyPart, stage_parts
from reput.lookup.warm_up import warm_up
from reput.tasks import Runner, SerialRunner
from reput.tasks.processes import ProcessRunner


class Keys(NamedTuple):
    """Batches of keys, which are read once. Unlike a reader of Arrow's they raise errors as they are."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def look_up(
    stores: StorePath | Sequence[StorePath],
    keys: Any,
    *,
    columns: Iterable[str] = DEFAULT_COLUMNS,
    index: StorePath | None = None,
    config: StoreConfig | None = None,
    processes: int = 1,
    staging: StorePath | None = None,
    storage_options: Mapping[str, str] | None = None,
    coverage: CoverageForm = "summary",
) -> pa.RecordBatchReader:
    """Find all messages that have the keys, exactly: each row of `keys` with each of its messages, or with none.

    The look-up runs in the call; the reader gives what it staged, in the order of the keys. `reput.spark.lookup` does
    the same on a cluster.

    Args:
        stores: A store directory or its URL, or several, each taken once; nothing is written there.
        keys: A table of Arrow's, Polars' or pandas', a reader of record batches, a mapping of columns, or a list of
            (topic, key) or of mappings. It has `topic` and `key` (a unique key, or one of a message's KEYS), and
            perhaps `begin` and `end`: store times, both inclusive, as milliseconds or timestamps, null for none.
            Further columns are passed on.
        columns: Which columns of a message to add, by their names in the table of messages (`body`, say).
        index: Another directory that holds index/ of the one store, a rebuilt one for instance.
        config: The broker's settings; None takes the sizes of IndexFiles from the files.
        processes: That run the tasks; 1 is this process alone. A program that asks for more has its own work behind
            `if __name__ == "__main__":`.
        staging: A folder for the keys and what is found; the system's temporary one when None.
        storage_options: Of the file systems of URLs (docs/object-storage.md).
        coverage: "rows" adds a column `coverage`: how much of the stores each row's answer covers.

    Returns:
        A reader of the keys' columns, the message's, and `is_complete`: whether all could be read that was searched
        for the row. `reput.coverage_of` says once for each store how much that was. What is staged is deleted when it
        is read to its end, or at the end of this process.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, WorkerLostError.
    """
    with ExitStack() as stack:
        runner: Runner = SerialRunner()
        if processes != 1:
            runner = stack.enter_context(ProcessRunner(processes, warm_up))
        found = find(
            stores, keys_of(keys), runner, columns=columns, index=index, config=config,
            staging=staging, storage_options=storage_options, coverage=coverage,
        )  # fmt: skip
    return pa.RecordBatchReader.from_batches(found.schema, _until_read(found))


def find(
    stores: StorePath | Sequence[StorePath],
    keys: Keys,
    runner: Runner,
    **options: Unpack[LookupOptions],
) -> Lookup:
    """Look up keys by tasks of `runner`, which sees this machine's files. Raises as `run_lookup` does."""
    stage = partial(stage_keys, keys.batches, threads=runner.parallelism)
    return run_lookup(stores, keys.schema, stage, lambda: runner, **options)


def keys_of(keys: Any) -> Keys:
    """What Arrow reads, with strings in the forms that a look-up takes. Raises UsageError."""
    if isinstance(keys, list | tuple | Mapping):
        keys = _table_of(keys)
    try:
        reader = pa.RecordBatchReader.from_stream(keys)
    except TypeError as error:
        raise UsageError(
            f"keys must be a table or a reader of Arrow's, or a list of (topic, key), "
            f"not {type(keys).__name__}",
            arguments=["keys"],
        ) from error
    schema = pa.schema([field.with_type(_plain(field.type)) for field in reader.schema])
    return Keys(schema, reader if schema == reader.schema else reader.cast(schema))


def _table_of(keys: Sequence[Any] | Mapping[str, Any]) -> pa.Table:
    """Of rows or columns of Python's. Raises UsageError."""
    try:
        if isinstance(keys, Mapping):
            return pa.table(dict(keys))
        if all(isinstance(row, Mapping) for row in keys) and keys:
            return pa.Table.from_pylist(list(keys))
        pairs = [(str(topic), str(key)) for topic, key in keys]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(
            f"keys: not rows of (topic, key), nor columns: {error}", arguments=["keys"]
        ) from error
    topics, texts = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"topic": pa.array(topics, pa.string()), "key": pa.array(texts, pa.string())})


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def stage_keys(keys: Iterable[pa.RecordBatch], folder: Path, threads: int = 1) -> list[KeyPart]:
    """Stage keys by this process. Raises what `stage_parts` does, and what reading the keys does."""
    return list(stage_parts(keys, folder / "keys", threads))


def _until_read(found: Lookup) -> Iterator[pa.RecordBatch]:
    with found:
        for batch in found.batches():
            yield batch.replace_schema_metadata(found.schema.metadata)
