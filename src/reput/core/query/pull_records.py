"""Read many stored records of a queue at once. Most are read and verified with arrays.

Consecutive entries (a run) are read with as few calls as their records allow. All checks of `reput.core.query.pull` are
made on the whole run at once. The run ends at the first record that fails a check or needs further checks: a damaged
record, a record that states another queue, a record after a gap, a record with IPv6 hosts, or the newest record of the
queue. There, `reput.core.query.pull` continues: it reads the messages one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread, local
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core.log.files import CommitLogFile
from reput.core.log.queued_record import DISPATCHED_TRANSACTIONS
from reput.core.log.reader import CommitLogReader
from reput.core.query.answers import PulledBody, PulledRecords, PullStatus
from reput.core.query.pull import Pulled, wanted_tags
from reput.core.query.queue_place import QueuePlace
from reput.core.queues.queue_index import QueueReader
from reput.core.queues.reader import ConsumeQueueReader
from reput.core.store.store_reader import StoreReader
from reput.errors import StoreError
from reput.format.commit_log import (
    MESSAGE_MAGIC,
    MIN_RECORD_BYTES,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.format.dtypes import ENTRY_DTYPE, HEAD_DTYPE
from reput.format.java_string import encode_utf8, hash_code
from reput.format.properties import SCHEDULE_TOPIC
from reput.kernels.llvm import INTERPRETED

_MOST_ENTRIES = 1 << 12
# If an answer has `_LARGE_BYTES`, or if `_MANY_ENTRIES` must be compared, the kernel saves more time than it takes to
# load. The kernel reads into a buffer of `_WORK_BYTES`.
_LARGE_BYTES, _WORK_BYTES = 64 << 10, 256 << 10
_MANY_ENTRIES = 256
# Default maximum size of a message. Longer records are not read here: `reput.core.query.pull` reads them.
_MOST_RECORD_BYTES = 4 << 20
# Reading the bytes of a gap of this size takes as long as another system call.
_MOST_GAP_BYTES = 2 << 10
_HOSTS_V6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_BODY_AT = HEAD_DTYPE.itemsize
_LENGTH = np.dtype(">i2")
_HEAD_PLACES = np.arange(_BODY_AT)
_Int64s = npt.NDArray[np.int64]
_PLACE = struct.Struct(">qi")
_of_thread = local()
_ReadRecords = Callable[..., tuple[int, int, int]]
PlainPull = Callable[[int, int, int | None], Pulled]
"""A function that pulls from a queue offset, with a maximum number of messages and of bytes."""


class _ReadRun(NamedTuple):
    """Verified records, and their places in the bytes that were read.

    Attributes:
        data: bytes read, including gaps between the records
        begins, ends: positions of the records in `data`
        min_offset, max_offset: ends of the queue
        is_full: whether the answer needs no further records
    """

    data: bytes
    begins: _Int64s
    ends: _Int64s
    min_offset: int
    max_offset: int
    is_full: bool

    def records(self) -> list[bytes]:
        """Return the records as a list."""
        spans = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [self.data[begin:end] for begin, end in spans]

    def body(self) -> bytes:
        """Return the records, concatenated."""
        begins, ends = self.begins, self.ends
        # The records are adjacent in the log, so a slice is enough.
        if (begins[1:] == ends[:-1]).all():
            return self.data[int(begins[0]) : int(ends[-1])]
        view = memoryview(self.data)
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        return b"".join([view[begin:end] for begin, end in spans])


def pull_records(
    store: StoreReader,
    place: QueuePlace,
    max_messages: int,
    tags: str | None,
    max_bytes: int | None,
    pull: PlainPull,
) -> PulledRecords:
    """See MessageStore.pull_records. `pull` pulls the same messages one by one."""
    # `_read_run` cannot compare tags. So if only messages with certain tags are requested, do not use `_read_run`, but
    # `pull`, which reads the records one by one and compares their tags.
    run = None if wanted_tags(tags) else _read_run(store, place, max_messages, max_bytes)
    if run is None or not len(run.begins):
        return _as_records([], pull(place.queue_offset, max_messages, max_bytes))
    records = run.records()
    count, next_offset = len(records), place.queue_offset + len(records)
    alone = PulledRecords(
        PullStatus.FOUND, tuple(records), next_offset, run.min_offset, run.max_offset
    )
    left = None if max_bytes is None else max_bytes - sum(map(len, records))
    if run.is_full or (left is not None and left <= 0):
        return alone
    try:
        rest = pull(next_offset, max_messages - count, left)
    # The next message cannot be read. Return the records before it. The next pull reports the error.
    except StoreError:
        return alone
    # `pull` returns at least one record, even if it does not fit.
    if left is not None and rest.records and rest.records[0].layout.total_bytes > left:
        return alone
    return _as_records(records, rest)


def quick_records(
    store: StoreReader, place: QueuePlace, max_messages: int, tags: str | None, max_bytes: int
) -> PulledBody | None:
    """Return the verified records of a pull, concatenated, or None if `reput.core.query.pull` must read the records.

    See MessageStore.quick_records.
    """
    wanted = wanted_tags(tags)
    # Entries of the schedule topic have times in place of tags codes.
    if wanted and place.topic == SCHEDULE_TOPIC:
        return None
    try:
        queue = store.queues.queue(place.topic, place.queue_id)
        most = queue.max_queue_offset()
        # The newest entry may be half written. Only `reput.core.query.pull` can read such entries. So if the newest
        # message may be in the answer, leave the whole answer to that module.
        if type(queue) is not ConsumeQueueReader or place.queue_offset + max_messages >= most:
            return None
        kernel = _KERNEL.get()
        if kernel is not None:
            least = queue.min_queue_offset(store.commit_log.min_offset)
            if place.queue_offset < least:
                return None
            looked_at = _MOST_ENTRIES if wanted else min(max_messages, _MOST_ENTRIES)
            stop = min(place.queue_offset + looked_at, most - 1)
            entries = bytearray().join(queue.entry_bytes(place.queue_offset, stop))
            read = _KernelRead(kernel, store.commit_log, place, entries, wanted, max_bytes)
            return read.pulled(max_messages, least, most)
    except StoreError:
        return None
    if wanted:
        if most - place.queue_offset > _MANY_ENTRIES:
            # Load the kernel for later pulls. With many entries, the kernel compares tags faster than Python code.
            _KERNEL.load()
        return None
    run = _read_run(store, place, max_messages, max_bytes, queue)
    if run is None or not len(run.begins) or not run.is_full:
        return None
    count = len(run.begins)
    end = place.queue_offset + count
    body = run.body()
    if len(body) >= _LARGE_BYTES:
        # Load the kernel for later pulls, because it copies large answers faster.
        _KERNEL.load()
    return PulledBody(body, count, end, run.min_offset, run.max_offset)


class _Kernel:
    """`reput.kernels.queue_records`. It is loaded in a thread, because importing numba takes half a second."""

    def __init__(self) -> None:
        self._found: _ReadRecords | None = None
        # If numba's compilation is switched off, the kernel runs as plain Python, which is slower than NumPy. Then
        # never load it.
        self._is_begun = INTERPRETED
        self._lock = Lock()

    def get(self) -> _ReadRecords | None:
        """Return the kernel; None while it is not loaded."""
        return self._found

    def load(self) -> None:
        """Start loading the kernel, unless this has happened before."""
        with self._lock:
            if self._is_begun:
                return
            self._is_begun = True
        Thread(target=self.load_now, name="reput-kernel", daemon=True).start()

    def load_now(self) -> None:
        """Load the kernel, compiled for the types of the arguments that `_KernelRead` passes."""
        from reput.kernels.queue_records import read_records

        # A call with no entries compiles the kernel.
        nothing, no_numbers = np.zeros(1, np.uint8), np.zeros(0, np.int64)
        read_records(
            -1, 0, 0, nothing, 0, 0, 0, nothing, no_numbers, nothing, no_numbers, 0, nothing, 0,
            nothing,
        )  # fmt: skip
        self._found = read_records


_KERNEL = _Kernel()


def load_pull_kernel() -> None:
    """Load the kernel of quick pulls, so that it is compiled."""
    _KERNEL.load_now()


class _KernelRead:
    """Reads the records of ConsumeQueue entries with the compiled kernel `read_records`."""

    def __init__(
        self,
        kernel: _ReadRecords,
        log: CommitLogReader,
        place: QueuePlace,
        entries: bytearray,
        tags: set[str],
        max_bytes: int,
    ) -> None:
        self._kernel, self._log, self._place, self._entries = kernel, log, place, entries
        topic = encode_utf8(place.topic)
        encoded = [encode_utf8(tag) for tag in tags]
        self._topic = _bytes(bytes([min(len(topic), 255)]) + topic)
        self._codes = np.array([hash_code(tag) for tag in tags], np.int64)
        self._tags = _bytes(b"".join(encoded))
        self._tag_at = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        self._out = np.empty(max_bytes, np.uint8)

    def pulled(self, max_messages: int, least: int, most: int) -> PulledBody | None:
        """Return the answer, or None if `reput.core.query.pull` must read the records. Raises StoreError."""
        entry = at = count = 0
        stop = len(self._entries) // ENTRY_DTYPE.itemsize
        while entry < stop and count < max_messages:
            offset, size = _PLACE.unpack_from(self._entries, entry * ENTRY_DTYPE.itemsize)
            if at + size > len(self._out):
                # The next record does not fit into the answer, so the answer is complete.
                break
            file = self._log.file_at(offset)
            done = file and self._log.use_descriptor(
                file, partial(self._read, file, entry, at, max_messages - count)
            )
            if not done or done[0] == entry:
                return None
            entry, at = done[:2]
            count += done[2]
        if not count:
            return None
        body = self._out[:at]
        if at < _LARGE_BYTES or at < len(self._out) // 2:
            # Return a copy, so that the rest of the large array is freed.
            body = body.copy()
        next_offset = self._place.queue_offset + entry
        return PulledBody(body.data, count, next_offset, least, most)

    def _read(
        self, file: CommitLogFile, entry: int, at: int, most: int, descriptor: int
    ) -> tuple[int, int, int]:
        return self._kernel(
            descriptor, file.start, file.end, np.frombuffer(self._entries, np.uint8), entry,
            self._place.queue_id, self._place.queue_offset, self._topic, self._codes, self._tags,
            self._tag_at, most, self._out, at, _work(),
        )  # fmt: skip


def _work() -> npt.NDArray[np.uint8]:
    """Return this thread's buffer. Compiled pulls (`_kernel`) use this buffer to read records that are not adjacent."""
    found: npt.NDArray[np.uint8] | None = getattr(_of_thread, "work", None)
    if found is None:
        found = _of_thread.work = np.empty(_WORK_BYTES, np.uint8)
    return found


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8)


def _as_records(before: list[bytes], pulled: Pulled) -> PulledRecords:
    records = (*before, *(record.record() for record in pulled.records))
    return PulledRecords(PullStatus.FOUND if before else pulled.status, records, *pulled[2:])


def _read_run(
    store: StoreReader,
    place: QueuePlace,
    max_messages: int,
    max_bytes: int | None,
    queue: QueueReader | None = None,
) -> _ReadRun | None:
    """Return the verified records from a queue offset on, or None if `reput.core.query.pull` must read them.

    `queue` is the queue of the place, if the caller has looked it up.
    """
    try:
        if queue is None:
            queue = store.queues.queue(place.topic, place.queue_id)
        # In other kinds of queues (5.x), an entry may cover several queue offsets. `reput.core.query.pull` reads them.
        if type(queue) is not ConsumeQueueReader:
            return None
        least, most = queue.min_queue_offset(store.commit_log.min_offset), queue.max_queue_offset()
        begin, stop = place.queue_offset, min(most - 1, place.queue_offset + max_messages)
        if begin < least or begin >= stop:
            return None
        stop = min(stop, begin + _MOST_ENTRIES)
        entries = np.frombuffer(b"".join(queue.entry_bytes(begin, stop)), ENTRY_DTYPE)
        offsets, sizes = entries["physical_offset"].astype("i8"), entries["size"].astype("i8")
        count, is_full = _fitting(sizes, max_bytes)
        data, begins = _read(store, offsets[:count], sizes[:count])
    except StoreError:
        return None
    proven = _count_proven(data, begins, offsets, sizes, place)
    is_full = proven == count and (is_full or count == max_messages)
    begins = begins[:proven]
    return _ReadRun(data, begins, begins + sizes[:proven], least, most, is_full)


def _fitting(sizes: _Int64s, max_bytes: int | None) -> tuple[int, bool]:
    """Return how many records of these sizes fit the limit, and whether the limit excluded any."""
    is_likely = (sizes >= MIN_RECORD_BYTES) & (sizes <= _MOST_RECORD_BYTES)
    count = _leading(is_likely)
    if max_bytes is None:
        return count, False
    fit = max(int(np.searchsorted(np.cumsum(sizes[:count]), max_bytes, side="right")), 1)
    return min(count, fit), fit < count


def _read(store: StoreReader, offsets: _Int64s, sizes: _Int64s) -> tuple[bytes, _Int64s]:
    """Read the records at these offsets, up to the first record that is in no file.

    Records that are close together are read with one call. Return the bytes, and the position of each record in them.
    """
    if not len(offsets):
        return b"", offsets
    log, ends = store.commit_log, offsets + sizes
    gaps = offsets[1:] - ends[:-1]
    apart = np.flatnonzero((gaps < 0) | (gaps > _MOST_GAP_BYTES)) + 1
    firsts, lasts = np.concatenate([[0], apart]), np.concatenate([apart, [len(offsets)]]) - 1
    starts, stops = offsets[firsts], ends[lasts]
    pieces: list[bytes] = []
    done = 0
    while done < len(starts):
        file = log.file_at(int(starts[done]))
        if file is None:
            break
        count = done + _leading((starts[done:] >= file.start) & (stops[done:] <= file.end))
        if count == done:
            break
        part = slice(done, count)
        pieces += log.read_each(file, starts[part].tolist(), (stops - starts)[part].tolist())
        done = count
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    # If a file was truncated, its last piece is shorter than requested. Use only the pieces before it.
    if not np.array_equal(lengths, (stops - starts)[:done]):
        done = _leading(lengths == (stops - starts)[:done])
        pieces, lengths = pieces[:done], lengths[:done]
    records = int(lasts[done - 1]) + 1 if done else 0
    # For each piece of the log: the difference between its position in the joined bytes and its physical offset. The
    # physical offset of a record, plus the difference of its piece, is the record's position in the joined bytes.
    shifts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) - starts[:done] if done else starts[:0]
    counts = (lasts - firsts + 1)[:done]
    return _joined(pieces), offsets[:records] + np.repeat(shifts, counts)


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _count_proven(
    data: bytes, begins: _Int64s, offsets: _Int64s, sizes: _Int64s, place: QueuePlace
) -> int:
    """Count the records before the first one whose fields have another queue, wrong offsets or inconsistent lengths."""
    count = len(begins)
    if not count:
        return 0
    read = np.frombuffer(data, np.uint8)
    heads = read[begins[:, None] + _HEAD_PLACES].view(HEAD_DTYPE)[:, 0]
    sizes, body_bytes = sizes[:count], np.maximum(heads["body_bytes"].astype("i8"), 0)
    topic = encode_utf8(place.topic)
    stated = bytes([min(len(topic), 255)]) + topic
    properties_at = _BODY_AT + body_bytes + len(stated) + _LENGTH.itemsize
    sys_flag = heads["sys_flag"]
    transaction = sys_flag & SYS_FLAG_TRANSACTION_MASK
    is_right = (
        (heads["total_bytes"] == sizes)
        & (heads["magic"] == MESSAGE_MAGIC)
        & (heads["queue_id"] == place.queue_id)
        & (heads["queue_offset"] == np.arange(place.queue_offset, place.queue_offset + count))
        & (heads["physical_offset"] == offsets[:count])
        & (sys_flag & _HOSTS_V6 == 0)
        & (
            (transaction == DISPATCHED_TRANSACTIONS[0])
            | (transaction == DISPATCHED_TRANSACTIONS[1])
        )
        & (properties_at <= sizes)
    )
    count = _leading(is_right)
    if not count:
        return 0
    # After the body, a record has the topic with its length, the length of the properties, and the properties.
    ends, width = properties_at[:count], len(stated) + _LENGTH.itemsize
    table = read[(begins[:count] + ends - width)[:, None] + np.arange(width)]
    lengths = np.ascontiguousarray(table[:, len(stated) :]).view(_LENGTH)[:, 0]
    has_topic = (table[:, : len(stated)] == np.frombuffer(stated, np.uint8)).all(axis=1)
    return _leading(has_topic & (ends + lengths == sizes[:count]))


def _leading(is_right: npt.NDArray[np.bool_]) -> int:
    """Return the number of leading true values."""
    return len(is_right) if is_right.all() else int(is_right.argmin())
