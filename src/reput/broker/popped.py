"""Messages that consumers popped and did not acknowledge (5.x), from the broker's notes of them.

Mirrors `PopReviveService` and `PopConsumerService` (tag rocketmq-all-5.3.3): checkpoints wait in the timer until they
are due and then lie in the revive topic, where acknowledgements are, too; or all is in `kvStore/`, a RocksDB database.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from reput.errors import MessageNotFoundError
from reput.files.rocksdb import RocksFolder
from reput.findings import Finding, Kind
from reput.format.commit_log import MessageExt
from reput.format.pop import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    POP_FAMILY,
    REVIVE_TOPIC_PREFIX,
    PopCheckpoint,
    PopKey,
    PopRecord,
    decode_ack,
    decode_checkpoint,
    decode_record,
)
from reput.format.properties import REAL_TOPIC, TIMER_TOPIC
from reput.query.message_store import MessageStore
from reput.queues.rocksdb_database import is_database
from reput.store.answers import PullStatus

_AT_ONCE = 512
_KV_FOLDER = "kvStore"


@dataclass(frozen=True, slots=True)
class Popped:
    """Messages that one pop gave to a consumer.

    Attributes:
        group, topic, queue_id: whose, and of which queue
        offsets: queue offsets of the messages
        unacked: of these, those that nobody acknowledged
        pop_time, revive_time: when they were popped, and are delivered again if they are not acknowledged (ms)
    """

    group: str
    topic: str
    queue_id: int
    offsets: tuple[int, ...]
    unacked: tuple[int, ...]
    pop_time: int
    revive_time: int


class PoppedMessages:
    """Those of an open store; iterate over them, in order of the time at which they are delivered again.

    Attributes:
        damage: notes that could not be read; right once the iteration is exhausted
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.damage: list[Finding] = []

    def __iter__(self) -> Iterator[Popped]:
        """Raises StoreAccessError; MissingExtraError where they are in RocksDB and rocksdict is not installed."""
        found = [*self._of_messages(), *map(_of_record, self._records())]
        yield from sorted(found, key=lambda one: (one.revive_time, one.group, one.topic))

    def _of_messages(self) -> Iterator[Popped]:
        checkpoints: dict[PopKey, PopCheckpoint] = {}
        acked: dict[PopKey, set[int]] = {}
        for message in self._notes():
            try:
                if message.tags == CHECKPOINT_TAG:
                    checkpoint = decode_checkpoint(message.body)
                    checkpoints[checkpoint.key] = checkpoint
                elif message.tags in (ACK_TAG, BATCH_ACK_TAG):
                    key, offsets = decode_ack(message.body)
                    acked.setdefault(key, set()).update(offsets)
            except ValueError as error:
                place = f"{message.topic}/{message.queue_id}"
                self.damage.append(
                    Finding(
                        Kind.UNDECODABLE_MESSAGE, place, f"a note of popped messages: {error}",
                        physical_offset=message.physical_offset,
                    )
                )  # fmt: skip
        for key, checkpoint in checkpoints.items():
            done = acked.get(key, set()) | checkpoint.acked
            unacked = tuple(offset for offset in checkpoint.offsets if offset not in done)
            yield Popped(
                key.group, key.topic, key.queue_id, checkpoint.offsets, unacked, key.pop_time,
                checkpoint.revive_time,
            )  # fmt: skip

    def _notes(self) -> Iterator[MessageExt]:
        for topic, queue_id in self._store.list_queues():
            if topic == TIMER_TOPIC:
                for message in self._messages(topic, queue_id):
                    if message.properties.get(REAL_TOPIC, "").startswith(REVIVE_TOPIC_PREFIX):
                        yield message
            elif topic.startswith(REVIVE_TOPIC_PREFIX):
                yield from self._messages(topic, queue_id)

    def _messages(self, topic: str, queue_id: int) -> Iterator[MessageExt]:
        try:
            position = self._store.min_queue_offset(topic, queue_id)
        except MessageNotFoundError:
            return
        while True:
            found = self._store.pull(topic, queue_id, position, _AT_ONCE)
            yield from found.messages
            if found.status is not PullStatus.FOUND or found.next_begin_offset <= position:
                return
            position = found.next_begin_offset

    def _records(self) -> Iterator[PopRecord]:
        folder = os.path.join(self._store.path, _KV_FOLDER)
        if not self._store.storage.is_local or not is_database(folder, self._store.storage):
            return
        with RocksFolder(folder, (POP_FAMILY,)) as database:
            for _, value in database.family_items(POP_FAMILY):
                try:
                    yield decode_record(value)
                except ValueError as error:
                    detail = f"a record of a popped message: {error}"
                    self.damage.append(Finding(Kind.FOREIGN_FILE, folder, detail))


def _of_record(record: PopRecord) -> Popped:
    offsets = (record.queue_offset,)
    return Popped(
        record.group, record.topic, record.queue_id, offsets, offsets, record.pop_time,
        record.pop_time + record.invisible_ms,
    )  # fmt: skip
