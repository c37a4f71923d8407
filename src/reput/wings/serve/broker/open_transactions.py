"""Find half messages that wait for a decision: neither committed nor rolled back.

Mirrors `TransactionalMessageServiceImpl.fillOpRemoveMap` and `.check` (tags rocketmq-all-4.9.3 and
rocketmq-all-5.3.3). An op message records that half messages were decided. It has the same queue id,
and its body lists their queue offsets (one in 4.9, several with commas in 5.x). Before a broker asks the producer, it
appends a copy of the half message with a higher TRANSACTION_CHECK_TIMES. The broker writes no op message for the
earlier message. Instead, it moves its own consumer offset in the half topic past that message.

A broker of 5.4 may keep transactions in RocksDB (`TransMessageRocksDBStore`). Its half messages and op messages have
topics of their own, and an op message states the physical offset of the half message. The database has the undecided
half messages, and the number of checks. If the broker stops asking, only its item in the database is deleted. So the
topics decide which messages are open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reput.core import MessageStore, facts_of
from reput.engine.messages import queue_messages
from reput.engine.writer import MessageDatabase
from reput.format.commit_log import MessageExt
from reput.format.properties import (
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    OP_TOPICS,
    REAL_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
)
from reput.format.rocksdb_state import HalfItem
from reput.format.transactions import check_times, decided_offsets, decided_places
from reput.wings.serve.broker.offsets import committed_offsets
from reput.wings.serve.broker.transactions import GROUP


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An undecided half message.

    Attributes:
        message: Its newest copy, in the topic of half messages.
        checks: How often the broker has asked the producer; None if unknown.
    """

    message: MessageExt
    checks: int | None

    @property
    def real_topic(self) -> str | None:
        """The topic to which the message is delivered after a commit."""
        return self.message.properties.get(REAL_TOPIC)


def open_transactions(store: MessageStore) -> Iterator[OpenTransaction]:
    """Yield the undecided half messages, by queue and queue offset.

    A half message counts as decided in three cases: an op message lists the half message, a message with the same
    unique key has a higher TRANSACTION_CHECK_TIMES, or the half message is before the committed offset of the group
    CID_RMQ_SYS_TRANS. (The committed offset is used only if config/ of a local store has it.) All other half messages
    are undecided. Expired op messages are ignored.

    Raises:
        MissingExtraError: The offsets or transactions are in RocksDB, and rocksdict is not installed.
        FormatError: The file of offsets or a database is damaged.
        StoreAccessError: A file cannot be read.
    """
    starts = _passed_offsets(store)
    for topic, queue_id in _places(store):
        if topic == HALF_TOPIC:
            for message in _undecided(store, queue_id, starts.get(queue_id, 0)):
                yield OpenTransaction(message, check_times(message.properties))
    yield from _undecided_in_rocksdb(store)


def _places(store: MessageStore) -> list[tuple[str, int]]:
    """Return the queues of the store, and those of transactions even if the store lacks them.

    Reading a queue that is lost although the log has messages of it is an error.
    """
    return sorted({*store.list_queues(), *((topic, 0) for topic in (*HALF_TOPICS, *OP_TOPICS))})


def _passed_offsets(store: MessageStore) -> dict[int, int]:
    """Return, for each queue of HALF_TOPIC, the queue offset before which no half message is open."""
    if not store.storage.is_local:
        return {}
    return {
        entry.queue_id: entry.queue_offset
        for entry in committed_offsets(Path(store.path))
        if (entry.group, entry.topic) == (GROUP, HALF_TOPIC)
    }


def _undecided(store: MessageStore, queue_id: int, start: int) -> list[MessageExt]:
    decided = {
        offset
        for message in queue_messages(store, OP_TOPIC, queue_id)
        for offset in decided_offsets(message.body)
    }
    undecided: dict[int, MessageExt] = {}
    # For each unique key, the highest number of checks, and the queue offsets of the copies with this number.
    newest: dict[str, tuple[int, list[int]]] = {}
    for message in queue_messages(store, HALF_TOPIC, queue_id, start):
        offset, times = message.queue_offset, check_times(message.properties)
        if message.unique_key is not None:
            most, copies = newest.get(message.unique_key, (times, []))
            if times < most:
                continue
            if times > most:
                for copy in copies:
                    undecided.pop(copy, None)
                copies = []
            newest[message.unique_key] = times, [*copies, offset]
        if offset not in decided:
            undecided[offset] = message
    return list(undecided.values())


def _undecided_in_rocksdb(store: MessageStore) -> Iterator[OpenTransaction]:
    """Yield the undecided half messages of transactions in RocksDB: by queue and queue offset."""
    items: dict[int, HalfItem] = {}
    for folder in facts_of(store.path, storage=store.storage).message_databases:
        with MessageDatabase(folder) as database:
            items |= {item.physical_offset: item for item in database.half_items()}
    places = _places(store)
    ops = (
        message
        for topic, queue_id in places
        if topic == ROCKSDB_OP_TOPIC
        for message in queue_messages(store, topic, queue_id)
    )
    decided = {offset for message in ops for _, offset in decided_places(message)}
    for topic, queue_id in places:
        if topic == ROCKSDB_HALF_TOPIC:
            for message in queue_messages(store, topic, queue_id):
                item = items.get(message.physical_offset, None)
                if message.physical_offset not in decided:
                    yield OpenTransaction(message, None if item is None else item.checks)
