"""Trace a message: find all its records, and explain why it was delivered late, twice or never.

Records of one message have its unique key, or state its message id as their origin id. The trace follows unique keys
and origin ids from record to record, until it finds no new records. Of the keys in the property KEYS, it follows only
the requested one. Look-ups by key are as exact and complete as those of `reput query`. Records without an index entry,
such as op messages, are read from their queues (`tracing.searched_store.UnindexedQueues`), up to a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reput.base import checked
from reput.core import KeyPredicate, MessageStore, is_inner_batch, newest_timestamp
from reput.errors import UsageError
from reput.format.commit_log import MessageExt
from reput.format.java_string import joined_surrogates
from reput.format.message_id import spellings
from reput.format.properties import (
    DISCARDED_HALF_TOPIC,
    HALF_TOPICS,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    UNIQ_KEY,
)
from reput.format.real_queue import consumer_group
from reput.wings.inspect.tracing.life import (
    WAITING,
    Event,
    FoundBy,
    Life,
    Role,
    is_for_consumers,
    number_lives,
    role_of,
)
from reput.wings.inspect.tracing.reasons import reasons_of
from reput.wings.inspect.tracing.searched_store import SearchedStore, due_ms, is_queued

MOST_MESSAGES = 100
MOST_ENTRIES = 20_000
_SYSTEM_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, *HALF_TOPICS, DISCARDED_HALF_TOPIC)
# The clocks of brokers may differ by this much, so a retry in another broker's store may seem older than the message.
_CLOCKS_DIFFER_MS = 60_000


@checked
def trace_life(
    stores: Sequence[MessageStore],
    *,
    key: str | None = None,
    message_id: str | None = None,
    topic: str | None = None,
    most_messages: int = MOST_MESSAGES,
    most_entries: int = MOST_ENTRIES,
) -> Life:
    """Return all records of a message in these stores, and the course of its delivery.

    Args:
        stores: Open stores. Records are followed from store to store.
        key: One of a message's KEYS, or its unique key.
        message_id: Instead of `key`: an offset message id or a unique key.
        topic: The topic in which `key` is searched; None for all topics. Related records are followed through all
            topics in any case.
        most_messages: Maximum number of messages per look-up, newest first.
        most_entries: Maximum number of queue entries per store that are read to find records without index entries.

    Returns:
        Events, reasons, and the searched parts of each store.

    Raises:
        UsageError: neither or both of `key` and `message_id` are given, a limit is below 1, or no topic is given and a
            store has no queues.
        StoreAccessError: a file cannot be read.
    """
    if (key is None) == (message_id is None):
        raise UsageError("pass one of key and message_id", arguments=["key", "message_id"])
    if topic is not None and key is None:
        raise UsageError(
            "topic can be combined with key only, not with message_id",
            arguments=["topic", "key", "message_id"],
        )
    for name, most in (("most_messages", most_messages), ("most_entries", most_entries)):
        if most < 1:
            raise UsageError(f"{name} must be at least 1, not {most}", arguments=[name])
    tracer = _Tracer(stores, most_messages, most_entries, topic)
    if key is not None:
        tracer.ask_for_key(key, topic)
    elif message_id is not None:
        tracer.ask_for_id(message_id)
    tracer.follow()
    return tracer.life()


_Place = tuple[int, int, int, bool]
"""Number of the store, physical offset, queue offset, and whether the record is an inner batch."""


def _place(store: int, message: MessageExt) -> _Place:
    """Return the place that identifies a record.

    The messages of an inner batch (5.x) share its physical offset; their queue offsets differ.
    """
    return store, message.physical_offset, message.queue_offset, is_inner_batch(message)


def _names(text: str) -> frozenset[str]:
    """Return a key or id in the spellings that messages may have."""
    return frozenset(map(joined_surrogates, spellings(text)))


class _Tracer:
    def __init__(
        self,
        stores: Sequence[MessageStore],
        most_messages: int,
        most_entries: int,
        topic: str | None,
    ) -> None:
        self._most_messages = most_messages
        self._searched = [SearchedStore(store, most_entries) for store in stores]
        self._topics = {*_SYSTEM_TOPICS, *([topic] if topic else [])}
        of_stores = {name for store in stores for name in store.all_topics()}
        self._topics |= of_stores
        if not of_stores and topic is None:
            where = stores[0].queues.folder
            raise UsageError(
                f"{where}: has no queues that show which topics exist; pass topic",
                arguments=["topic"],
            )
        self._events: dict[_Place, Event] = {}
        self._wanted_keys: set[str] = set()  # Unique keys to look up in the indexes.
        self._asked_keys: set[str] = set()
        self._wanted_origins: set[str] = set()
        self._asked_origins: set[str] = set()
        # The retry queues have already been searched for copies of the messages with these ids.
        self._named: set[str] = set()
        self._unplaced: set[str] = set()  # Ids that no readable record has as its offset id.
        self._unknown: set[str] = set()  # Requested ids without a message in any store.
        self._halves: set[_Place] = set()
        self._asked_for: frozenset[str] = frozenset()  # The requested key or id, in all spellings.
        # A 5.x client can send several messages in one call, as a list. This dict maps the id of each list to the ids
        # of the traced messages in the list.
        self._own_ids: dict[str, set[str]] = {}

    def ask_for_key(self, key: str, topic: str | None) -> None:
        self._asked_for = _names(key)
        topics = tuple(self._topics) if topic is None else (topic,)
        predicate = KeyPredicate(topics, (key,), anywhere=topic is None)
        self._search(predicate, FoundBy.KEY, None if topic is None else {topic})

    def ask_for_id(self, message_id: str) -> None:
        self._asked_for = _names(message_id)
        self._wanted_origins.add(message_id)
        self._fetch_origins(FoundBy.MESSAGE_ID)
        if not self._events:
            self._unknown |= self._asked_for

    def follow(self) -> None:
        """Look up the unique keys and the origin ids of all found messages, until nothing new is found.

        A copy of a message, such as a retry, states the id of the original message as its origin id.

        Queues are read only when the indexes yield nothing more, because reading them is slow.
        """
        while True:
            while self._wanted_keys or self._wanted_origins:
                self._fetch_origins(FoundBy.ORIGIN)
                keys, self._wanted_keys = self._wanted_keys, set()
                if keys:
                    self._asked_keys |= keys
                    topics = tuple(self._topics)
                    predicate = KeyPredicate(topics, keys, anywhere=True, ids_only=True)
                    self._search(predicate, FoundBy.UNIQUE_KEY, self._batch_topics())
            before = len(self._events)
            self._read_op_queues()
            self._read_retry_queues()
            if len(self._events) == before:
                self._add_unread_places()
                return

    def _batch_topics(self) -> set[str] | None:
        """Return the topics whose inner batches (5.x) may contain records of the message; None for all topics."""
        if not self._events:
            return None
        messages = [event.message for event in self._events.values()]
        return {
            name
            for message in messages
            for name in (message.topic, message.properties.get(REAL_TOPIC))
            if name
        }

    def _search(
        self, predicate: KeyPredicate, found_by: FoundBy, batch_topics: set[str] | None
    ) -> None:
        for number, searched in enumerate(self._searched):
            answer = searched.store.search(predicate, batch_topics, limit=self._most_messages)
            searched.add(answer)
            list_ids = {
                message.message_id for message in answer.messages if self._is_of_same_list(message)
            }
            for message in answer.messages:
                if list_ids.isdisjoint(
                    (message.message_id, message.properties.get(ORIGIN_MESSAGE_ID))
                ):
                    self._take(number, message, found_by)

    def _is_of_same_list(self, message: MessageExt) -> bool:
        """Return whether a message is not wanted itself, but was sent in one call with a wanted message (5.x).

        A 5.x client can send a list of messages in one call. Each message then has its own id and the list's id.
        """
        own_ids = message.unique_keys[:-1]
        list_ids = self._own_ids.get(message.unique_key or "")
        return bool(own_ids) and list_ids is not None and list_ids.isdisjoint(own_ids)

    def _take(self, number: int, message: MessageExt, found_by: FoundBy) -> None:
        place = _place(number, message)
        if place in self._events:
            return
        role, properties = role_of(message), message.properties
        self._events[place] = Event(self._searched[number].store.path, message, role, found_by)
        # An op message has no key or origin to follow. Only its body names the half message.
        if role is Role.OP:
            return
        if real_topic := properties.get(REAL_TOPIC):
            self._topics.add(real_topic)
        unique_key, own_ids = properties.get(UNIQ_KEY), message.unique_keys[:-1]
        # A 5.x client can send several messages in one call, as a list. Each message of a list has the property
        # UNIQ_KEY twice: first with the message's own id, then with the list's id. If the user asked for the list's id,
        # all messages of the list belong to the trace.
        if unique_key and own_ids and unique_key not in self._asked_for:
            # This message was sent in a list. Its copies in retry topics have only the list's id, so look up the list's
            # id as well. The look-up also finds the other messages of the list. To skip the other messages, remember
            # the own id of each message that was taken.
            self._own_ids.setdefault(unique_key, set()).update(own_ids)
        self._want_key(unique_key)
        origin = properties.get(ORIGIN_MESSAGE_ID)
        if origin and origin not in self._asked_origins:
            self._wanted_origins.add(origin)

    def _want_key(self, unique_key: str | None) -> None:
        if unique_key and joined_surrogates(unique_key) not in self._asked_keys:
            self._wanted_keys.add(joined_surrogates(unique_key))

    def _fetch_origins(self, found_by: FoundBy) -> None:
        """Find the messages with the wanted origin ids.

        An origin id is an offset id or a unique key. If no store has a message with this offset id, look up the id as a
        unique key.
        """
        origins, self._wanted_origins = self._wanted_origins, set()
        self._asked_origins |= origins
        for origin in sorted(origins):
            has_record = False
            for number, searched in enumerate(self._searched):
                message = searched.store.get_by_offset_id(origin)
                if message is not None:
                    searched.add_place(message)
                    self._take(number, message, found_by)
                    has_record = True
            if not has_record:
                self._unplaced.add(origin)
                self._want_key(origin)

    def _add_unread_places(self) -> None:
        """Report the places of ids whose messages were not found, if they cannot be read."""
        messages = [event.message for event in self._events.values()]
        read = {name for message in messages for name in (message.message_id, message.unique_key)}
        for message_id in sorted(self._unplaced):
            for searched in self._searched if read.isdisjoint(_names(message_id)) else ():
                searched.add_unread(message_id)

    def _read_op_queues(self) -> None:
        for number, searched in enumerate(self._searched):
            halves = [
                event.message
                for place, event in self._events.items()
                if place[0] == number and event.role is Role.HALF and place not in self._halves
            ]
            self._halves.update(_place(number, half) for half in halves)
            for op in searched.unindexed.ops_of(halves) if halves else ():
                self._take(number, op, FoundBy.OP_QUEUE)

    def _read_retry_queues(self) -> None:
        """Find records that name a found message, or the requested id, as their origin."""
        origins = {
            name: (store, event.message)
            for (store, *_), event in self._events.items()
            # The first time that a consumer sends a message back, the message's record is in an ordinary topic. All
            # retries name this record as their origin. So only records in ordinary topics can be origins.
            if event.role in (Role.MESSAGE, Role.COMMITTED)
            for name in (event.message.message_id, event.message.unique_key)
            if name and name not in self._named
        }
        unknown = self._unknown - self._named
        if not origins and not unknown:
            return
        self._named |= origins.keys() | unknown
        since_ms = min((message.store_timestamp for _, message in origins.values()), default=0)
        for number, searched in enumerate(self._searched):
            is_local = all(store == number for store, _ in origins.values())
            start: int | None = None
            if unknown:
                # No store has the original record, so its offset cannot limit the search for copies. Search from the
                # beginning of the log.
                start = 0
            elif is_local:
                # A copy is stored after its original. If all originals are in this store, begin the search
                # at the oldest one.
                start = min(message.physical_offset for _, message in origins.values())
            names = origins.keys() | unknown
            for message in searched.unindexed.naming(names, start, since_ms - _CLOCKS_DIFFER_MS):
                self._take(number, message, FoundBy.ORIGIN_MESSAGE_ID)

    def life(self) -> Life:
        """Return the events, the reasons, and the searched parts of each store.

        Events are in order of time. The reasons explain why the message was delivered late, twice or never.
        """
        places = sorted(self._events, key=lambda place: (self._events[place].stored_ms, *place))
        events: list[Event] = []
        for place in places:
            event, store = self._events[place], self._searched[place[0]].store
            gap = event.stored_ms - events[-1].stored_ms if events else None
            due = due_ms(store, event.message) if event.role in WAITING else None
            queued = is_queued(store, event.message) if is_for_consumers(event.role) else None
            message, group = event.message, None
            if event.role in (Role.RETRY, Role.DEAD_LETTER):
                group = consumer_group(message.topic, message.properties, self._topics)
            events.append(replace(event, gap_ms=gap, due_ms=due, is_queued=queued, group=group))
        events = number_lives(events)
        searched = tuple(store.coverage() for store in self._searched)
        return Life(tuple(events), tuple(reasons_of(events, self._end_ms(events))), searched)

    def _end_ms(self, events: Sequence[Event]) -> int:
        """Return the store time (ms) of the newest message in stores with a delayed or half record of the trace.

        Return 0 if the trace has no such record. A delayed message that has not been delivered is overdue only if the
        message was due before the returned time.
        """
        waiting = {event.store for event in events if event.role in (*WAITING, Role.HALF)}
        stores = [store.store for store in self._searched if store.store.path in waiting]
        ends = (newest_timestamp(store.commit_log, store.end_offset()) for store in stores)
        return max((end for end in ends if end is not None), default=0)
