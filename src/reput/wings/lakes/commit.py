"""Define commits, which add files and marks to a table atomically, and the interface of tables that accept them.

A mark is the offset up to which a store's messages are in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from reput.base import first_line
from reput.engine.tables import ReadMark
from reput.errors import ReputError, StoreAccessError, StoreLockedError
from reput.format.untrusted_json import parse_json
from reput.wings.lakes.body_shape import BodyShape, Widenings
from reput.wings.lakes.data_file import DataFile, RowTally, total_of
from reput.wings.lakes.request import ExportRequest

_NO_SPACE = ("No space left", "disk is full")


@contextmanager
def understood(place: str | PathLike[str]) -> Iterator[None]:
    """Convert errors in the `with` block, which parses a document, to a StoreAccessError that names `place`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreAccessError(
            f"{fspath(place)}: damaged, or not written by an export: {error!r}"
        ) from None


@dataclass(frozen=True, slots=True)
class State:
    """The state of a table after a commit.

    run      the id of the last run
    marks    the mark of each store: the offset up to which its messages are in the table
    request  the request of the table's first run; empty if unknown
    shape    the types of JSON bodies; None if bodies stay bytes
    """

    run: str
    marks: Mapping[str, ReadMark]
    request: Mapping[str, Any] = field(default_factory=dict)
    shape: BodyShape | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "marks": {store: mark.as_json() for store, mark in self.marks.items()},
            "request": dict(self.request),
            "shape": None if self.shape is None else self.shape.as_json(),
        }

    def as_text(self) -> str:
        return json.dumps(self.as_json())

    @classmethod
    def from_text(cls, text: str, place: str | PathLike[str]) -> State:
        """Parse a state. Raises StoreAccessError, which names the place of the text, if the state is malformed."""
        with understood(place):
            return cls.from_json(parse_json(text))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> State:
        marks = {store: ReadMark.from_json(mark) for store, mark in value["marks"].items()}
        shape = None if value["shape"] is None else BodyShape.from_json(value["shape"])
        return cls(str(value["run"]), marks, dict(value["request"]), shape)


def with_column_shape(state: State, columns: pa.Schema, place: str) -> State:
    """Return the state, with the types of JSON bodies taken from the table's column for bodies.

    The types in the state may be out of date: after a restore of the table, or if a run added fields to the table and
    died before it committed rows. Raises StoreAccessError if the column has types that JSON bodies cannot have.
    """
    column = next(
        (field_of_table for field_of_table in columns if pa.types.is_struct(field_of_table.type)),
        None,
    )
    if column is None:
        return state
    # The type of a column does not show which fields of a body are required, so take these fields from the state that
    # the last commit saved.
    required = () if state.shape is None else state.shape.required
    with understood(f"{place}: the column {column.name}"):
        shape = BodyShape.of_type(column.type, required)
    return replace(state, shape=shape)


@dataclass(frozen=True, slots=True)
class Commit:
    """The files to add to a table, and the state of the table after the commit.

    replaces  names of files in the table's folder that the new files replace
    """

    state: State
    files: Sequence[DataFile]
    replaces: Sequence[str] = ()

    @property
    def rows(self) -> RowTally:
        return total_of(file.tally for file in self.files if not file.is_reject)

    @property
    def rejects(self) -> RowTally:
        return total_of(file.tally for file in self.files if file.is_reject)

    def numbered(self, is_reject: bool) -> list[tuple[str, DataFile]]:
        """Return the files of rejected rows (`is_reject`) or of messages, each with its name in the table.

        No other commit uses these names.
        """
        return [
            (f"{self.state.run}-{number:05d}.parquet", file)
            for number, file in enumerate(self.files)
            if file.is_reject == is_reject
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            **self.state.as_json(),
            "messages": self.rows.rows,
            "rejects": self.rejects.rows,
            "files": [file.as_json() for file in self.files],
            "replaces": list(self.replaces),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Commit:
        files = [DataFile.from_json(file) for file in value["files"]]
        # Manifests of older versions lack `replaces`.
        return cls(State.from_json(value), files, tuple(value.get("replaces", ())))


Staged = Any
"""The folder with the staged files of a run: a Path, or the URL of a folder in a bucket."""


class Destination(Protocol):
    """A table. Every method raises StoreAccessError if the system or a library refuses an operation.

    name      name of the table in error messages
    layout    parquet, iceberg or delta
    table     a name that differs from the names of other tables in the same folder
    known_by  names of files and folders; a table of this layout has at least one of them
    widens    pairs of types: a field of the first type may be widened to the second
    """

    name: str
    layout: str
    table: str
    known_by: tuple[str, ...]
    widens: Widenings

    def state(self, stores: Sequence[str]) -> State | None:
        """Return the state of the last commit, or None before the first. Raises UsageError for a foreign table."""

    def prepare(
        self, request: ExportRequest, schema: pa.Schema, reject_schema: pa.Schema
    ) -> tuple[pa.Schema, pa.Schema]:
        """Prepare the table for rows of these schemas, and return the schemas of its files.

        The commit adds the fields that the table lacks.
        """

    @staticmethod
    def why_no_partition(column: str, text: str) -> str:
        """Return why readers would misread this value in the name of its partition; "" if they would read it correctly.

        Tasks call this method as well, so it must be picklable by name.
        """

    def publish(self, commit: Commit, staged: Staged) -> None:
        """Move files to their places in the table. Readers do not see them yet."""

    def commit(self, commit: Commit) -> None:
        """Make files and state visible to readers in one step, or raise and leave both invisible."""

    def has(self, run: str) -> bool:
        """Return whether the table has the commit of this run."""

    def finish(self, commit: Commit, staged: Staged) -> None:
        """Do the work that remains after a commit. If it is interrupted, the next run calls this method again."""

    def discard(self, commit: Commit) -> None:
        """Delete the files that `publish` moved, if the commit then failed."""


class FolderDestination(Destination, Protocol):
    """A table in a folder.

    folder    folder of the table, on a file system that every task can access
    control   folder of the lock, staged files and the commit in progress, on the same file system
    """

    folder: Path
    control: Path


@contextmanager
def explained_by(library: str, name: str, conflict: type[Exception]) -> Iterator[None]:
    """Convert errors in the `with` block to StoreAccessError.

    A `conflict` error means that another run has made a commit. It becomes a StoreLockedError.
    """
    try:
        yield
    except ReputError:
        raise
    except conflict as error:
        raise StoreLockedError(
            f"{name}: another commit was made meanwhile; run the command again: {first_line(error)}"
        ) from error
    except Exception as error:
        # Table libraries also raise the errors of their own dependencies, so errors of any type are possible.
        line = first_line(error)
        hint = "; free some space and run it again" if any(t in line for t in _NO_SPACE) else ""
        raise StoreAccessError(f"{name}: {library}: {line}{hint}") from error
