"""Write the answer of a look-up to files, in folders or buckets, without Spark.

For other URLs, `reput.spark.lookup_files` lets Spark write them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from posixpath import join
from typing import Literal
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from reput.base import no_progress
from reput.engine.lookup.answer import LookupAnswer
from reput.engine.lookup.arrow import Lookup
from reput.engine.lookup.lines import PLAIN, LineStyle, answer_lines
from reput.engine.messages import bytes_of
from reput.errors import ObjectConflictError, UsageError, explained
from reput.io import DISK, AnchoredRunner, Bucket, PlacedRunner, Scratch, StagedFiles, at_once

AnswerFormat = Literal["parquet", "jsonl", "csv"]
SUFFIXES: dict[AnswerFormat, str] = {"parquet": ".parquet", "jsonl": ".json", "csv": ".csv"}


def write_answer(
    lookup: Lookup, output: str, layout: AnswerFormat, style: LineStyle = PLAIN
) -> None:
    """Write the answer as a new directory of files, one per part of the key table, atomically.

    Args:
        lookup: The look-up, whose runner runs a task per file.
        output: A directory that does not exist yet.
        layout: The format of the files; `reput.engine.lookup.lines` writes lines of JSON and CSV.
        style: How values in lines are written.

    Raises:
        StoreAccessError.
    """
    with DISK.new_folder(Path(output).absolute()) as folder:
        write = partial(_write_part, _Writing.of(lookup, str(folder), layout, style))
        numbers = range(max(len(lookup.answer.parts), 1))
        AnchoredRunner(lookup.runner).run(write, numbers, [1] * len(numbers), no_progress)


def coverage_path(output: str) -> Path:
    """Return the path of an answer's coverage summary, which lies beside the answer's folder."""
    path = Path(output).absolute()
    return path.with_name(f"{path.name}.coverage.json")


def write_coverage(lookup: Lookup, output: str) -> None:
    """Write a file beside the answer that states how completely the stores were searched (the coverage).

    Raises StoreAccessError.
    """
    path = coverage_path(output)
    with DISK.writing_to(path), DISK.replacing(path) as attempt:
        DISK.write_durable(attempt, lookup.coverage_text())


class BucketOutput:
    """A new folder of result files in a bucket.

    An object beside the folder states how completely the stores were searched (the coverage).

    A bucket cannot publish a folder atomically, so `_SUCCESS` is written last, as Hadoop does.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        """Prepare the output. Raises MissingExtraError, StoreAccessError, and UsageError if the output exists."""
        self._url = url.rstrip("/")
        parent, _, self._name = self._url.rpartition("/")
        if not urlsplit(self._url).path.strip("/"):
            raise UsageError(
                f"output {url}: specify a folder in the bucket, such as {self._url}/found",
                arguments=["output"],
            )
        self._store = Bucket(parent, options or {})
        if next(self._store.list(f"{self._name}/"), None) is not None:
            raise UsageError(
                f"output {url}: exists already; choose a new directory", arguments=["output"]
            )

    def write_coverage(self, lookup: Lookup) -> None:
        """Write an object beside the answer that states how completely the stores were searched (the coverage).

        Raises StoreAccessError, and UsageError if the object exists.
        """
        try:
            self._store.put_new(f"{self._name}.coverage.json", lookup.coverage_text())
        except ObjectConflictError:
            raise UsageError(
                f"output {self._url}: its coverage.json exists already; choose a new directory",
                arguments=["output"],
            ) from None

    def write_answer(self, lookup: Lookup, layout: AnswerFormat, style: LineStyle = PLAIN) -> None:
        """Write the answer, one object per part of the key table. See `write_answer` of this module."""
        staging = f"{self._name}.reput-{uuid.uuid4().hex}"
        try:
            StagedFiles.register_stores([self._store])
            writing = _Writing.of(lookup, join(self._store.place, staging), layout, style)
            numbers = range(max(len(lookup.answer.parts), 1))
            written = PlacedRunner(AnchoredRunner(lookup.runner), [self._store]).run(
                partial(_upload_part, writing), numbers, [1] * len(numbers), no_progress
            )
            # name[:-33] drops the hyphen and the 32 digits that make the attempt's name unique.
            # Only the results of successful attempts are copied to their final names.
            at_once(self._bring, [(f"{staging}/{name}", name[:-33]) for name in written])
            self._store.put_new(f"{self._name}/_SUCCESS", b"")
        finally:
            at_once(self._store.delete, [entry.name for entry in self._store.list(f"{staging}/")])

    def _bring(self, names: tuple[str, str]) -> None:
        source, name = names
        self._store.copy(source, f"{self._name}/{name}")


def _upload_part(to: _Writing, number: int) -> str:
    """Write a part under a name that is unique to this attempt, so that attempts do not replace each other's objects.

    Return this name.
    """
    with Scratch.folder() as folder:
        local = replace(to, folder=str(folder))
        path = _write_part(local, number)
        name = f"{path.name}-{uuid.uuid4().hex}"
        StagedFiles.put_verified(path, join(to.folder, name))
    return name


@dataclass(frozen=True, slots=True)
class _Writing:
    """The common arguments of the tasks that write an answer's files."""

    answer: LookupAnswer
    schema: pa.Schema
    folder: str
    layout: AnswerFormat
    style: LineStyle

    @classmethod
    def of(cls, lookup: Lookup, folder: str, layout: AnswerFormat, style: LineStyle) -> _Writing:
        return cls(lookup.answer, lookup.schema, folder, layout, style)


def _write_part(to: _Writing, number: int) -> Path:
    answer = to.answer
    path = Path(to.folder) / f"part-{number:05d}{SUFFIXES[to.layout]}"
    # Without any keys, one file without rows is written.
    has_rows = number < len(answer.parts)
    if to.layout != "parquet":
        DISK.write_chunks(path, _text(to, number) if has_rows else iter(()))
        return path
    with (
        explained(path, "be written"), DISK.create_part(path) as file,
        pq.ParquetWriter(file, to.schema) as writer,
    ):  # fmt: skip
        for batch in answer.batches(number) if has_rows else ():
            writer.write_batch(batch)
    return path


def _text(to: _Writing, number: int) -> Iterator[bytes | memoryview]:
    assert to.layout != "parquet"
    return map(bytes_of, answer_lines(to.answer, [number], to.layout, to.style, "\n"))
