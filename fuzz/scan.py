"""Walk CommitLog bytes with the kernels and in plain Python. Both must give the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fuzz.allowed import allowed
from fuzz.logs import MAX_BYTES, log_seeds, write_log
from reput.base.findings import Finding
from reput.core.log.ends import recovered_end
from reput.core.log.kernel_scan import end_within, scan_with_kernel
from reput.core.log.reader import CommitLogReader
from reput.core.log.scan import FileScan, ScanBuffers
from reput.core.log.sources import StoreLog
from reput.core.log.verdict import DEFAULT_RULES, DispatchRules, ScanMode
from reput.core.log.walk import LogWalk
from reput.format.commit_log import decode
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.format.index_file import index_key, key_hash
from reput.format.java_string import decode_utf8
from reput.format.properties import decode_properties, index_keys, tags_code
from reput.kernels.jit import new_rows

_MULTI = DispatchRules(multi_dispatch=True, lmq=True)
_DELAYS_MS = list(DEFAULT_RULES.delays_ms)
_STEP_BYTES = 700
_WINDOW_BYTES = 256
_MOST_KEYS = 1 << 15  # One record may have so many, so less is not enough.


class Row(NamedTuple):
    """The fields of a record that both walks report. `place` is its position in the log."""

    place: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    tags_code: int
    key_hashes: tuple[int, ...]


class Target:
    MAX_BYTES = MAX_BYTES
    seeds = staticmethod(log_seeds)

    def __init__(self, folder: Path) -> None:
        self._store = folder / "store"
        self._roomy, self._tight = ScanBuffers(), ScanBuffers()
        self._tight.messages = new_rows(2, MESSAGE_DTYPE)
        self._tight.key_hash = np.empty(_MOST_KEYS, np.int32)
        self._tight.multi = new_rows(_MOST_KEYS, MULTI_DTYPE)

    def run(self, data: bytes) -> None:
        log = CommitLogReader(StoreLog(write_log(self._store, data)))
        try:
            rows = list(_walked(log))
            assert rows == list(self._scanned(log))
            assert rows == list(self._scanned_in_steps(log))
            self._salvage(log, rows)
            _compare_searches(log, rows)
            assert recovered_end(log, log.min_offset) == _recovered_end_by_kernel(log)
        finally:
            log.close()

    def _scanned(self, log: CommitLogReader) -> Iterator[Row]:
        end_offset = 0
        for file in log.files:
            # The buffer has exactly the bytes of the file, so a kernel that reads on raises IndexError.
            self._roomy.data = np.empty(file.size, np.uint8)
            scan = FileScan(
                file,
                file.start,
                file.end,
                ScanMode.BROKER,
                end_offset=end_offset,
                buffers=self._roomy,
            )
            yield from _rows(scan, file.start)
            end_offset = scan.end_offset

    def _scanned_in_steps(self, log: CommitLogReader) -> Iterator[Row]:
        end_offset = 0
        for file in log.files:
            position, finished = file.start, False
            while not finished and position < file.end:
                self._tight.data = np.empty(_WINDOW_BYTES, np.uint8)
                stop = min(position + _STEP_BYTES, file.end)
                scan = FileScan(
                    file,
                    position,
                    stop,
                    ScanMode.BROKER,
                    _MULTI,
                    end_offset=end_offset,
                    buffers=self._tight,
                )
                yield from _rows(scan, position)
                assert scan.end.position > position or scan.end.finished
                position, finished = scan.end.position, scan.end.finished
                end_offset = scan.end_offset

    def _salvage(self, log: CommitLogReader, rows: list[Row]) -> None:
        """Check that a salvage finds the records of the ordinary walk up to the first damage.

        After damage it may find other records, and records that hid others may be missing.
        """
        for file in log.files:
            scan = FileScan(file, file.start, file.end, ScanMode.SALVAGE, buffers=self._roomy)
            places = {row.place for row in _rows(scan, file.start)}
            first_damage = min((lost.start for lost in scan.damage), default=file.end)
            for row in rows:
                if file.start <= row.place < first_damage:
                    assert row.place in places


def _walked(log: CommitLogReader) -> Iterator[Row]:
    end_offset = 0
    for record in LogWalk(log, log.min_offset):
        message = decode(record.data, record.layout.position)
        properties = decode_properties(decode_utf8(message.properties_bytes))
        keys = index_keys(properties)
        if message.transaction == "rollback" or message.physical_offset < end_offset:
            keys = []
        if keys:
            end_offset = message.physical_offset
        yield Row(
            record.physical_offset, message.size_bytes, message.topic, message.queue_id,
            message.queue_offset, message.physical_offset, message.store_timestamp,
            tags_code(message.topic, properties, message.store_timestamp, _DELAYS_MS),
            tuple(key_hash(index_key(message.topic, key)) for key in keys),
        )  # fmt: skip


def _rows(scan: FileScan, start: int) -> Iterator[Row]:
    """Yield rows of a scan from `start`. Their places follow from the sizes and the damage."""
    rows: list[Row] = []
    for batch in scan.batches():
        keys = iter(batch.key_hash.tolist())
        for message in batch.messages.tolist():
            offset, queue_offset, timestamp, tags, size, _, queue, key_count = message
            topic, queue_id = batch.queues[queue]
            hashes = tuple(next(keys) for _ in range(key_count))
            rows.append(
                Row(0, size, topic, queue_id, queue_offset, offset, timestamp, tags, hashes)
            )
    damage: dict[int, Finding] = {lost.start: lost for lost in scan.damage}
    position = start
    for row in rows:
        while position in damage:
            position += damage[position].length
        yield row._replace(place=position)
        position += row.size


def _compare_searches(log: CommitLogReader, rows: list[Row]) -> None:
    hashes = {key for row in rows for key in row.key_hashes[:1]}
    for file in log.files:
        walked = [record.keyed() for record in LogWalk(log, file.start, file.end)]
        expected = [
            record.physical_offset for record in walked if any(map(record.has_key_hash, hashes))
        ]
        with allowed():
            found, _, _, times = scan_with_kernel(log, file.start, file.end, hashes)
            assert found == expected[::-1]
            if times is not None:
                stored = [record.store_timestamp for record in walked]
                assert (min(stored), max(stored)) == (times.least, times.most)


def _recovered_end_by_kernel(log: CommitLogReader) -> int:
    end = log.files_end
    for file in log.files:
        end, is_passed = end_within(file, file.start)
        if not is_passed:
            break
    return end
