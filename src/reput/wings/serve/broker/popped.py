"""Find messages that consumers popped and did not acknowledge (5.x).

A popped message is hidden from other consumers of its group for an invisible time. If it is not acknowledged by then,
the broker revives it: it puts a copy into a retry topic.

Mirrors `PopReviveService`, `PopConsumerService` and `ConsumerOrderInfoManager` (tag rocketmq-all-5.3.3). A broker
records its pops in messages of its own: checkpoints and acknowledgements. They wait in the timer until they are due,
then move to the revive topic. With other settings, a broker records its pops in `kvStore/`, a RocksDB database,
instead. For orderly consumption (FIFO), config/ has only the last pop of each queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reput.base import Finding, Kind
from reput.core import MessageStore, facts_of
from reput.engine.messages import queue_messages
from reput.errors import FormatError, StoreError
from reput.format.commit_log import MessageExt
from reput.format.file_names import CONSUMER_ORDER_FILE, KV_STORE_FOLDER
from reput.format.pop import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    POP_FAMILY,
    REVIVE_TOPIC_PREFIX,
    OrderedPop,
    PopCheckpoint,
    PopKey,
    PopRecord,
    decode_ack,
    decode_checkpoint,
    decode_ordered,
    decode_record,
)
from reput.format.properties import REAL_TOPIC, TIMER_TOPIC
from reput.format.real_queue import pop_retry_topics
from reput.io import RocksFolder
from reput.wings.serve.broker.config_file import ConfigFile
from reput.wings.serve.broker.lag import REVIVE_GROUP
from reput.wings.serve.broker.offsets import committed_offsets

_ORDER_TABLE = "table"


@dataclass(frozen=True, slots=True)
class Revived:
    """A message that was not acknowledged in time, so the broker put a copy of it into a retry topic.

    Attributes:
        queue_offset: Queue offset of the popped message.
        retry_topic, retry_queue_offset, retry_physical_offset: Place of the copy, in queue 0; None if the store has no
            copy.
        is_waiting: Whether the group has not popped the copy yet.
    """

    queue_offset: int
    retry_topic: str | None
    retry_queue_offset: int | None
    retry_physical_offset: int | None
    is_waiting: bool


@dataclass(frozen=True, slots=True)
class Popped:
    """Messages that one pop gave to a consumer.

    Attributes:
        group, topic, queue_id: The group, and the queue.
        offsets: Queue offsets of the messages. If the consumer changed a message's invisible time, the message is a
            separate pop.
        unacked: Queue offsets of messages that were neither acknowledged nor revived.
        pop_time: Time of the pop, ms.
        revive_time: Time at which unacknowledged messages are delivered again, ms.
        in_order: Whether it is a pop of orderly consumption (FIFO), which blocks its queue and is never revived.
        revived: Messages that were not acknowledged in time.
    """

    group: str
    topic: str
    queue_id: int
    offsets: tuple[int, ...]
    unacked: tuple[int, ...]
    pop_time: int
    revive_time: int
    in_order: bool = False
    revived: tuple[Revived, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether any message of this pop is neither acknowledged nor popped again."""
        return bool(self.unacked) or any(copy.is_waiting for copy in self.revived)


@dataclass(slots=True)
class _Noted:
    """A checkpoint, and its place (topic, queue id and queue offset) in the revive topic.

    Before the checkpoint is due, it waits in the timer, and `place` is None.
    """

    checkpoint: PopCheckpoint
    place: tuple[str, int, int] | None = None


class PoppedMessages:
    """The pops of an open store. Iteration yields them in the order in which their messages are delivered again.

    Attributes:
        damage: Findings about checkpoints and acknowledgements that cannot be decoded. The list is complete only after
            the iteration.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._committed: dict[tuple[str, str, int], int] = {}
        self.damage: list[Finding] = []

    def __iter__(self) -> Iterator[Popped]:
        """Yield all pops.

        Raises:
            MissingExtraError: Pops or committed offsets are in RocksDB, and rocksdict is not installed.
            FormatError: The file of committed offsets is damaged.
            StoreAccessError: A file cannot be read.
        """
        if self._store.storage.is_local:
            offsets = committed_offsets(Path(self._store.path))
            self._committed = {pop[:3]: pop.queue_offset for pop in offsets}
        pops = [*self._of_messages(), *map(_of_record, self._records())]
        for ordered in self._ordered():
            pops.extend(_of_ordered(ordered))
        yield from sorted(pops, key=lambda pop: (pop.revive_time, pop.group, pop.topic))

    def _of_messages(self) -> Iterator[Popped]:
        checkpoints, acked = self._read_notes()
        newest: dict[tuple[str, str, int, int], tuple[int, int]] = {}
        for noted in checkpoints:
            for place, order in _places(noted.checkpoint):
                # A message may have been popped several times. Only the newest pop counts.
                newest[place] = max(order, newest.get(place, order))
        copies = _Copies(self._store, self._committed)
        rows = []
        for noted in checkpoints:
            checkpoint, key = noted.checkpoint, noted.checkpoint.key
            done = acked.get(key, set()) | checkpoint.acked
            # A message whose invisible time was changed, or that could not be revived, gets a separate checkpoint.
            offsets = tuple(
                place[-1]
                for place, order in _places(checkpoint)
                if order == newest[place]
                or (place[-1] not in done and key.pop_time != newest[place][0])
            )
            unacked = tuple(offset for offset in offsets if offset not in done)
            settled = self._is_settled(noted)
            if offsets:
                rows.append((checkpoint, offsets, unacked, settled))
                if settled is not False and unacked:
                    copies.want(key, unacked)
        copies.find()
        for checkpoint, offsets, unacked, settled in rows:
            key = checkpoint.key
            revived = () if settled is False else copies.revived(key, unacked, bool(settled))
            revived_offsets = {copy.queue_offset for copy in revived}
            yield Popped(
                key.group, key.topic, key.queue_id, offsets,
                tuple(offset for offset in unacked if offset not in revived_offsets),
                key.pop_time, checkpoint.revive_time, revived=revived,
            )  # fmt: skip

    def _read_notes(self) -> tuple[list[_Noted], dict[PopKey, set[int]]]:
        """Return the checkpoints, and the acknowledged queue offsets of each pop."""
        checkpoints: dict[tuple[PopKey, int], _Noted] = {}
        acked: dict[PopKey, set[int]] = {}
        for message in self._notes():
            try:
                if message.tags == CHECKPOINT_TAG:
                    checkpoint = decode_checkpoint(message.body)
                    name = checkpoint.key, checkpoint.puts
                    noted = checkpoints.setdefault(name, _Noted(checkpoint))
                    if message.topic != TIMER_TOPIC:
                        noted.place = message.topic, message.queue_id, message.queue_offset
                elif message.tags in (ACK_TAG, BATCH_ACK_TAG):
                    key, offsets = decode_ack(message.body)
                    acked.setdefault(key, set()).update(offsets)
            except ValueError as error:
                place = f"{message.topic}/{message.queue_id}"
                self.damage.append(
                    Finding(
                        Kind.UNDECODABLE_MESSAGE, place, f"checkpoint or acknowledgement of a pop: {error}",
                        physical_offset=message.physical_offset,
                    )
                )  # fmt: skip
        return list(checkpoints.values()), acked

    def _notes(self) -> Iterator[MessageExt]:
        for topic, queue_id in self._store.list_queues():
            if topic == TIMER_TOPIC:
                for message in queue_messages(self._store, topic, queue_id):
                    if message.properties.get(REAL_TOPIC, "").startswith(REVIVE_TOPIC_PREFIX):
                        yield message
            elif topic.startswith(REVIVE_TOPIC_PREFIX):
                yield from queue_messages(self._store, topic, queue_id)

    def _is_settled(self, noted: _Noted) -> bool | None:
        """Return whether the broker has settled a checkpoint by reviving the checkpoint's unacknowledged messages.

        Return None if the committed offset of the revive group is unknown. All checkpoints up to and including the one
        at the committed offset are settled: unlike other groups, the revive group commits the offset of its last
        message, not the next offset.
        """
        if noted.place is None:
            return False
        topic, queue_id, queue_offset = noted.place
        committed = self._committed.get((REVIVE_GROUP, topic, queue_id))
        return None if committed is None else queue_offset <= committed

    def _ordered(self) -> Iterator[OrderedPop]:
        if not self._store.storage.is_local:
            return
        file = ConfigFile(Path(self._store.path), CONSUMER_ORDER_FILE, is_writable=False)
        try:
            table = file.load().get(_ORDER_TABLE) or {}
            if not isinstance(table, dict):
                raise FormatError(file.path, 0, f"{_ORDER_TABLE} is not a map")
        except FormatError as error:
            self.damage.append(Finding(Kind.FOREIGN_FILE, str(file.path), error.reason))
            return
        for key, queues in table.items():
            for queue_id, value in queues.items() if isinstance(queues, dict) else ():
                try:
                    yield decode_ordered(key, queue_id, value)
                except ValueError as error:
                    detail = f"pops in order of {key}: {error}"
                    self.damage.append(Finding(Kind.FOREIGN_FILE, str(file.path), detail))

    def _records(self) -> Iterator[PopRecord]:
        facts = facts_of(self._store.path, storage=self._store.storage)
        if (folder := facts.local_database(KV_STORE_FOLDER)) is None:
            return
        with RocksFolder(folder, (POP_FAMILY,)) as database:
            for _, value in database.family_items(POP_FAMILY):
                try:
                    yield decode_record(value)
                except ValueError as error:
                    detail = f"a record of a popped message: {error}"
                    self.damage.append(Finding(Kind.FOREIGN_FILE, folder, detail))


class _Copies:
    """The copies of revived messages, which a broker put into retry topics (`PopReviveService.reviveRetry`).

    A copy has the unique key of its message, and a reconsume count (reconsumeTimes) that is higher by one.
    """

    def __init__(self, store: MessageStore, committed: dict[tuple[str, str, int], int]) -> None:
        self._store, self._committed = store, committed
        # For each popped message: its unique key, and the reconsume count of its copy in a retry topic.
        self._of: dict[tuple[PopKey, int], tuple[str, int]] = {}
        self._by_topic: dict[str, dict[tuple[str, int], list[MessageExt]]] = {}

    def want(self, key: PopKey, offsets: tuple[int, ...]) -> None:
        for offset in offsets:
            try:
                message = self._store.get_by_queue(key.topic, key.queue_id, offset)
            except StoreError:
                # The message has expired or is damaged. So its unique key is unknown, and its copy in a retry topic
                # cannot be found.
                continue
            if message.unique_key is not None:
                name = message.unique_key, message.reconsume_times + 1
                self._of[key, offset] = name
                for topic in pop_retry_topics(key.group, key.topic):
                    self._by_topic.setdefault(topic, {})[name] = []

    def find(self) -> None:
        """Find the copies of all messages that were passed to `want`. Read each retry topic once."""
        for topic, by_name in self._by_topic.items():
            for message in queue_messages(self._store, topic, 0):
                copies = by_name.get((message.unique_key or "", message.reconsume_times))
                if copies is not None:
                    copies.append(message)

    def revived(
        self, key: PopKey, offsets: tuple[int, ...], is_settled: bool
    ) -> tuple[Revived, ...]:
        """Return which of the unacknowledged messages at these queue offsets were revived.

        If `is_settled`, the broker has finished the pop's checkpoint, and so has revived all of these messages. If not,
        it has revived the messages that have a copy in a retry topic.
        """
        results = []
        for offset in offsets:
            copy = self._take(key, offset)
            if copy is not None:
                place = key.group, copy.topic, copy.queue_id
                is_waiting = copy.queue_offset >= self._committed.get(place, 0)
                results.append(
                    Revived(offset, copy.topic, copy.queue_offset, copy.physical_offset, is_waiting)
                )
            elif is_settled:
                results.append(Revived(offset, None, None, None, is_waiting=False))
        return tuple(results)

    def _take(self, key: PopKey, offset: int) -> MessageExt | None:
        name = self._of.get((key, offset))
        for topic in pop_retry_topics(key.group, key.topic) if name is not None else ():
            copies = self._by_topic[topic].get(name) if name is not None else None
            if copies:
                return copies.pop(0)
        return None


def _places(
    checkpoint: PopCheckpoint,
) -> Iterator[tuple[tuple[str, str, int, int], tuple[int, int]]]:
    """Yield the place of each message of a checkpoint, with a sort key: newer checkpoints have higher keys.

    A place is group, topic, queue id and queue offset.
    """
    key = checkpoint.key
    for offset in checkpoint.offsets:
        yield (key.group, key.topic, key.queue_id, offset), (key.pop_time, checkpoint.puts)


def _of_record(record: PopRecord) -> Popped:
    offsets = (record.queue_offset,)
    return Popped(
        record.group, record.topic, record.queue_id, offsets, offsets, record.pop_time,
        record.pop_time + record.invisible_ms,
    )  # fmt: skip


def _of_ordered(ordered: OrderedPop) -> Iterator[Popped]:
    """Group the messages by the time from which they can be popped again. Yield one pop per time.

    Messages that were popped together have different times only if the consumer has changed the time of some of them.
    """
    for time in sorted(set(ordered.visible.values())):
        offsets = tuple(offset for offset in ordered.offsets if ordered.visible[offset] == time)
        yield Popped(
            ordered.group, ordered.topic, ordered.queue_id, offsets,
            tuple(offset for offset in offsets if offset not in ordered.acked), ordered.pop_time, time, in_order=True,
        )  # fmt: skip
