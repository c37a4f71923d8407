"""Decide queue offsets from the old entries when queues in RocksDB are rebuilt in place.

`reput.engine.compare.placement` has the rule. A message to which the rule gives no queue offset gets no entry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import DispatchBatch, OffsetRange, Queue, facts_of, is_light
from reput.engine import compare
from reput.engine.five.rocksdb_database import RocksDatabase
from reput.engine.rebuild import REFUSED, OldNumbers, read_batches
from reput.engine.writer import LogPart, PlacedBatches
from reput.errors import MissingExtraError, StoreError, is_transient
from reput.format.dtypes import ROCKSDB_VALUE_DTYPE
from reput.format.rocksdb_queue import VALUE_BYTES, entry_key, queue_offset_of, queue_prefix

_FIELDS = ("physical_offset", "size", "sys_flag", "queue", "queue_offset", "multi")
_Numbers = npt.NDArray[np.int64]


def plan_old_numbers(
    database: str, staged: Iterable[Path], queues: Collection[Queue] | None, log: LogPart
) -> dict[Queue, OldNumbers]:
    """Compare each queue's messages with its old entries. Return the queue offsets that the old entries determine.

    The result has only queues in which an old entry gives its message another queue offset than the record states, or
    in which old entries are kept although their messages cannot be read.

    Args:
        database: consumequeue/ of the store that is rebuilt.
        staged: The staged files, in log order.
        queues: The queues to compare; None for all.
        log: The begin, end and unreadable ranges of the log.

    Raises:
        StoreAccessError.
    """
    of_queue: dict[Queue, OldNumbers] = {}
    try:
        if facts_of(Path(database).parent).queue_form is not None:
            with closing(RocksDatabase(database)) as old:
                names = {Queue(end.topic, end.queue_id) for end in old.ends()}
                names = names if queues is None else names & set(queues)
                messages = _messages_of(staged, names, log)
                of_queue = {name: _compare(old, name, messages, log) for name in sorted(names)}
    except (StoreError, MissingExtraError) as error:
        if is_transient(error):
            raise
        # A damaged database does not show which queue offsets the messages had. So use the offsets in their records.
        of_queue = {}
    return {
        name: numbers
        for name, numbers in of_queue.items()
        if len(numbers.changed) or len(numbers.kept_at)
    }


def beginning_again(staged: Iterable[Path]) -> set[Queue]:
    """Return the queues in which queue offset 0 is stated by a message that is not the queue's first one.

    The summaries of the splits (`reput.engine.rebuild.batch_file`) do not show this, because they ignore queue offset
    0.
    """
    begun: set[Queue] = set()
    queues: set[Queue] = set()
    for path in staged:
        for batch in read_batches(str(path), _FIELDS):
            for queue, _, numbers in compare.dispatched_entries(batch):
                zeros = np.flatnonzero(numbers == 0)
                if len(zeros) and (queue in begun or zeros[-1] > 0):
                    queues.add(queue)
                begun.add(queue)
    return queues


class _StatedOffsets(NamedTuple):
    """Physical offsets and stated queue offsets of a queue's messages, in log order."""

    offsets: _Numbers
    stated: _Numbers


class _AllGiven(NamedTuple):
    queues: dict[Queue, _StatedOffsets]
    elsewhere: list[OffsetRange]


def _messages_of(staged: Iterable[Path], names: Collection[Queue], log: LogPart) -> _AllGiven:
    parts: dict[Queue, list[_StatedOffsets]] = defaultdict(list)
    elsewhere: list[OffsetRange] = []
    placing = PlacedBatches(log)
    for path in staged if names else ():
        for batch in read_batches(str(path), _FIELDS, names):
            _, placed = placing.next(batch)
            elsewhere += [] if placed is None else placed.elsewhere
            for queue, messages in _stated_offsets(batch, placed):
                if queue in names:
                    parts[queue].append(messages)
    queues = {
        name: _StatedOffsets(*map(np.concatenate, zip(*runs, strict=True)))
        for name, runs in parts.items()
    }
    return _AllGiven(queues, elsewhere)


def _stated_offsets(
    batch: DispatchBatch, placed: compare.Placement | None
) -> Iterator[tuple[Queue, _StatedOffsets]]:
    wrong: set[int] = set()
    if placed is not None:
        wrong = set(batch.messages["physical_offset"][~placed.is_good].tolist())
    for queue, messages, numbers in compare.dispatched_entries(batch):
        offsets = messages["physical_offset"].astype(np.int64)
        if wrong:
            rows = np.array([offset not in wrong for offset in offsets.tolist()], np.bool_)
            offsets, numbers = offsets[rows], numbers[rows]
        yield queue, _StatedOffsets(offsets, numbers.astype(np.int64))


def _compare(old: RocksDatabase, name: Queue, messages: _AllGiven, log: LogPart) -> OldNumbers:
    numbers, values = _old_entries(old, name)
    offsets = values["physical_offset"].astype(np.int64)
    # Entries outside the log, for example of expired messages, lead to no message.
    good = (offsets >= log.begin) & (offsets + values["size"] <= log.end) & (values["size"] > 0)
    numbers, values, offsets = numbers[good], values[good], offsets[good]
    none = np.empty(0, np.int64)
    of_queue = messages.queues.get(name, _StatedOffsets(none, none))
    order = np.argsort(of_queue.offsets, kind="stable")
    of_queue = _StatedOffsets(of_queue.offsets[order], of_queue.stated[order])
    by_offset = np.argsort(offsets, kind="stable")
    rows = compare.entry_of_each(
        of_queue.offsets, of_queue.stated, offsets[by_offset], numbers[by_offset]
    )
    has_entry, result = rows >= 0, of_queue.stated.copy()
    result[has_entry] = numbers[by_offset][rows[has_entry]]
    lost = compare.in_ranges(offsets, [*log.lost, *messages.elsewhere])
    # Keep only the entries of messages that no scan found.
    lost &= ~np.isin(offsets, of_queue.offsets)
    _place_missing(name, of_queue, result, has_entry, numbers[lost], offsets[lost])
    changed = np.flatnonzero(result != of_queue.stated)
    pairs = np.stack([of_queue.offsets[changed], result[changed]], axis=1)
    return OldNumbers(pairs, numbers[lost], values[lost])


def _place_missing(
    name: Queue,
    messages: _StatedOffsets,
    result: _Numbers,
    has_entry: npt.NDArray[np.bool_],
    lost: _Numbers,
    lost_offsets: _Numbers,
) -> None:
    """Of the messages without an old entry, refuse those whose queue offset is taken or out of order.

    A queue offset is in order if it lies between the queue offsets of the entries before and after the message. For a
    refused message, `result` is set to -1.
    """
    in_use = np.concatenate([result[has_entry], lost])
    missing = np.flatnonzero(~has_entry)
    if not len(missing) or not len(in_use):
        return
    is_in_use = np.isin(messages.stated[missing], in_use)
    result[missing[is_in_use]] = REFUSED
    # Queue offsets of light queues (%LMQ%) may restart at 0, so their order proves nothing.
    if is_light(name.topic):
        return
    solid = np.concatenate([messages.offsets[has_entry], lost_offsets])
    order = np.argsort(solid, kind="stable")
    solid, solid_numbers = solid[order], in_use[order]
    ordered = compare.ascending(solid_numbers)
    solid, solid_numbers = solid[ordered], solid_numbers[ordered]
    free = missing[~is_in_use]
    numbers = messages.stated[free]
    fits = compare.fitting(
        messages.offsets[free], numbers, numbers, solid, (solid_numbers, solid_numbers), 2**63 - 1
    )
    result[np.setdiff1d(missing, free[fits])] = REFUSED


def _old_entries(old: RocksDatabase, name: Queue) -> tuple[_Numbers, npt.NDArray[np.void]]:
    """Return the queue offsets and values of a queue's entries, up to the maximum queue offset.

    The database records this maximum, and a broker ignores later entries.
    """
    prefix, end = queue_prefix(*name), old.end(*name)
    numbers, values = [], []
    for key, value in old.items(entry_key(prefix, 0)):
        number = queue_offset_of(key, prefix)
        if number is None or (end is not None and number > end.queue_offset):
            break
        if len(value) == VALUE_BYTES:
            numbers.append(number)
            values.append(value)
    rows = np.frombuffer(b"".join(values), ROCKSDB_VALUE_DTYPE)
    return np.array(numbers, np.int64), rows
