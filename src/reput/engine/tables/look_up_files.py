"""Look up keys from a file, and write the answer to files, for `reput lookup`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from reput.base import Progress, Runner
from reput.core import NamedStore
from reput.engine.stores import Chosen, bytes_of, local_runner, require_spark, spark_session
from reput.engine.tables.lookup.arrow import Keys, Lookup, find
from reput.engine.tables.lookup.lines import LineStyle
from reput.engine.tables.lookup.local_files import (
    BucketOutput,
    Format,
    check_paths,
    read_keys,
    write_answer,
    write_coverage,
)
from reput.engine.tables.lookup.warm_up import warm_up
from reput.errors import UsageError
from reput.io import DISK, Bucket

Shown = Callable[[], AbstractContextManager[Progress]]
"""A function that returns a context manager, which shows the progress of the look-up."""


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
    layout: Format
    style: LineStyle

    @contextmanager
    def run(self, chosen: Chosen, shown: Shown, **options: Any) -> Iterator[Lookup]:
        """Run the look-up, write its output, and yield the look-up.

        The runner is closed after the `with` block.

        Raises:
            UsageError, MissingExtraError: the runner cannot access the keys or the output.
            StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, WorkerLostError, SparkJobError.
        """
        check_paths(self.keys, self.output)
        paths = [store.path for store in self.stores]
        is_local = self.output is not None and "://" not in self.output
        storage = options.get("storage_options")
        in_bucket = Bucket.accepts(self.output or "")
        bucket = BucketOutput(str(self.output), storage) if in_bucket else None
        with DISK.writing_to(self.output or "", paths) if is_local else nullcontext():
            # Report a wrong path at once, before starting a runner, which takes seconds.
            size_bytes = sum(bytes_of(store, storage) for store in self.stores)
            if self._is_spark(chosen, size_bytes):
                with spark_session(chosen, warm_up) as spark:
                    yield from self._on_spark(spark, shown, options, bucket)
            else:
                with local_runner(chosen, size_bytes, warm_up) as runner:
                    with shown() as progress:
                        keys = read_keys(self.keys, storage)
                        found = find(self.stores, keys, runner, progress=progress, **options)
                    with found:
                        self._write(runner, found, bucket)
                        yield found

    def _write(self, runner: Runner, found: Lookup, bucket: BucketOutput | None) -> None:
        """Write the answer, and a file that states how completely the stores were searched (the coverage).

        The coverage is written first, so that a complete answer always has its coverage.
        """
        if bucket is not None:
            if found.answer.is_flat:
                bucket.write_coverage(found)
            bucket.write_answer(runner, found, self.layout, self.style)
        elif self.output:
            if found.answer.is_flat:
                write_coverage(found, self.output)
            write_answer(runner, found, self.output, self.layout, self.style)

    def _on_spark(
        self, spark: Any, shown: Shown, options: dict[str, Any], bucket: BucketOutput | None
    ) -> Iterator[Lookup]:
        from reput.spark import bulk_lookup, lookup_files
        from reput.spark.runner import FrameRunner, SparkRunner

        with shown() as progress:
            keys = self._keys(spark, options.get("storage_options"))
            runner = SparkRunner(spark) if isinstance(keys, Keys) else FrameRunner(spark)
            found = bulk_lookup.find_on_spark(
                spark, self.stores, keys, runner, progress=progress, **options
            )
        with found:
            if self.output and "://" in self.output and bucket is None:
                if found.answer.is_flat:
                    lookup_files.write_coverage(spark, found, self.output)
                lookup_files.write_answer(spark, found, self.output, self.layout, self.style)
            else:
                self._write(runner, found, bucket)
            yield found

    def _keys(self, spark: Any, storage: Mapping[str, str] | None) -> Any:
        """Read the keys.

        A single file is read in this process, which is faster. Folders are read with Spark, which knows their layouts.
        """
        if Bucket.accepts(self.keys) or ("://" not in self.keys and Path(self.keys).is_file()):
            return read_keys(self.keys, storage)
        from reput.spark import lookup_files

        return lookup_files.read_keys(spark, self.keys)

    def _is_spark(self, chosen: Chosen, size_bytes: int) -> bool:
        places = [place for place in (self.keys, self.output or "") if "://" in place]
        if all(map(Bucket.accepts, places)):
            return chosen.is_spark(size_bytes)
        if chosen.runner in ("serial", "processes"):
            raise UsageError(
                f"--keys, --output: --runner {chosen.runner} reads and writes only S3, GCS and Azure "
                "URLs; omit --runner to use Spark"
            )
        require_spark(
            "--keys, --output: only Spark can read and write URLs other than S3, GCS and Azure"
        )
        return True
