"""A look-up from its keys to its answer, whatever stages the keys and runs the tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Self, TypedDict

import pyarrow as pa

from reput.arguments import checked
from reput.config import StoreConfig
from reput.errors import UsageError
from reput.files.private import Access
from reput.files.scratch import discard_tree, folder_until_exit
from reput.files.storage import absolute
from reput.log.paths import find_stores
from reput.lookup.answer import LookupAnswer, answer_schema
from reput.lookup.coverage import COVERAGE_COLUMN, IS_COMPLETE, METADATA_KEY, CoverageForm
from reput.lookup.driver import look_up
from reput.lookup.key_parts import KeyPart, check_columns
from reput.messages.schema import select
from reput.store.store_reader import StoreReader
from reput.tasks import Progress, Runner, silent

StorePath = str | PathLike[str]
DEFAULT_COLUMNS = (
    "store", "physical_offset", "store_timestamp", "queue_id", "queue_offset", "size",
    "message_id", "unique_key", "tags",
)  # fmt: skip


class LookupOptions(TypedDict, total=False):
    """Options of a look-up, on any runner; see `reput.look_up` and `reput.spark.lookup`."""

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


@dataclass(frozen=True, slots=True)
class Lookup:
    """A look-up that is done; a context manager, which deletes at its end what the answer is read from.

    stores  that were searched, each once, as they were given
    answer  what was found, to be read part by part
    schema  of the answer's rows; its metadata has what they cover, see `reput.lookup.coverage.coverage_of`
    folder  where the answer is staged
    """

    stores: tuple[str, ...]
    answer: LookupAnswer
    schema: pa.Schema
    folder: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the staged answer, which cannot be read any more."""
        discard_tree(self.folder)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the answer, in the order of the keys."""
        for number in range(len(self.answer.parts)):
            yield from self.answer.batches(number)


@checked
def run_lookup(
    stores: StorePath | Sequence[StorePath],
    rows: pa.Schema,
    stage: Callable[[Path], list[KeyPart]],
    runner: Callable[[], Runner],
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
    """Check what is asked, open the stores, stage the keys, look them up.

    Args:
        stores: Store directories, patterns or URLs of such; one that is given twice has its messages once.
        rows: The schema of the keys.
        stage: Writes the keys into a folder, in parts.
        runner: Called after that for what runs the tasks.
        columns: Of a message, that the answer has.
        index, config, hash_slots, index_items, storage_options: As `StoreReader` takes them.
        staging: The folder to stage in, below which a new one is created; the system's temporary one when None.
        staging_access: Who may use what is staged.
        coverage: "summary" for `is_complete` in each row, "rows" for all of its coverage.
        progress: Called with the phase, units done and units in all.

    Returns:
        A Lookup, whose folder is deleted when its context ends, at the latest at the end of this process.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError, FormatError, and what `stage` raises.
    """
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    if coverage not in ("summary", "rows"):
        raise UsageError(f"coverage {coverage}: summary or rows", arguments=["coverage"])
    is_flat = coverage == "summary"
    check_columns(rows, [*select(wanted).names, IS_COMPLETE if is_flat else COVERAGE_COLUMN])
    given = [stores] if isinstance(stores, str | PathLike) else list(stores)
    if not given:
        raise UsageError("stores: give at least one store")
    paths = tuple(find_stores(given, storage_options))
    if index is not None and len(paths) > 1:
        raise UsageError("index is for one store; these are several", arguments=["index"])
    with ExitStack() as stack:
        opened = [
            stack.enter_context(
                StoreReader(
                    absolute(path), config=config, hash_slots=hash_slots,
                    index_items=index_items, index=index and absolute(index),
                    storage_options=storage_options,
                )
            )
            for path in paths
        ]  # fmt: skip
        folder = folder_until_exit("reput-lookup-", staging, staging_access)
        try:
            parts = stage(folder)
            answer = look_up(runner(), opened, parts, folder, wanted, progress)
        except BaseException:
            discard_tree(folder)
            raise
    summary = json.dumps(answer.coverage.as_json(paths))
    schema = answer_schema(rows, wanted, is_flat).with_metadata({METADATA_KEY: summary})
    return Lookup(paths, replace(answer, is_flat=is_flat), schema, folder)
