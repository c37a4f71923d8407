"""Records of a queue as they are stored, many at a time: most are read and proved with arrays.

A run of entries is read with as few calls as its records lie apart, and all that `reput.query.pull` asks of a record is
asked of the whole run at once. Where the run meets one that is not plainly right (damaged, of a further queue, after a
gap, with hosts of IPv6, the newest of its queue), it ends, and the plain pull goes on and decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.format.commit_log import (
    MESSAGE_MAGIC,
    MIN_RECORD_BYTES,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.format.dtypes import ENTRY_DTYPE, HEAD_DTYPE
from reput.format.java_string import encode_utf8
from reput.log.queued_record import DISPATCHED_TRANSACTIONS
from reput.query.answers import PulledRecords, PullStatus
from reput.query.pull import Pulled, QueuePlace, wanted_tags
from reput.queues.reader import ConsumeQueueReader
from reput.store.store_reader import StoreReader

_MOST_ENTRIES = 1 << 12
_MOST_RECORD_BYTES = 4 << 20
_MOST_GAP_BYTES = 8 << 10  # read through, at the price of another call
_HOSTS_V6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_BODY_AT = HEAD_DTYPE.itemsize
_LENGTH = np.dtype(">i2")
_Int64s = npt.NDArray[np.int64]
PlainPull = Callable[[int, int, int | None], Pulled]
"""What pulls from a queue offset, at most so many messages of so many bytes."""


class _ReadRun(NamedTuple):
    records: list[bytes]
    min_offset: int
    max_offset: int
    is_full: bool


def pull_records(
    store: StoreReader,
    place: QueuePlace,
    max_messages: int,
    tags: str | None,
    max_bytes: int | None,
    pull: PlainPull,
) -> PulledRecords:
    """See MessageStore.pull_records. `pull` pulls the same messages one by one."""
    run = None if wanted_tags(tags) else _read_run(store, place, max_messages, max_bytes)
    if run is None or not run.records:
        return _as_records([], pull(place.queue_offset, max_messages, max_bytes))
    count, next_offset = len(run.records), place.queue_offset + len(run.records)
    alone = PulledRecords(
        PullStatus.FOUND, tuple(run.records), next_offset, run.min_offset, run.max_offset
    )
    left = None if max_bytes is None else max_bytes - sum(map(len, run.records))
    if run.is_full or (left is not None and left <= 0):
        return alone
    try:
        rest = pull(next_offset, max_messages - count, left)
    except StoreError:  # whoever asks for what comes next is told
        return alone
    if left is not None and rest.records and rest.records[0].layout.total_bytes > left:
        return alone
    return _as_records(run.records, rest)


def quick_records(
    store: StoreReader, place: QueuePlace, max_messages: int, max_bytes: int | None
) -> PulledRecords | None:
    """See MessageStore.quick_records: the records that arrays prove; None where the plain pull decides."""
    try:
        most = store.queues.queue(place.topic, place.queue_id).max_queue_offset()
    except StoreError:
        return None
    if (
        place.queue_offset + max_messages >= most
    ):  # its newest message is not for arrays: nothing is read twice
        return None
    run = _read_run(store, place, max_messages, max_bytes)
    if run is None or not run.records or not run.is_full:
        return None
    end = place.queue_offset + len(run.records)
    return PulledRecords(PullStatus.FOUND, tuple(run.records), end, run.min_offset, run.max_offset)


def _as_records(before: list[bytes], pulled: Pulled) -> PulledRecords:
    records = (*before, *(record.record() for record in pulled.records))
    return PulledRecords(PullStatus.FOUND if before else pulled.status, records, *pulled[2:])


def _read_run(
    store: StoreReader, place: QueuePlace, max_messages: int, max_bytes: int | None
) -> _ReadRun | None:
    """Records from a place on that are plainly right; None where there are none."""
    try:
        queue = store.queues.queue(place.topic, place.queue_id)
        if type(queue) is not ConsumeQueueReader:  # those of 5.x give some entries several numbers
            return None
        least, most = queue.min_queue_offset(store.commit_log.min_offset), queue.max_queue_offset()
        begin, stop = place.queue_offset, min(most - 1, place.queue_offset + max_messages)
        if begin < least or begin >= stop:
            return None
        stop = min(stop, begin + _MOST_ENTRIES)
        entries = np.frombuffer(b"".join(queue.entry_bytes(begin, stop)), ENTRY_DTYPE)
        offsets, sizes = entries["physical_offset"].astype("i8"), entries["size"].astype("i8")
        count, is_full = _fitting(sizes, max_bytes)
        records = _read(store, offsets[:count], sizes[:count])
    except StoreError:
        return None
    proven = _count_proven(records, offsets, sizes, place)
    is_full = proven == count and (is_full or count == max_messages)
    return _ReadRun(records[:proven], least, most, is_full)


def _fitting(sizes: _Int64s, max_bytes: int | None) -> tuple[int, bool]:
    """How many records of these sizes to read, and whether it is because no more of them fit."""
    is_likely = (sizes >= MIN_RECORD_BYTES) & (sizes <= _MOST_RECORD_BYTES)
    count = _leading(is_likely)
    if max_bytes is None:
        return count, False
    fit = max(int(np.searchsorted(np.cumsum(sizes[:count]), max_bytes, side="right")), 1)
    return min(count, fit), fit < count


def _read(store: StoreReader, offsets: _Int64s, sizes: _Int64s) -> list[bytes]:
    """The bytes at these offsets, as far as files hold them; those that lie close together with one read."""
    if not len(offsets):
        return []
    log, records, ends = store.commit_log, list[bytes](), offsets + sizes
    gaps = offsets[1:] - ends[:-1]
    apart = np.flatnonzero((gaps < 0) | (gaps > _MOST_GAP_BYTES)) + 1
    firsts, lasts = np.concatenate([[0], apart]), np.concatenate([apart, [len(offsets)]]) - 1
    starts, stops = offsets[firsts], ends[lasts]
    done = 0
    while done < len(starts):
        file = log.file_at(int(starts[done]))
        if file is None:
            break
        count = done + _leading((starts[done:] >= file.start) & (stops[done:] <= file.end))
        if count == done:
            break
        part = slice(done, count)
        records += log.read_each(file, starts[part].tolist(), (stops - starts)[part].tolist())
        done = count
    if len(firsts) == len(offsets):
        return records
    return [
        data[begin:end]
        for data, first, last in zip(records, firsts, lasts, strict=False)
        for begin, end in zip(
            (offsets[first : last + 1] - offsets[first]).tolist(),
            (ends[first : last + 1] - offsets[first]).tolist(),
            strict=True,
        )
    ]


def _count_proven(records: list[bytes], offsets: _Int64s, sizes: _Int64s, place: QueuePlace) -> int:
    """How many of them, from the first on, are of the queue, have their place in it, and add up."""
    count = len(records)
    if not count:
        return 0
    heads = np.frombuffer(b"".join([record[:_BODY_AT] for record in records]), HEAD_DTYPE)
    sizes, body_bytes = sizes[:count], np.maximum(heads["body_bytes"].astype("i8"), 0)
    topic = encode_utf8(place.topic)
    stated = bytes([min(len(topic), 255)]) + topic
    properties_at = _BODY_AT + body_bytes + len(stated) + _LENGTH.itemsize
    is_right = (
        (heads["total_bytes"] == sizes)
        & (heads["magic"] == MESSAGE_MAGIC)
        & (heads["queue_id"] == place.queue_id)
        & (heads["queue_offset"] == np.arange(place.queue_offset, place.queue_offset + count))
        & (heads["physical_offset"] == offsets[:count])
        & (heads["sys_flag"] & _HOSTS_V6 == 0)
        & np.isin(heads["sys_flag"] & SYS_FLAG_TRANSACTION_MASK, DISPATCHED_TRANSACTIONS)
        & (properties_at <= sizes)
    )
    count = _leading(is_right)
    if not count:
        return 0
    # What follows the body: the topic after its length, the length of the properties, the properties.
    ends, width = properties_at[:count], len(stated) + _LENGTH.itemsize
    texts = b"".join(
        [record[end - width : end] for record, end in zip(records, ends.tolist(), strict=False)]
    )
    table = np.frombuffer(texts, np.uint8).reshape(count, width)
    lengths = np.ascontiguousarray(table[:, len(stated) :]).view(_LENGTH)[:, 0]
    has_topic = (table[:, : len(stated)] == np.frombuffer(stated, np.uint8)).all(axis=1)
    return _leading(has_topic & (ends + lengths == sizes[:count]))


def _leading(is_right: npt.NDArray[np.bool_]) -> int:
    """How many are, before the first that is not."""
    return len(is_right) if is_right.all() else int(is_right.argmin())
