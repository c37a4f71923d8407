"""Look up keys and return the answer as Arrow, for any way to stage keys and any runner of tasks."""

from __future__ import annotations

import atexit
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from posixpath import join
from typing import Protocol, TypedDict

import pyarrow as pa

from reput.base import (
    Closing,
    Progress,
    Runner,
    StoreConfig,
    agreeing,
    checked,
    counted,
    no_progress,
    retried,
    silent,
    waiting,
)
from reput.core import StoreReader
from reput.engine.lookup.answer import LookupAnswer, answer_schema
from reput.engine.lookup.coverage import (
    COVERAGE_COLUMN,
    IS_COMPLETE,
    METADATA_KEY,
    CoverageForm,
    FailedStore,
    coverage_of,
)
from reput.engine.lookup.driver import look_up
from reput.engine.lookup.key_parts import KeyPart, check_columns
from reput.engine.messages import coverage_in_words, select
from reput.engine.stores import NamedStore, answered_by, find_replicas, find_stores
from reput.errors import ReputError, StoreError, UsageError
from reput.io import (
    Access,
    Location,
    PlacedRunner,
    Scratch,
    StagedFiles,
    at_once,
    open_object_store,
)

StorePath = str | PathLike[str]
LookupStores = StorePath | Sequence[StorePath | NamedStore]
_FOLDER = "reput-lookup-"
_staged_places: set[str] = set()
"""URLs of staging folders that this process has not deleted yet."""
DEFAULT_COLUMNS: tuple[str, ...] = (
    "store", "physical_offset", "store_timestamp", "queue_id", "queue_offset", "size",
    "message_id", "unique_key", "tags",
)  # fmt: skip


class LookupOptions(TypedDict, total=False):
    """Options of a look-up on any runner; see `reput.look_up` and `reput.spark.lookup`."""

    columns: str | Iterable[str]
    index: StorePath | None
    config: StoreConfig | None
    hash_slots: int | None
    index_items: int | None
    staging: StorePath | None
    staging_access: Access
    storage_options: Mapping[str, str] | None
    coverage: CoverageForm
    progress: Progress


class KeySource(Protocol):
    """The keys of a look-up: `reput.engine.lookup.keys.Keys`, or keys that Spark stages."""

    @property
    def schema(self) -> pa.Schema: ...

    def stage(self, folder: str, threads: int) -> list[KeyPart]:
        """Write the keys into a folder or URL, in parts, with this number of threads if in this process."""


@dataclass(frozen=True, slots=True)
class Lookup(Closing):
    """A finished look-up. The end of its context deletes the staged answer.

    stores  names of the searched stores, each once
    answer  the answer, read part by part
    schema  schema of the answer's rows; its metadata has the coverage, see `coverage_of`
    folder  folder with the staged answer
    runner  runs tasks that read the staged answer
    """

    stores: tuple[str, ...]
    answer: LookupAnswer
    schema: pa.Schema
    folder: str
    runner: Runner

    def close(self) -> None:
        """Delete the staged answer, which cannot be read afterwards."""
        _discard(self.folder)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the answer, in the order of the keys."""
        for number in range(len(self.answer.parts)):
            yield from self.answer.batches(number)

    def coverage_text(self) -> bytes:
        """Return the coverage of the answer: a list with a JSON object per store."""
        return f"{json.dumps(coverage_of(self.schema), indent=1)}\n".encode()

    def in_words(self) -> Iterator[str]:
        """Yield sentences about the result and the coverage of the answer, one per line."""
        counts, coverage = self.answer.counts(), self.answer.coverage
        without = counts.rows - counts.found
        yield (
            f"{counted(counts.rows, 'key')}: {counts.found:,} {agreeing(counts.found, 'has')} messages, "
            f"{counts.messages:,} in all; {without:,} {agreeing(without, 'has')} none."
        )
        for store, coverage_of_store in zip(self.stores, coverage.stores, strict=True):
            lines = [*coverage_in_words(coverage_of_store), *map(str, coverage_of_store.unreadable)]
            yield from (line if len(self.stores) == 1 else f"{store}: {line}" for line in lines)
        yield from map(str, coverage.failed)
        for lost in coverage.lost:
            keys = counted(len(lost.numbers), "key")
            yield f"An index range was not used for {keys}: {lost.problem}"


@checked
def find(
    stores: StorePath | Sequence[StorePath | NamedStore],
    keys: KeySource,
    runner: Runner,
    *,
    columns: str | Iterable[str] = DEFAULT_COLUMNS,
    index: StorePath | None = None,
    config: StoreConfig | None = None,
    hash_slots: int | None = None,
    index_items: int | None = None,
    staging: StorePath | None = None,
    staging_access: Access = "private",
    storage_options: Mapping[str, str] | None = None,
    coverage: CoverageForm = "summary",
    progress: Progress = silent,
) -> Lookup:
    """Check the arguments, open the stores, stage the keys and look them up.

    Args:
        stores: Store directories, their URLs, patterns of either, or NamedStores, whose own options take precedence.
            If a store is given twice, or with its replica, the answer has its messages once. If one of several stores
            cannot be opened, the answer is incomplete.
        keys: The keys.
        runner: Runs the tasks. They must be able to read the stores and the staged files.
        columns: Columns of messages in the answer.
        index, config, hash_slots, index_items, storage_options: As for `StoreReader`.
        staging: A folder or URL of object storage in which a folder for staged files is created; by default the
            system's temporary folder.
        staging_access: The users who may access staged files.
        coverage: "summary" for `is_complete` in each row, "rows" for the whole coverage in each row.
        progress: Called with the phase, units done and units in all.

    Returns:
        A Lookup. Its folder is deleted at the end of its context, or else at the end of this process.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, the errors of `keys.stage`.
    """
    names_of_columns = (columns,) if isinstance(columns, str) else tuple(columns)
    if coverage not in ("summary", "rows"):
        raise UsageError(
            f"coverage must be summary or rows, not {coverage}", arguments=["coverage"]
        )
    is_flat = coverage == "summary"
    check_columns(
        keys.schema, [*select(names_of_columns).names, IS_COMPLETE if is_flat else COVERAGE_COLUMN]
    )
    listing = [stores] if isinstance(stores, str | PathLike) else list(stores)
    if not listing:
        raise UsageError("stores: pass at least one store")
    named = _named(listing, storage_options)
    if index is not None and len(named) > 1:
        raise UsageError(
            "index: is valid for one store only; pass a single store", arguments=["index"]
        )
    with ExitStack() as stack:

        def open_reader(store: NamedStore) -> StoreReader:
            path, options = store.arguments(joined=True)
            return StoreReader(
                Location.absolute(path), config=options.get("config", config), hash_slots=hash_slots,
                index_items=index_items, index=index and Location.absolute(index),
                storage_options=options.get("storage_options", storage_options),
            )  # fmt: skip

        def open_store(store: NamedStore) -> StoreReader | ReputError:
            try:
                # Each remote request is already retried, so the whole call is not retried.
                reader = (
                    open_reader(store)
                    if Location.is_url(store.path)
                    else retried(open_reader, store)
                )
            except ReputError as error:
                if len(named) == 1:
                    raise
                return error
            # The store is closed even if another store cannot be opened.
            stack.push(reader)
            return reader

        opener = waiting(any(Location.is_url(store.path) for store in named), len(named))
        outcomes = opener.run(open_store, named, [1] * len(named), no_progress)
        searched, readers, failed = _opened(named, outcomes)
        names = tuple(store.name for store in searched)
        folder = _staging_folder(staging, staging_access, storage_options)
        try:
            parts = keys.stage(folder, runner.parallelism)
            places = StagedFiles.stores_of(join(folder, "answer"))
            tasks = PlacedRunner(runner, places) if places else runner
            labels = [
                _shown(one, reader.path) for one, reader in zip(searched, readers, strict=True)
            ]
            answer = look_up(tasks, readers, parts, folder, names_of_columns, progress, labels)
        # Staged keys and messages must not remain after an error or an interrupt.
        except BaseException:
            _discard(folder)
            raise
    answer = replace(
        answer, is_flat=is_flat, logs=_logs_of(searched),
        coverage=replace(answer.coverage, failed=failed),
    )  # fmt: skip
    summary = json.dumps(answer.coverage.as_json(labels))
    schema = answer_schema(keys.schema, names_of_columns, is_flat).with_metadata(
        {METADATA_KEY: summary}
    )
    return Lookup(names, answer, schema, folder, runner)


def _named(
    stores: Sequence[StorePath | NamedStore], options: Mapping[str, str] | None
) -> list[NamedStore]:
    """Return the given stores. A pattern is replaced by the stores that it matches."""
    result: list[NamedStore] = []
    for store in stores:
        if isinstance(store, NamedStore):
            result.append(store)
        else:
            result += [NamedStore(path, path) for path in find_stores([store], options)]
    return result


def _opened(
    named: Sequence[NamedStore], outcomes: Sequence[StoreReader | ReputError]
) -> tuple[list[NamedStore], list[StoreReader], tuple[FailedStore, ...]]:
    """Return the opened stores, each once, and the stores that could not be opened.

    Raise the first error if no store could be opened.
    """
    places: dict[str, tuple[NamedStore, StoreReader]] = {}
    errors: dict[str, ReputError] = {}
    for store, one in zip(named, outcomes, strict=True):
        if isinstance(one, ReputError):
            errors[store.name] = one
        # A store that was given twice, for example by two patterns, is searched once.
        else:
            places.setdefault(Location.canonical(one.path), (store, one))
    if not places:
        raise next(iter(errors.values()))
    replaced = answered_by(named, [isinstance(one, StoreReader) for one in outcomes])
    labels = {one.name: _shown(one, Location.absolute(one.path)) for one in named}
    failed = [
        FailedStore(labels[name], str(one), labels.get(replaced.get(name, "")))
        for name, one in errors.items()
    ]
    return [one for one, _ in places.values()], [one for _, one in places.values()], tuple(failed)


def _shown(store: NamedStore, path: str) -> str:
    """Return the text that identifies a store in the answer: its name, or its absolute path `path` if it has no name.

    The column `store` and the coverage have the same text, so that users can join them.
    """
    return path if store.name == store.path else store.name


def _logs_of(stores: Sequence[NamedStore]) -> tuple[int, ...]:
    """Return for each store the number of the first store with the same log. This may be the store itself."""
    first = find_replicas(stores).first
    numbers = {store.name: number for number, store in enumerate(stores)}
    return tuple(numbers[first.get(store.name, store.name)] for store in stores)


def _staging_folder(
    staging: StorePath | None, access: Access, options: Mapping[str, str] | None
) -> str:
    """Return a new folder, or the URL of a new place. It is deleted when the process ends."""
    if staging is None or not Location.is_url(staging):
        return str(Scratch.folder_until_exit(_FOLDER, staging, access))
    store = open_object_store(join(fspath(staging), f"{_FOLDER}{uuid.uuid4().hex}"), options)
    StagedFiles.register_stores([store])
    _staged_places.add(store.place)
    return store.place


def _discard(folder: str) -> None:
    """Delete all staged files. Errors are ignored."""
    if not Location.is_url(folder):
        Scratch.discard(Path(folder))
        return
    if folder in _staged_places:
        _staged_places.remove(folder)
        with suppress(StoreError):
            (store,) = StagedFiles.stores_of(join(folder, "answer"))
            at_once(store.delete, [one.name for one in store.list()])


# Delete staged objects when the process ends. Otherwise, they would remain in the bucket.
@atexit.register
def _discard_all() -> None:
    for place in sorted(_staged_places):
        _discard(place)


def read_and_close(lookup: Lookup) -> pa.RecordBatchReader:
    """Return a reader of an answer. Reading it to its end deletes the staged files."""

    def batches() -> Iterator[pa.RecordBatch]:
        with lookup:
            for batch in lookup.batches():
                yield batch.replace_schema_metadata(lookup.schema.metadata)

    return pa.RecordBatchReader.from_batches(lookup.schema, batches())
