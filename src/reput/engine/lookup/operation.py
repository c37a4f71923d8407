"""Look up many keys: `reput.look_up`, and `FileLookup`, which reads keys from a file and writes files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import pyarrow as pa

from reput.base import Progress, checked
from reput.engine.lookup.arrow import Lookup, LookupOptions, find, read_and_close
from reput.engine.lookup.keys import Keys
from reput.engine.lookup.lines import LineStyle
from reput.engine.lookup.local_files import AnswerFormat, BucketOutput, write_answer, write_coverage
from reput.engine.lookup.warm_up import warm_up_look_up
from reput.engine.stores import (
    Chosen,
    NamedStore,
    Stores,
    bytes_of,
    local_runner,
    require_spark,
    spark_session,
    stores_of,
)
from reput.errors import UsageError
from reput.io import DISK, Bucket

Shown = Callable[[], AbstractContextManager[Progress]]
"""A function that returns a context manager, which shows the progress of the look-up."""


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
    choice = Chosen.of(runner if processes is None else "serial" if processes == 1 else "processes")
    with _found(named, keys, choice, size_bytes, processes, options) as lookup:
        return read_and_close(lookup)


@contextmanager
def _found(
    stores: Sequence[NamedStore],
    keys: Any,
    choice: Chosen,
    size_bytes: int,
    processes: int | None,
    options: LookupOptions,
) -> Iterator[Lookup]:
    if choice.is_spark(size_bytes):
        from reput.spark import find_on_spark

        with spark_session(choice, warm_up_look_up) as spark:
            yield find_on_spark(spark, stores, Keys.of(keys), has_frames=False, **options)
    else:
        with local_runner(choice, size_bytes, warm_up_look_up, processes) as tasks:
            yield find(stores, Keys.of(keys), tasks, **options)


class FileLookup(NamedTuple):
    """A look-up of keys from a file, and the place of its answer.

    Attributes:
        stores: The stores.
        keys: A file or folder of keys, or its URL.
        output: The folder of the answer, or its URL; None if the caller reads the answer itself.
        layout: The format of the answer's files.
        style: The style of JSON and CSV lines.
    """

    stores: tuple[NamedStore, ...]
    keys: str
    output: str | None
    layout: AnswerFormat
    style: LineStyle

    @contextmanager
    def run(self, choice: Chosen, show: Shown, **options: Any) -> Iterator[Lookup]:
        """Run the look-up, write its output, and yield the look-up.

        The runner is closed after the `with` block.

        Raises:
            UsageError, MissingExtraError: the runner cannot access the keys or the output.
            StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, WorkerLostError, SparkJobError.
        """
        Keys.check_path(self.keys)
        if self.output is not None and Path(self.output).exists():
            raise UsageError(
                f"output {self.output}: exists already; choose a new directory",
                arguments=["output"],
            )
        paths = [store.path for store in self.stores]
        is_local = self.output is not None and "://" not in self.output
        storage = options.get("storage_options")
        in_bucket = Bucket.accepts(self.output or "")
        bucket = BucketOutput(str(self.output), storage) if in_bucket else None
        with DISK.writing_to(self.output or "", paths) if is_local else nullcontext():
            # Report a wrong path at once, before starting a runner, which takes seconds.
            size_bytes = sum(bytes_of(store, storage) for store in self.stores)
            if self._is_spark(choice, size_bytes):
                with spark_session(choice, warm_up_look_up) as spark:
                    yield from self._on_spark(spark, show, options, bucket)
            else:
                with local_runner(choice, size_bytes, warm_up_look_up) as runner:
                    with show() as progress:
                        keys = Keys.read(self.keys, storage)
                        lookup = find(self.stores, keys, runner, progress=progress, **options)
                    with lookup:
                        self._write(lookup, bucket)
                        yield lookup

    def _write(self, lookup: Lookup, bucket: BucketOutput | None) -> None:
        """Write the answer, and a file that states how completely the stores were searched (the coverage).

        The coverage is written first, so that a complete answer always has its coverage.
        """
        if bucket is not None:
            if lookup.answer.is_flat:
                bucket.write_coverage(lookup)
            bucket.write_answer(lookup, self.layout, self.style)
        elif self.output:
            if lookup.answer.is_flat:
                write_coverage(lookup, self.output)
            write_answer(lookup, self.output, self.layout, self.style)

    def _on_spark(
        self, spark: Any, show: Shown, options: dict[str, Any], bucket: BucketOutput | None
    ) -> Iterator[Lookup]:
        from reput.spark import find_on_spark
        from reput.spark import write_answer as write_on_spark

        with show() as progress:
            keys = self._keys(spark, options.get("storage_options"))
            lookup = find_on_spark(
                spark,
                self.stores,
                keys,
                has_frames=not isinstance(keys, Keys),
                progress=progress,
                **options,
            )
        with lookup:
            if self.output and "://" in self.output and bucket is None:
                write_on_spark(spark, lookup, self.output, self.layout, self.style)
            else:
                self._write(lookup, bucket)
            yield lookup

    def _keys(self, spark: Any, storage: Mapping[str, str] | None) -> Any:
        """Read the keys.

        A single file is read in this process, which is faster. Folders are read with Spark, which knows their layouts.
        """
        if Bucket.accepts(self.keys) or ("://" not in self.keys and Path(self.keys).is_file()):
            return Keys.read(self.keys, storage)
        from reput.spark import read_keys

        return read_keys(spark, self.keys)

    def _is_spark(self, choice: Chosen, size_bytes: int) -> bool:
        places = [place for place in (self.keys, self.output or "") if "://" in place]
        if all(map(Bucket.accepts, places)):
            return choice.is_spark(size_bytes)
        if choice.runner in ("serial", "processes"):
            raise UsageError(
                f"--keys, --output: --runner {choice.runner} reads and writes only S3, GCS and Azure "
                "URLs; omit --runner to use Spark"
            )
        require_spark(
            "--keys, --output: only Spark can read and write URLs other than S3, GCS and Azure"
        )
        return True
