"""A store whose messages were put one second apart, by its own clock."""

from pathlib import Path

from reput.base.config import StoreConfig
from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.io.disk import Disk

FILE_BYTES = 1 << 14
SMALL = StoreConfig(
    commit_log_file_bytes=FILE_BYTES, queue_entries=20, hash_slots=64, index_items=120
)
QUEUES = 3


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Made:
    """A store with messages that were put one second apart."""

    def __init__(
        self, path: Path, settings: WriterSettings | None = None, disk: Disk | None = None
    ) -> None:
        self.path, self.clock = path, Clock()
        self.writer = StoreWriter(path, SMALL, settings, disk, self.clock)
        self.puts: list[PutResult] = []

    def put(self, count: int) -> None:
        for _ in range(count):
            self.clock.now_ms += 1000
            number = len(self.puts)
            message = Message("T", b"x" * 300, [f"k{number}"], queue_id=number % QUEUES)
            self.puts.append(self.writer.put(message))

    def dispatch(self) -> None:
        self.writer.dispatcher.wait(self.writer.end_offset, None)

    def close(self) -> "Made":
        self.writer.close()
        return self

    def log_begin_before(self, timestamp: int) -> int:
        """Return the log's begin without the files whose last message was put before that time."""
        last: dict[int, int] = {}
        for put in self.puts:
            last[put.physical_offset // FILE_BYTES] = put.store_timestamp
        kept = [number for number, newest in last.items() if newest >= timestamp]
        return min(kept, default=max(last)) * FILE_BYTES


def log_begin(store: Path) -> int:
    return min(int(path.name) for path in (store / "commitlog").iterdir())
