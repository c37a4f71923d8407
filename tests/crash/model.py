"""The plain model of a store: a list of the messages, and the effect of each kind of damage on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from reput.base.config import StoreConfig
from reput.engine.writer.put.message import Message, PutResult
from tests.oracle.records import Record


@dataclass(frozen=True)
class Put:
    """A message that was acknowledged."""

    physical_offset: int
    queue_offset: int
    topic: str
    queue_id: int
    body: bytes
    keys: tuple[str, ...]
    stored: int

    @property
    def queue(self) -> tuple[str, int]:
        return self.topic, self.queue_id


@dataclass
class Model:
    """The expected contents of a store.

    puts     the messages in the log, oldest first
    expired  the last expired queue offset of each queue
    lost     queues whose next queue offset is unknown: all their messages have expired, and their files were damaged
    """

    config: StoreConfig
    puts: list[Put] = field(default_factory=list)
    expired: dict[tuple[str, int], int] = field(default_factory=dict)
    lost: set[tuple[str, int]] = field(default_factory=set)

    def add(self, messages: Iterable[Message], results: Iterable[PutResult]) -> None:
        for message, result in zip(messages, results, strict=True):
            put = Put(
                result.physical_offset, result.queue_offset, message.topic, message.queue_id,
                message.body, tuple(message.keys or ()), result.store_timestamp,
            )  # fmt: skip
            if put.queue not in self.lost:
                assert put.queue_offset == self.next_offset(put.queue)
            self.lost.discard(put.queue)
            self.expired.pop(put.queue, None)
            assert not self.puts or put.physical_offset > self.puts[-1].physical_offset
            self.puts.append(put)

    def next_offset(self, queue: tuple[str, int]) -> int:
        for put in reversed(self.puts):
            if put.queue == queue:
                return put.queue_offset + 1
        return self.expired.get(queue, -1) + 1

    def truncate(self, physical_offset: int) -> None:
        """Remove the messages from this offset on."""
        self.puts = [put for put in self.puts if put.physical_offset < physical_offset]

    def expire(self, before: int, log_begin: int) -> None:
        """Remove files whose messages were all stored before this time, oldest first."""
        gone = [put for put in self.puts if put.physical_offset < log_begin]
        self.puts = self.puts[len(gone) :]
        assert all(put.stored < before for put in gone)
        for put in gone:
            self.expired[put.queue] = put.queue_offset
        first = [put for put in self.puts if put.physical_offset < log_begin + self.file_bytes]
        is_last = first == self.puts
        assert is_last or first[-1].stored >= before

    @property
    def file_bytes(self) -> int:
        return self.config.commit_log_file_bytes

    def damage_indexes(self) -> None:
        """Note that queue files are damaged: without messages in the log, only these files show a next queue offset."""
        self.lost |= set(self.expired) - {put.queue for put in self.puts}

    def check(self, records: list[tuple[int, Record]]) -> None:
        """Check that the log holds exactly these messages."""
        assert [_as_put(at, record) for at, record in records] == self.puts


def _as_put(at: int, record: Record) -> Put:
    return Put(
        at, record.queue_offset, record.topic, record.queue_id, bytes(record.body),
        tuple((record.keys or "").split()), record.store_timestamp,
    )  # fmt: skip
