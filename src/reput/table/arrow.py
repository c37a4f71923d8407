"""Messages as Arrow batches, for whatever reads Arrow: DuckDB, Polars, pandas."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from os import PathLike, fspath
from typing import TypeVar

import pyarrow as pa

from reput.arguments import Time, checked, optional_milliseconds
from reput.errors import UsageError
from reput.log.paths import find_logs
from reput.log.scan import ScanBuffers
from reput.messages.schema import CORRUPT_REASON, select
from reput.table.filters import Condition, OnCorrupt, check_on_corrupt, selected
from reput.table.found_records import OpenedQueues
from reput.table.plan import ReadPlan, plan_reading
from reput.table.read import RangeBatches, damage_rows

_log = logging.getLogger("reput.table")
_Value = TypeVar("_Value", str, int)


@checked
def to_arrow(
    stores: str | PathLike[str] | Sequence[str | PathLike[str]],
    columns: Iterable[str] | None = None,
    *,
    topic: str | Collection[str] | None = None,
    key: str | Collection[str] | None = None,
    unique_key: str | Collection[str] | None = None,
    queue_id: int | Collection[int] | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    on_corrupt: OnCorrupt = "fail",
    decompressed: bool = True,
    unwrap_batches: bool = False,
) -> pa.RecordBatchReader:
    """Read messages in the order of the log, a batch at a time: memory holds one batch, however large the store is.

    What is asked for is looked up in ConsumeQueues and IndexFiles where these can be trusted; the rest of the log is
    read. The messages are those that were there when this was called. Nothing is written into the store.

    Args:
        stores: A store directory, its commitlog folder, CommitLog files, a pattern or URL of such; or several.
        columns: Names out of `reput.messages.schema`, in the order they are wanted; None for all of a message's.
        topic: Only messages of this topic, or of one of these.
        key: Only messages that dispatch indexes under this key, or one of these, of their KEYS.
        unique_key: Only messages with this unique key, or one of these. A message that a 5.x client sent in a list has
            two, its own and the list's.
        queue_id: Only messages of this queue of their topic, or of one of these.
        begin: Only messages stored at this time or later: milliseconds since 1970, or a datetime with a timezone.
        end: Only messages stored at this time or earlier.
        on_corrupt: "fail" raises at damage of the log; "skip" leaves it out with a warning in the log "reput.table";
            "row" gives it, as far as it may have been asked for, as a row whose column `corrupt_reason` says what is
            lost.
        decompressed: Whether compressed bodies come as they were sent. One that cannot be decompressed comes as it is
            stored, with a warning; the column `body_error` says why.
        unwrap_batches: Whether an inner batch (5.x) comes as the messages that it holds, each with its own queue
            offset, keys, properties and decompressed body; else it is one message. Keys are then looked for in the
            whole log. A batch that cannot be unwrapped comes as it is stored, with a warning.

    Returns:
        A reader of batches, all of one schema. Reading it raises CorruptMessageError, StoreNotFoundError (where a file
        expired meanwhile), StoreAccessError and StoreChangedError.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, CorruptMessageError, FormatError.
    """
    check_on_corrupt(on_corrupt)
    names = None if columns is None else list(columns)
    if names is None and on_corrupt == "row":
        names = [*select(None).names, CORRUPT_REASON.name]
    schema = select(names)
    if not schema.names:
        raise UsageError("columns: name at least one", arguments=["columns"])
    conditions = selected(
        topics=_several(topic),
        keys=_several(key),
        unique_keys=_several(unique_key),
        queue_ids=_several(queue_id),
        begin_ms=optional_milliseconds(begin),
        end_ms=optional_milliseconds(end),
    )
    paths = [stores] if isinstance(stores, str | PathLike) else stores
    logs = find_logs([fspath(path) for path in paths])
    plan = plan_reading(logs, conditions, unwrap_batches=unwrap_batches)
    if plan.missing and on_corrupt == "fail":
        raise plan.missing[0][1].as_error("; on_corrupt 'skip' or 'row' continues after it")
    batches = _batches(plan, schema, conditions, on_corrupt, decompressed, unwrap_batches)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _several(given: _Value | Collection[_Value] | None) -> tuple[_Value, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str | int) else tuple(given)


def _batches(
    plan: ReadPlan,
    schema: pa.Schema,
    conditions: Sequence[Condition],
    on_corrupt: OnCorrupt,
    decompressed: bool,
    unwrap_batches: bool,
) -> Iterator[pa.RecordBatch]:
    buffers = ScanBuffers()
    with closing(OpenedQueues()) as opened:
        for task in plan.tasks:
            batches = RangeBatches(
                task.part, schema.names, conditions, on_corrupt=on_corrupt,
                decompressed=decompressed, unwrap_batches=unwrap_batches, open_file=task.open_file, buffers=buffers,
                opened=opened,
            )  # fmt: skip
            for batch in batches:
                yield batch.select(schema.names)
            for lost in batches.report.damage if on_corrupt != "row" else ():
                _log.warning("%s", lost)
    for store, lost in plan.missing:
        if on_corrupt == "row":
            yield damage_rows([lost], store, conditions).select(schema.names)
        else:
            _log.warning("%s; continuing after them", lost)
