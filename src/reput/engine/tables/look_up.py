"""Define `reput.look_up`, which finds the messages of many keys at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

import pyarrow as pa

from reput.base import checked
from reput.core import NamedStore
from reput.engine.stores import Chosen, Stores, bytes_of, local_runner, spark_session, stores_of
from reput.engine.tables.lookup.arrow import Lookup, LookupOptions, find, keys_of, read_and_close
from reput.engine.tables.lookup.warm_up import warm_up


@checked
def look_up(
    stores: Stores,
    keys: Any,
    *,
    runner: Any = "auto",
    processes: int | None = None,
    **options: Unpack[LookupOptions],
) -> pa.RecordBatchReader:
    """Find all messages with the given keys: one row per message, or one row of nulls per key without a message.

    The look-up runs during the call, and stages its answer. The returned reader reads this answer, in the order of the
    keys.

    Args:
        stores: A store directory or its URL, a NamedStore, or several of these. Stores are only read. If one of several
            stores cannot be opened, the answer is incomplete.
        keys: An Arrow, Polars or pandas table, a reader of record batches, a mapping of columns, or a list of
            (topic, key) pairs or of mappings. It has the columns `topic` and `key` (a unique key, or one of a message's
            KEYS), and optionally `begin` and `end`: store times, both inclusive, as milliseconds or timestamps, null
            for no limit. Further columns are copied to the answer.
        runner: "auto", "serial", "processes", "spark", or a SparkSession.
        processes: Number of processes to use, instead of a runner. 1 means this process only.
        options: `columns` of a message to add, `index` (another directory with index/), `config`, `staging` (a
            folder or URL), `storage_options` of URLs, `coverage` ("rows" adds the coverage to each row), `progress`.

    Returns:
        A reader with the columns of the keys, the columns of the messages, and `is_complete`: whether the look-up could
        read everything that it had to search for the row's key. `reput.reports.coverage_of` returns the coverage of
        each store.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, WorkerLostError.
    """
    named = stores_of(stores, options.get("storage_options"))
    size_bytes = sum(bytes_of(store, options.get("storage_options")) for store in named)
    chosen = Chosen.of(runner if processes is None else "serial" if processes == 1 else "processes")
    with _found(named, keys, chosen, size_bytes, processes, options) as found:
        return read_and_close(found)


@contextmanager
def _found(
    stores: Sequence[NamedStore],
    keys: Any,
    chosen: Chosen,
    size_bytes: int,
    processes: int | None,
    options: LookupOptions,
) -> Iterator[Lookup]:
    if chosen.is_spark(size_bytes):
        from reput.spark.bulk_lookup import find_on_spark
        from reput.spark.runner import runner_of

        with spark_session(chosen, warm_up) as spark:
            yield find_on_spark(spark, stores, keys_of(keys), runner_of(spark), **options)
    else:
        with local_runner(chosen, size_bytes, warm_up, processes) as tasks:
            yield find(stores, keys_of(keys), tasks, **options)
