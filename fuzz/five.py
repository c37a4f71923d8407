"""Read mutated files of RocketMQ 5.x: batch queues, extension files, timer logs, DLedger logs, inner batches."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path

from fuzz.allowed import allowed
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.core.query.inner_batch import inner_records, unwrap
from reput.core.queues.reader import BatchQueueReader, ExtensionFiles
from reput.core.store.topics_file import batch_topics
from reput.engine.five.compacted import CompactedLog, CompactedQueue
from reput.engine.writer.recovery.batch_queues import BatchQueueFiles
from reput.format.commit_log import MessageExt, decode_located, encode, locate
from reput.format.consume_queue import BATCH_ENTRY_BYTES
from reput.format.consume_queue_ext import address_of, decode_unit, encode_unit
from reput.format.file_names import offset_file_name
from reput.format.host import Host
from reput.format.pop import decode_ack, decode_checkpoint, decode_ordered, decode_record
from reput.format.rocksdb_config import (
    GROUPS_PREFIX_V2,
    OFFSETS_PREFIX_V2,
    TOPICS_PREFIX_V2,
    decode_offset_v2,
    decode_offsets_v1,
    decode_settings,
)
from reput.format.rocksdb_index import decode_item
from reput.format.rocksdb_queue import decode_end, decode_value, entry_key, queue_offset_of
from reput.format.tiered import (
    decode_local_item,
    decode_local_items,
    decode_tiered_header,
    decode_tiered_items,
    decode_tiered_slot,
)
from reput.format.timer_log import decode_timer_check, decode_timer_unit
from reput.format.untrusted_json import parse_java_json
from reput.io.open_files import OpenFiles
from reput.io.storage import LOCAL
from tests.golden.stores import GoldenStore, StoreNotHereError, unpack

_FILE_BYTES = 46 * 40
_MOST_ENTRIES = 200
_MOST_UNITS = 100
_HOST = Host("127.0.0.1", 10911)


class Target:
    MAX_BYTES = 3 * _FILE_BYTES

    def __init__(self, folder: Path) -> None:
        self._queue = folder / "batchconsumequeue" / "T" / "0"
        self._units = folder / "consumequeue_ext" / "T" / "0"
        self._store = folder / "ledger"
        self._log = self._store / "dledger-n0" / "data"
        self._compacted = folder / "compaction" / "compactionLog" / "T" / "0"
        for path in (self._queue, self._units, self._log, self._compacted, self._store / "config"):
            path.mkdir(parents=True)

    @staticmethod
    def seeds() -> list[bytes]:
        seeds = []
        with tempfile.TemporaryDirectory() as folder:
            for name, pattern in (
                ("five_batch", "batchconsumequeue/*/*/*"),
                ("five_ext", "consumequeue_ext/*/*/*"),
                ("five_dledger", "dledger-n0/data/*"),
                ("five_timer", "timerlog/*"),
                ("five_batch", "config/topics.json"),
                ("five_compaction", "compaction/compactionLog/*/*/*"),
            ):
                try:
                    store = GoldenStore(name, unpack(name, Path(folder)))
                except StoreNotHereError:
                    continue
                for path in sorted(store.path.glob(pattern))[:10]:
                    seeds.append(path.read_bytes()[: Target.MAX_BYTES])
        return seeds

    def run(self, data: bytes) -> None:
        for folder in (self._queue, self._units, self._log, self._compacted):
            for path in folder.iterdir():
                path.unlink()
        for start in range(0, len(data), _FILE_BYTES):
            part = data[start : start + _FILE_BYTES]
            for folder in (self._queue, self._units, self._log, self._compacted):
                (folder / offset_file_name(start)).write_bytes(part)
        with allowed():
            _read_queue(BatchQueueReader(str(self._queue)), len(data) // BATCH_ENTRY_BYTES)
        files = BatchQueueFiles(self._queue, _FILE_BYTES)
        for before in (0, 1 << 20, 1 << 62):
            end = files.end_before(before)
            assert -1 <= end.max_physical_offset < before
            assert end.entries <= len(data) // BATCH_ENTRY_BYTES
        units = ExtensionFiles(str(self._units), OpenFiles(LOCAL.open))
        for position in range(0, len(data), max(7, len(data) // _MOST_UNITS)):
            unit = units.unit(address_of(position))
            assert unit is None or unit.size_bytes <= len(data)
            decode_timer_unit(data, position)
        decode_timer_check(data)
        decode_value(data)
        decode_end(data, data[:16])
        number = queue_offset_of(data, data[:-8])
        assert number is None or data == entry_key(data[:-8], number)
        (self._store / "config" / "topics.json").write_bytes(data)
        batch_topics(str(self._store))
        unit = decode_unit(data)
        assert unit is None or encode_unit(unit) == data[: unit.size_bytes]
        with allowed():
            log = CommitLogReader(StoreLog(self._store))
            walk = LogWalk(log, 0)
            places = [record.physical_offset for record in walk]
            assert places == sorted(set(places))
        with allowed():
            half = len(data) // 2
            list(decode_offsets_v1(data[:half], data[half:]))
            offset = decode_offset_v2(OFFSETS_PREFIX_V2 + data[:-8], data[-8:])
            assert offset is None or len(data) > 14
            for prefix in (b"", TOPICS_PREFIX_V2, GROUPS_PREFIX_V2):
                decode_settings(prefix + data[:half], data[half:], prefix)
        with allowed():
            compacted = CompactedLog(CompactedQueue("T", 0, str(self._compacted)))
            places = [record.physical_offset for record in compacted]
            assert places == sorted(set(places))
        for decode in (
            decode_tiered_slot, decode_local_items, decode_local_item, decode_checkpoint,
            decode_ack, decode_record,
        ):  # fmt: skip
            with suppress(ValueError):
                decode(data)
        with suppress(ValueError):
            pop = decode_ordered("T@g", "0", parse_java_json(data))
            assert pop.acked <= set(pop.offsets) == set(pop.visible)
        with suppress(ValueError):
            header = decode_tiered_header(data, len(data))
            assert header.items <= len(data)
        if (item := decode_item(data)) is not None:
            assert len(item.names) <= len(data)
        assert len(decode_tiered_items(data)) <= len(data)
        with allowed():
            inner = unwrap(_message(data))
            assert sum(22 + len(one.body) + len(one.properties_bytes) for one in inner) == len(data)
            record = encode(_message(data))
            made = inner_records(record, locate(record, 0, len(record)))
            assert [decode_located(*one).body for one in made] == [one.body for one in inner]


def _read_queue(queue: BatchQueueReader, entries: int) -> None:
    end = queue.max_queue_offset()
    with allowed():
        found = [number for number, _ in islice(queue.numbered(0, end), _MOST_ENTRIES)]
        assert found == sorted(set(found))
        assert len(found) <= entries
    for queue_offset in (0, 1, end - 1, end, 1 << 40):
        with allowed():
            first, stop = queue.span(queue_offset)
            assert first <= queue_offset < stop
            assert queue.entry(queue_offset).is_written


def _message(body: bytes) -> MessageExt:
    return MessageExt(
        "T", 0, 0, 0, len(body), 0, 128, 0, 0, _HOST, 0, _HOST, 0, 0, body, b""
    )  # fmt: skip
