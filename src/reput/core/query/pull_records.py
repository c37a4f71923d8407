"""Read many stored records of a queue at once, with a compiled kernel.

The kernel reads the records of consecutive entries with as few calls as their places allow, and makes all checks of
`reput.core.query.pull`. Where it cannot answer, `reput.core.query.pull` reads the messages one by one: a damaged
record, a record that states another queue, a record with IPv6 hosts, the newest record of the queue, other kinds of
queues, remote files. The same applies until the kernel is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock, Thread, local
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core.log.files import CommitLogFile
from reput.core.log.reader import CommitLogReader
from reput.core.query.answers import PulledBody, PulledRecords, PullStatus
from reput.core.query.pull import Pulled, QueuePlace, wanted_tags
from reput.core.queues.reader import ConsumeQueueReader
from reput.core.store.store_reader import StoreReader
from reput.errors import StoreError
from reput.format.commit_log import HEAD
from reput.format.consume_queue import ENTRY
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.java_string import encode_utf8, hash_code
from reput.format.properties import SCHEDULE_TOPIC
from reput.kernels.llvm import INTERPRETED

_MOST_ENTRIES = 1 << 12
# The first pull of this number of entries loads the kernel, which then takes half the time of reading them one by one.
_LEAST_ENTRIES = 8
# An answer of `_LARGE_BYTES` is sent without a copy. The kernel reads into a buffer of `_WORK_BYTES`.
_LARGE_BYTES, _WORK_BYTES = 64 << 10, 256 << 10
# Longer answers are continued one by one.
_MOST_BYTES = 4 << 20
_PLACE, _SIZE = ENTRY.reader("physical_offset", "size"), HEAD.reader("total_bytes")
_of_thread = local()
_ReadRecords = Callable[..., tuple[int, int, int]]
PlainPull = Callable[[int, int, int | None], Pulled]
"""A function that pulls from a queue offset, with a maximum number of messages and of bytes."""


def pull_records(
    store: StoreReader,
    place: QueuePlace,
    max_messages: int,
    tags: str | None,
    max_bytes: int | None,
    pull: PlainPull,
) -> PulledRecords:
    """See MessageStore.pull_records. `pull` pulls the same messages one by one."""
    # The kernel looks at fewer entries than `pull` if tags are requested, so it cannot tell where such a pull ends.
    many = None if wanted_tags(tags) else _read_many(store, place, max_messages, set(), max_bytes)
    if many is None:
        return _as_records([], pull(place.queue_offset, max_messages, max_bytes))
    records = _split(many.pulled.body)
    alone = PulledRecords(PullStatus.FOUND, tuple(records), *many.pulled[2:])
    if many.is_full or len(records) == max_messages:
        return alone
    rest_bytes = None if max_bytes is None else max_bytes - len(many.pulled.body)
    try:
        rest = pull(many.pulled.next_begin_offset, max_messages - len(records), rest_bytes)
    # The next message cannot be read. Return the records before it. The next pull reports the error.
    except StoreError:
        return alone
    # `pull` returns at least one record, even if it does not fit.
    if rest_bytes is not None and rest.records and rest.records[0].layout.total_bytes > rest_bytes:
        return alone
    return _as_records(records, rest)


def quick_records(
    store: StoreReader, place: QueuePlace, max_messages: int, tags: str | None, max_bytes: int
) -> PulledBody | None:
    """Return the verified records of a pull, concatenated, or None if `reput.core.query.pull` must read the records.

    See MessageStore.quick_records.
    """
    many = _read_many(store, place, max_messages, wanted_tags(tags), max_bytes, is_alone=True)
    return None if many is None else many.pulled


class _Many(NamedTuple):
    """Verified records, and whether the limit of bytes excluded the next one."""

    pulled: PulledBody
    is_full: bool


def _read_many(
    store: StoreReader,
    place: QueuePlace,
    max_messages: int,
    tags: set[str],
    max_bytes: int | None,
    *,
    is_alone: bool = False,
) -> _Many | None:
    """Return the records of a pull before the newest one, or None if `reput.core.query.pull` must read the records.

    With `is_alone`, also return None if the newest record may be in the answer. Its entry may be half written, and only
    `reput.core.query.pull` can read such entries.
    """
    # Entries of the schedule topic have times in place of tags codes.
    if tags and place.topic == SCHEDULE_TOPIC:
        return None
    try:
        queue = store.queues.queue(place.topic, place.queue_id)
        most = queue.max_queue_offset()
        last = min(most - 1, place.queue_offset + (_MOST_ENTRIES if tags else max_messages))
        stop = min(last, place.queue_offset + _MOST_ENTRIES)
        # In other kinds of queues (5.x), an entry may cover several queue offsets.
        if type(queue) is not ConsumeQueueReader or place.queue_offset >= stop:
            return None
        if is_alone and place.queue_offset + max_messages >= most:
            return None
        kernel = _KERNEL.get()
        if kernel is None:
            if stop - place.queue_offset >= _LEAST_ENTRIES:
                _KERNEL.load()  # for later pulls
            return None
        least = queue.min_queue_offset(store.commit_log.min_offset)
        if place.queue_offset < least:
            return None
        entries = bytearray().join(queue.entry_bytes(place.queue_offset, stop))
        read = _KernelRead(kernel, store.commit_log, place, entries, tags, max_bytes)
        return read.pulled(max_messages, least, most)
    except StoreError:
        return None


def _split(body: bytes | memoryview) -> list[bytes]:
    """Return the records of a body. The kernel has compared the size that each record states with its entry."""
    view, records, position = memoryview(body), list[bytes](), 0
    while position < len(view):
        stop = position + _SIZE.unpack_from(view, position)[0]
        records.append(bytes(view[position:stop]))
        position = stop
    return records


def _as_records(before: list[bytes], pulled: Pulled) -> PulledRecords:
    records = (*before, *(record.record() for record in pulled.records))
    return PulledRecords(PullStatus.FOUND if before else pulled.status, records, *pulled[2:])


class _Kernel:
    """`reput.kernels.queue_records`. It is loaded in a thread, because importing numba takes half a second."""

    def __init__(self) -> None:
        self._kernel: _ReadRecords | None = None
        # If numba's compilation is switched off, the kernel runs as plain Python, which is slower than reading one
        # by one. Then never load it.
        self._is_begun = INTERPRETED
        self._lock = Lock()

    def get(self) -> _ReadRecords | None:
        """Return the kernel; None while it is not loaded."""
        return self._kernel

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
        no_bytes, no_numbers = np.zeros(1, np.uint8), np.zeros(0, np.int64)
        read_records(
            -1, 0, 0, no_bytes, 0, 0, 0, no_bytes, no_numbers, no_bytes, no_numbers, 0, no_bytes, 0,
            no_bytes,
        )  # fmt: skip
        self._kernel = read_records


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
        max_bytes: int | None,
    ) -> None:
        self._kernel, self._log, self._place, self._entries = kernel, log, place, entries
        topic = encode_utf8(place.topic)
        encoded = [encode_utf8(tag) for tag in tags]
        self._topic = _bytes(bytes([min(len(topic), 255)]) + topic)
        self._codes = np.array([hash_code(tag) for tag in tags], np.int64)
        self._tags = _bytes(b"".join(encoded))
        self._tag_at = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        self._is_limited = max_bytes is not None and max_bytes <= _MOST_BYTES
        self._out = np.empty(
            _MOST_BYTES if max_bytes is None else min(max_bytes, _MOST_BYTES), np.uint8
        )

    def pulled(self, max_messages: int, least: int, most: int) -> _Many | None:
        """Return the answer, or None if `reput.core.query.pull` must read the records. Raises StoreError."""
        is_cut = False
        entry = at = count = 0
        stop = len(self._entries) // ENTRY_DTYPE.itemsize
        while entry < stop and count < max_messages:
            offset, size = _PLACE.unpack_from(self._entries, entry * ENTRY_DTYPE.itemsize)
            if at + size > len(self._out):
                # The next record does not fit into the answer, so the answer is complete.
                is_cut = True
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
        pulled = PulledBody(body.data, count, next_offset, least, most)
        return _Many(pulled, is_cut and self._is_limited)

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
    buffer: npt.NDArray[np.uint8] | None = getattr(_of_thread, "work", None)
    if buffer is None:
        buffer = _of_thread.work = np.empty(_WORK_BYTES, np.uint8)
    return buffer


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8)
