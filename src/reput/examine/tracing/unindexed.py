"""Records that no index entry leads to, found by reading their queues: op messages, and retries by their origin.

An op message holds the queue offset of its half message, and lies after it in the log: its queue is read from there
on, until each half message has its op message. A record that names its origin is looked for in the retry, dead letter
and schedule queues, from the origin on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.findings import Finding, Kind
from reput.format.commit_log import MessageExt, decode_located
from reput.format.consume_queue import PRE_BLANK
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    OP_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
)
from reput.format.transactions import decided_offsets
from reput.log.reader import LocatedRecord
from reput.query.message_store import MessageStore
from reput.queues.queue_index import LostEntriesError

_ORIGIN = ORIGIN_MESSAGE_ID.encode()


class UnindexedQueues:
    """Reads the queues of one store, at most so many entries in all.

    Attributes:
        problems: what could not be read
        unread: entries that were not read, for there were too many
    """

    def __init__(self, store: MessageStore, most_entries: int) -> None:
        self._store, self._left = store, most_entries
        self.problems: list[Finding] = []
        self.unread = 0

    def ops_of(self, halves: Sequence[MessageExt]) -> Iterator[MessageExt]:
        """The first op message of each half message of this store that has one."""
        for queue_id in sorted({half.queue_id for half in halves}):
            of_queue = [half for half in halves if half.queue_id == queue_id]
            wanted = {half.queue_offset for half in of_queue}
            start = min(half.physical_offset for half in of_queue)
            for record in self._records(OP_TOPIC, queue_id, start):
                message = decode_located(record.data, record.layout)
                decided = wanted.intersection(decided_offsets(message.body))
                if decided:
                    yield message
                    wanted -= decided
                if not wanted:
                    break

    def naming(
        self, ids: Collection[str], start: int | None, since_ms: int
    ) -> Iterator[MessageExt]:
        """Records that name one of these ids as their origin.

        Args:
            start: physical offset from which they can be; None where that is not known in this store, and
            since_ms: the store time is
        """
        for topic, queue_id in self._store.list_queues():
            if topic != SCHEDULE_TOPIC and not topic.startswith(
                (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)
            ):
                continue
            for record in self._records(topic, queue_id, start, since_ms):
                if _names_origin(record):
                    message = decode_located(record.data, record.layout)
                    if message.properties.get(ORIGIN_MESSAGE_ID) in ids:
                        yield message

    def _records(
        self, topic: str, queue_id: int, start: int | None, since_ms: int = 0
    ) -> Iterator[LocatedRecord]:
        store = self._store
        try:
            queue = store.queues.queue(topic, queue_id)
            if start is None:
                position = store.offset_by_time(topic, queue_id, since_ms)
            else:
                position = queue.min_queue_offset(max(start, store.commit_log.min_offset))
            stop = queue.max_queue_offset()
        except (MessageNotFoundError, CorruptMessageError, LostEntriesError) as error:
            self._note(error)
            return
        while position < stop:
            try:
                for number, entry in queue.numbered(position, stop):
                    if not self._left:
                        self.unread += stop - number
                        return
                    self._left -= 1
                    position = max(position, number + 1)
                    if entry != PRE_BLANK:
                        yield from self._located(entry.physical_offset, entry.size)
                return
            except LostEntriesError as error:
                self._note(error)
                position = max(error.resume_offset, position + 1)
            except (MessageNotFoundError, StoreNotFoundError):  # expired meanwhile
                return

    def _located(self, physical_offset: int, size: int) -> Iterable[LocatedRecord]:
        log = self._store.commit_log
        try:
            return (log.locate(physical_offset, size),)
        except CorruptMessageError as error:
            self._note(error)
        except MessageNotFoundError:  # expired, or lost with its file, which the search reports
            pass
        return ()

    def _note(self, error: Exception) -> None:
        if isinstance(error, CorruptMessageError):
            found = Finding(
                Kind.UNREADABLE_RECORD,
                error.path,
                error.reason,
                error.offset,
                error.physical_offset,
            )
        elif isinstance(error, LostEntriesError):
            found = Finding.of_error(Kind.QUEUE_GAP, error)
        else:  # there is no such queue
            return
        if found not in self.problems:
            self.problems.append(found)


def _names_origin(record: LocatedRecord) -> bool:
    """Whether a record's properties hold the property's name; most do not, and are not parsed."""
    _, data, layout = record
    start, stop = layout.properties_position, layout.properties_position + layout.properties_bytes
    return data.find(_ORIGIN, start, stop) >= 0
