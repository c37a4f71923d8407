"""Read mutated ConsumeQueue files and checkpoints. Readers and inspections must come to a sensible end."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fuzz.allowed import allowed
from reput.core.queues.reader import ConsumeQueueReader
from reput.core.queues.store_queues import ConsumeQueueSetReader
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.file_names import offset_file_name
from reput.wings.inspect.inspection import inspect
from tests.golden.stores import GoldenStore, unpack

_STORES = ("extremes", "tricky")
_FILE_BYTES = 2000
_SEEDS = 20


class Target:
    MAX_BYTES = 3 * _FILE_BYTES

    def __init__(self, folder: Path) -> None:
        self._store, self._copy = folder / "store", folder / "copy"
        self._checkpoint = folder / "checkpoint"
        self._queue = self._store / "consumequeue" / "T" / "0"
        self._queue.mkdir(parents=True)

    @staticmethod
    def seeds() -> list[bytes]:
        seeds = []
        with tempfile.TemporaryDirectory() as folder:
            for name in _STORES:
                store = GoldenStore(name, unpack(name, Path(folder)))
                seeds.append((store.path / "checkpoint").read_bytes())
                for queue in sorted(store.path.glob("consumequeue/*/*"))[:_SEEDS]:
                    data = b"".join(path.read_bytes() for path in sorted(queue.iterdir()))
                    seeds.append(data[: Target.MAX_BYTES])
        return seeds

    def run(self, data: bytes) -> None:
        for path in self._queue.iterdir():
            path.unlink()
        for start in range(0, len(data), _FILE_BYTES):
            path = self._queue / offset_file_name(start)
            path.write_bytes(data[start : start + _FILE_BYTES])
            with allowed():
                inspect(path)
        for copy in (self._copy, self._checkpoint):
            copy.write_bytes(data)
            with allowed():
                inspect(copy)
        with allowed():
            _read(ConsumeQueueSetReader(self._store).queue("T", 0), len(data) // ENTRY_BYTES)


def _read(queue: ConsumeQueueReader, entries: int) -> None:
    end = queue.max_queue_offset()
    assert 0 <= end <= entries
    for queue_offset in range(-1, entries + 2):
        with allowed():
            assert queue.entry(queue_offset).is_written
            assert 0 <= queue_offset < entries
    for physical_offset in (0, 1, 2**40):
        assert 0 <= queue.min_queue_offset(physical_offset) <= end
