"""Query a message store by physical offset, queue offset, message id, or key and time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack

from reput.base import Finding, Time, checked, late, milliseconds, optional_milliseconds
from reput.core.log.record import LocatedRecord
from reput.core.query.answers import (
    ANY_OFFSET,
    IndexQuestion,
    PulledBody,
    PulledRecords,
    PullResult,
    PullStatus,
    QueryMessageResult,
    QueryOffsetResult,
    QueryProgress,
    QueryRecords,
    QueryResult,
    UnreadableMessages,
    answer_of,
    coverage_of_id,
)
from reput.core.query.evidence import joined
from reput.core.query.pull import Pulled, QueuePlace, get_by_queue, pull, queue_times
from reput.core.query.queue_ends import LostQueueError, QueueEnds
from reput.core.query.search import (
    KeyPredicate,
    Search,
    TagsPredicate,
    Unindexed,
    find_end,
    search_steps,
)
from reput.core.queues.queue_index import QueueReader, finding_of
from reput.core.store.store_reader import ReaderOptions, StoreReader
from reput.core.store.topics_file import BatchTopics
from reput.errors import (
    CorruptMessageError,
    FormatError,
    MessageNotFoundError,
    StoreError,
    UsageError,
)
from reput.format.commit_log import MessageExt, decode_located
from reput.format.index_file import HashedTopics
from reput.format.message_id import decode_offset_id
from reput.format.properties import (
    DISCARDED_HALF_TOPIC,
    HALF_TOPICS,
    LMQ_PREFIX,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    lite_topic_of,
)

if TYPE_CHECKING:
    from reput.core.query.compat import BrokerView, KnownEnd

# Topics in which a broker keeps messages of other topics, and why a message is there. `notes_on` quotes the reason.
_REASONS = {
    SCHEDULE_TOPIC: "it waits for its delay to pass",
    TIMER_TOPIC: "it waits for its delivery time, or was recalled",
    **dict.fromkeys(HALF_TOPICS, "its transaction is open, or was not committed"),
    DISCARDED_HALF_TOPIC: "the broker stopped asking whether its transaction is committed",
}
WAITING_TOPICS = frozenset(_REASONS)
_Answer = TypeVar("_Answer")
# Only searches by time need it.
_window_evidence = late("reput.core.query.window_evidence", "WindowEvidence")
_AnyPulled = TypeVar("_AnyPulled", Pulled, PulledRecords)
OnUnreadable = Literal["fail", "skip"]
_Skipped = list[UnreadableMessages] | None
# One pull skips at most this many ranges of unreadable messages.
_MOST_SKIPPED = 16
# Limits of a search in `WAITING_TOPICS`: number of messages found, and bytes of a range without an IndexFile. Longer
# ranges are skipped.
_MOST_WAITING = 16
_MOST_SCANNED_BYTES = 2 << 20
# Number of steps after which `quick_query` gives up.
_QUICK_STEPS = 256


def notes_on(topic: str, put_aside: Iterable[MessageExt]) -> tuple[str, ...]:
    """Return notes on messages of this topic that a broker put into other topics: one note per other topic."""
    places = {message.topic for message in put_aside if message.properties.get(REAL_TOPIC) == topic}
    return tuple(
        f"A message with this key that was sent to {topic} is in {place}: {reason}. "
        "`reput trace` shows its history."
        for place, reason in _REASONS.items()
        if place in places
    )


class MessageStore(StoreReader):
    """An open store, created by `open_store`. Only one thread at a time may use it.

    A store is a context manager: it is closed at the end of the `with` block.
    """

    @checked
    def __init__(
        self,
        path: str | PathLike[str],
        known_end: KnownEnd | None = None,
        **settings: Unpack[ReaderOptions],
    ) -> None:
        """Open a store. All readers of a store share `known_end`."""
        super().__init__(path, **settings)
        self._planner = self.key_planner()
        self._known_end = known_end
        self._ends = QueueEnds(self)
        self._hashed_topics = HashedTopics()
        self._batch_topics = BatchTopics(self.path, self.storage, self.log_storage)

    @cached_property
    def _view(self) -> BrokerView:
        # Few callers ask what a broker would answer.
        from reput.core.query.compat import BrokerView

        return BrokerView(self, self._known_end)

    @checked
    def get(self, physical_offset: int) -> MessageExt:
        """Return the message that begins at a physical offset.

        Raises:
            MessageNotFoundError: no message begins there, or it has expired.
            CorruptMessageError: the message is damaged, or this part of the log is lost.
            StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
        """
        return self._at(physical_offset).message()

    @checked
    def locate(self, physical_offset: int) -> LocatedRecord:
        """Return the record that begins at a physical offset. Raises as `get` does."""
        return self._at(physical_offset).alone()

    def _at(self, physical_offset: int) -> LocatedRecord:
        def locate() -> LocatedRecord:
            try:
                return self.commit_log.locate(physical_offset)
            except MessageNotFoundError:
                if (lost := self._lost_at(physical_offset)) is not None:
                    raise lost.as_error() from None
                raise

        return self._retry_after_expiry(locate)

    def _lost_at(self, physical_offset: int) -> Finding | None:
        """Return the finding for the lost part of the log that may have had a message at an offset, else None.

        The file is scanned if its damage is not known yet.
        """
        log = self.commit_log
        if physical_offset < log.min_offset:
            return None
        file, lost = log.file_at(physical_offset), log.holes()
        if file is not None:
            lost += self.known_ranges.learn(file).damage
        for part in lost:
            if part.start <= physical_offset < part.stop:
                return part
        end = self.known_ranges.end()
        return self.lost_end(end) if physical_offset >= end else None

    @checked
    def get_record(self, physical_offset: int) -> bytes:
        """Return the stored bytes of the record at a physical offset. Raises as `get` does.

        In RocketMQ: selectOneMessageByOffset.
        """
        return self.locate(physical_offset).data

    @checked
    def get_by_queue(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """Return the message with a queue offset in a queue of a topic.

        Raises:
            MessageNotFoundError: the message has expired, or was not put yet.
            CorruptMessageError: the message cannot be read, or its entry leads to another message.
            FormatError: the entry is lost, although the queue or the log has later messages of the queue.
            StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
        """

        def get() -> MessageExt:
            try:
                _, data, layout = get_by_queue(self, topic, queue_id, queue_offset)
            except MessageNotFoundError:
                # A missing entry is an error only if the log has the message.
                if queue_offset >= self.queues.queue(topic, queue_id).max_queue_offset():
                    self._ends.check(topic, queue_id)
                else:
                    self._ends.check_begin(topic, queue_id)
                    self._ends.check_gap(topic, queue_id, queue_offset)
                raise
            return decode_located(data, layout)

        return self._of_queue(topic, queue_id, get)

    @checked
    def query(
        self,
        topic: str | None,
        key: str,
        begin: Time | None = None,
        end: Time | None = None,
        limit: int | None = None,
        after: int | None = None,
    ) -> QueryResult:
        """Return all messages of a topic that have this key, newest first. The answer is exact and complete.

        Args:
            topic: None for all topics of the log
            key: a unique key, or one of the parts of KEYS, as it is written; hash collisions are never returned.
                `get_by_id` and `find_by_id` also take ids in lower case
            begin, end: store times, both inclusive: milliseconds since 1970, or datetimes with a timezone
            limit: maximum number of messages; the result's cursor then states where to continue
            after: a cursor; only older messages are returned

        Ranges without an IndexFile are scanned. For topics with batch queues (5.x), the whole log is scanned for inner
        batches, because no index has their messages. Such a message has the physical offset of its batch. The result's
        coverage reports scanned and unreadable ranges.

        Raises UsageError, StoreAccessError, StoreChangedError.
        """
        return self.find_records(topic, key, begin, end, limit, after).decoded()

    @checked
    def find_records(
        self,
        topic: str | None,
        key: str,
        begin: Time | None = None,
        end: Time | None = None,
        limit: int | None = None,
        after: int | None = None,
        max_bytes: int | None = None,
        any_case: bool = False,
    ) -> QueryRecords:
        """Return the result of `query` with records in place of messages.

        The records have at most `max_bytes` together, but at least one is returned. With `any_case`, an id in lower
        case also finds messages with it in upper case.
        """
        bounds = _bounds(begin, end, limit, after)
        topics = None if topic is None else (topic,)
        predicate = self._wanted_key(topic, key, any_case=any_case)
        answer = self._search(predicate, topics, **bounds, max_bytes=max_bytes)
        return self._noted(answer, topic, key, **bounds)

    @checked
    def find_by_tags(
        self,
        topic: str,
        tags: str,
        begin: Time | None = None,
        end: Time | None = None,
        limit: int | None = None,
        after: int | None = None,
        max_bytes: int | None = None,
    ) -> QueryRecords:
        """Return the records of a topic with these tags, newest first, as `find_records` does for a key.

        The log is scanned, because a proof of an IndexFile is about keys: items for tags, which only brokers of 5.4 and
        later put, may be missing.
        """
        bounds = _bounds(begin, end, limit, after)
        return self._search(TagsPredicate(topic, tags), (topic,), **bounds, max_bytes=max_bytes)

    @checked
    def query_steps(
        self,
        topic: str | None,
        key: str,
        begin: Time | None = None,
        end: Time | None = None,
        limit: int | None = None,
        after: int | None = None,
        max_bytes: int | None = None,
        any_case: bool = False,
    ) -> Iterator[QueryProgress | QueryResult]:
        """Yield a query's messages as they are found, and finally the result of `query`. Raises as `query` does.

        `max_bytes` and `any_case` are those of `find_records`.
        """
        self.check_open()
        bounds = _bounds(begin, end, limit, after)
        topics = None if topic is None else (topic,)
        predicate = self._wanted_key(topic, key, any_case=any_case)
        unindexed = self._unindexed(topics)
        steps = search_steps(
            self.commit_log, self._planner, predicate, unindexed, **bounds, max_bytes=max_bytes
        )
        return (
            (
                self._noted(step, topic, key, **bounds) if isinstance(step, QueryRecords) else step
            ).decoded()
            for step in steps
        )

    def _noted(
        self, answer: QueryRecords, topic: str | None, key: str, **bounds: int | None
    ) -> QueryRecords:
        """Add notes: on a search in all topics, whether these are known; on an empty answer, undelivered messages.

        A broker keeps undelivered messages in internal topics. Long ranges without an IndexFile are not searched for
        these messages, because that would be slow.
        """
        if topic is None and (on_topics := self.notes_on_topics()):
            notes = (*answer.coverage.notes, *on_topics)
            return answer._replace(coverage=replace(answer.coverage, notes=notes))
        if answer.records or topic is None or topic in WAITING_TOPICS:
            return answer
        if topic.startswith(LMQ_PREFIX):
            note = f"Keys of messages in {topic} are those of their own topic{_parent_of(topic)}."
            return answer._replace(coverage=replace(answer.coverage, notes=(note,)))
        places = WAITING_TOPICS.intersection(self.queues.topics())
        if not places:
            return answer
        search = Search(
            self.commit_log, KeyPredicate(tuple(places), (key,), anywhere=True),
            begin=bounds.get("begin"), end=bounds.get("end"), after=bounds.get("after"),
            limit=_MOST_WAITING, most_scanned_bytes=_MOST_SCANNED_BYTES,
        )  # fmt: skip
        elsewhere = self._retry_after_expiry(lambda: search.run(self._planner), looks_itself=True)
        notes = notes_on(topic, (record.message() for record in elsewhere.records))
        return answer._replace(coverage=replace(answer.coverage, notes=notes))

    def _unindexed(self, batch_topics: Collection[str] | None) -> Unindexed:
        """Describe the messages that a query must find without an index.

        These are messages in inner batches of the topics `batch_topics` (None means all topics), and records with
        several unique keys, of which the index has only the last.
        """
        topics = self._batch_topics.names()
        inner_topics = topics if batch_topics is None else topics.intersection(batch_topics)
        return Unindexed(self.known_ranges, inner_topics, self.may_have_replaced_ids)

    def _all_topics(self) -> HashedTopics:
        topics = HashedTopics(self.all_topics())
        # Keep the previous object if the topics are the same: it has already computed the hashes of their names.
        if topics != self._hashed_topics:
            self._hashed_topics = topics
        return self._hashed_topics

    def _wanted_key(self, topic: str | None, key: str, *, any_case: bool = False) -> KeyPredicate:
        topics = self._all_topics() if topic is None else (topic,)
        return KeyPredicate(topics, (key,), anywhere=topic is None, any_case=any_case)

    @checked
    def find_by_id(self, message_id: str, topic: str | None = None) -> QueryResult:
        """Return the message with this offset id, or all messages with this unique key, newest first.

        32 hexadecimal digits may be an offset id or a unique key. They are taken as an offset id only if the record at
        the offset in the id has this id. A unique key is searched for in `topic`, or in all topics of
        the log. The id may be in lower case. Raises as `query` does.
        """
        message = self.get_by_offset_id(message_id)
        if message is not None:
            return answer_of(self, message)
        topics = self._all_topics() if topic is None else (topic,)
        if not topics:
            raise UsageError(
                f"{self.queues.folder}: no topics to search; pass the topic",
                arguments=["topic"],
            )
        batch_topics = None if topic is None else topics
        records = self._search(KeyPredicate(topics, (message_id,), ids_only=True), batch_topics)
        result = self._noted(records, topic, message_id).decoded()
        # Without a message, the id may be that of an unreadable message. Then the answer is incomplete.
        place = None if result.messages else coverage_of_id(self, message_id)
        if place is None or place.is_complete:
            return result
        return replace(result, coverage=joined([result.coverage, place]))

    @checked
    def get_by_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """Return the newest message that `find_by_id` finds.

        Raises MessageNotFoundError, and the errors of `query`.
        """
        result = self.find_by_id(message_id, topic)
        if not result.messages:
            raise MessageNotFoundError(f"{self.path}: no message with the id {message_id!r}")
        return result.messages[0]

    @checked
    def query_offset(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryOffsetResult:
        """Return the answer of the broker's IndexService.queryOffset, quirks included.

        See `reput.core.query.compat`. Raises StoreAccessError, and UsageError where the broker throws.
        """
        self.check_open()
        return self._view.query_offset(IndexQuestion(topic, key, max_num, begin, end))

    @checked
    def query_message(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryMessageResult:
        """Return the answer of the broker's DefaultMessageStore.queryMessage, collisions included."""
        question = IndexQuestion(topic, key, max_num, begin, end)
        return self._retry_after_expiry(lambda: self._view.query_message(question))

    @checked
    def query_records(
        self, topic: str, key: str, max_num: int, begin: int, end: int, max_bytes: int,
        before: int = ANY_OFFSET,
    ) -> tuple[QueryMessageResult, list[bytes], bool]:  # fmt: skip
        """Return the stored records of the messages that `query_message` finds.

        Messages at the physical offset `before` or later are skipped. If all records together exceed `max_bytes`, only
        the newest records are returned, but at least one. The last value of the result states whether records were
        omitted for this reason. Raises CorruptMessageError, and the errors of `query_message`.
        """
        question = IndexQuestion(topic, key, max_num, begin, end, before)
        return self._retry_after_expiry(lambda: self._view.query_records(question, max_bytes))

    def quick_query(
        self, topic: str, key: str, max_num: int, begin: int, end: int, max_bytes: int,
        before: int = ANY_OFFSET,
    ) -> tuple[QueryMessageResult, list[bytes], bool] | None:  # fmt: skip
        """Return the answer of `query_records` in bounded time; None if it may take longer.

        It takes longer with many IndexFiles, a frequent key or large messages. It also takes longer if another process
        has written to the log since its end was last searched for.
        """
        question = IndexQuestion(topic, key, max_num, begin, end, before)
        return self._retry_after_expiry(
            lambda: self._view.quick_records(question, max_bytes, _QUICK_STEPS)
        )

    def broker_end(self) -> int:
        """Return the offset at which a broker that starts now would end the log.

        Finding it is slow, so it is kept for later calls of `query_message` until the log grows.
        """
        self._view.begin()
        return self._retry_after_expiry(self._view.end)

    @checked
    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        tags: str | None = None,
        *,
        on_corrupt: OnUnreadable = "fail",
    ) -> PullResult:
        """Return messages of a queue from a queue offset on, in order. `tags` is "a || b", or None for all messages.

        A message is returned only if its tag is one of these; an equal hash is not enough. The result's status states
        whether messages were found, and its `next_begin_offset` where to continue.

        With `on_corrupt="fail"`, the result ends before the first unreadable message, and a pull from there raises an
        error. The pull after the unreadable messages begins at the error's `resume_offset`. With `on_corrupt="skip"`,
        unreadable messages are skipped as a broker skips them, and the result's `unreadable` reports them.

        Raises:
            MessageNotFoundError: the queue does not exist.
            CorruptMessageError: a message cannot be read, or an entry leads to a message of another queue or queue
                offset.
            FormatError: an entry is empty although later entries exist, or the queue lacks entries for messages that
                are in the log (before its first entry, after its last entry, or in place of its pre-blank entries).
            StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
            UsageError: an argument is invalid.
        """

        def pulled_at(begin: int, skipped: _Skipped) -> Pulled:
            return self._pull(topic, queue_id, begin, max_messages, tags, None, skipped)

        place = QueuePlace(topic, queue_id, queue_offset)
        pulled = _pull_past(pulled_at, place, on_corrupt)
        messages = tuple(decode_located(data, layout) for _, data, layout in pulled.records)
        return PullResult(pulled.status, messages, *pulled[2:])

    @checked
    def pull_records(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        tags: str | None = None,
        max_bytes: int | None = None,
        *,
        on_corrupt: OnUnreadable = "fail",
    ) -> PulledRecords:
        """Return the messages of `pull` as stored records: at most `max_bytes`, but at least one record."""
        from reput.core.query.pull_records import pull_records

        def records_at(position: int, skipped: _Skipped) -> PulledRecords:
            def plain(begin: int, most: int, most_bytes: int | None) -> Pulled:
                return self._pull(topic, queue_id, begin, most, tags, most_bytes, skipped)

            # Refresh the log, and check that the store is open.
            self._retry_after_expiry(lambda: None)
            return pull_records(
                self, QueuePlace(topic, queue_id, position), max_messages, tags, max_bytes, plain
            )

        return _pull_past(records_at, QueuePlace(topic, queue_id, queue_offset), on_corrupt)

    def quick_records(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        tags: str | None,
        max_bytes: int,
    ) -> PulledBody | None:
        """Return the records that `pull_records` would return, concatenated. Return None if the pull may take long.

        A pull may take long if it reaches the queue's end or a damaged message. Call `pull_records` then.
        """
        from reput.core.query.pull_records import quick_records

        # Refresh the log, and check that the store is open.
        self._retry_after_expiry(lambda: None)
        place = QueuePlace(topic, queue_id, queue_offset)
        return quick_records(self, place, max_messages, tags, max_bytes)

    def _pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        tags: str | None,
        max_bytes: int | None,
        skipped: _Skipped,
    ) -> Pulled:
        """Pull once. If `skipped` is a list, messages that are missing at an end of the queue are reported there."""

        def read() -> Pulled:
            result = pull(
                self, topic, queue_id, queue_offset, max_messages, tags, max_bytes,
                self._ends.check_gap,
            )  # fmt: skip
            try:
                if result.status == PullStatus.NO_NEW_MESSAGE:
                    self._ends.check(topic, queue_id)
                elif result.status == PullStatus.OFFSET_TOO_SMALL:
                    self._ends.check_begin(topic, queue_id)
            except FormatError as error:
                end = error.resume_offset = result.next_begin_offset
                if skipped is None:
                    raise
                # Messages that were skipped at the queue's end are the cause.
                if skipped and skipped[-1].end == end:
                    return result
                skipped.append(UnreadableMessages(topic, queue_id, end, end, finding_of(error)))
            return result

        try:
            return self._of_queue(topic, queue_id, read)
        except LostQueueError as error:
            if skipped is None:
                raise
            # A broker takes a lost queue for an empty one.
            place = topic, queue_id, queue_offset
            skipped.append(UnreadableMessages(*place, queue_offset, finding_of(error)))
            is_empty = queue_offset <= 0
            status = PullStatus.NO_NEW_MESSAGE if is_empty else PullStatus.OFFSET_TOO_LARGE
            return Pulled(status, [], 0, 0, 0)

    @checked
    def check_begin(self, topic: str, queue_id: int) -> None:
        """Raise FormatError if the log has messages of a queue that precede the queue's first entry (see QueueEnds)."""
        self.check_open()
        self._ends.check_begin(topic, queue_id)

    @checked
    def check_end(self, topic: str, queue_id: int) -> None:
        """Raise FormatError if the newest messages of a queue, or their entries, are lost (see QueueEnds)."""
        self.check_open()
        self._ends.check(topic, queue_id)

    @checked
    def check_later(self, topic: str, queue_id: int, before: int | None = None) -> bool:
        """Raise FormatError if the log has messages after the last entry of a queue (see QueueEnds).

        Messages at or after the physical offset `before` may lack entries. Return whether the log was searched to its
        end.
        """
        self.check_open()
        return self._ends.check_later(topic, queue_id, before)

    @checked
    def lost_end(self, log_end: int) -> Finding | None:
        """Return a finding if the log was once longer than now, else None. See `Planner.lost_end`."""
        # `segments` refreshes the log and the index, so that `lost_end` compares their current states.
        self._planner.segments()
        return self._planner.lost_end(log_end)

    @checked
    def min_queue_offset(self, topic: str, queue_id: int, *, check: bool = True) -> int:
        """Return the queue offset of a queue's first message that has not expired. Raises as `pull` does.

        Without `check`, return the queue offset of the first remaining entry. It is too high if earlier entries were
        lost whose messages are still in the log.
        """

        def find() -> int:
            if check:
                self._ends.check_begin(topic, queue_id)
            return self.queues.queue(topic, queue_id).min_queue_offset(self.commit_log.min_offset)

        return self._of_queue(topic, queue_id, find) if check else self._retry_after_expiry(find)

    @checked
    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that a queue's next message gets. Raises as `pull` does."""

        def find() -> int:
            return self.queues.queue(topic, queue_id).max_queue_offset()

        return self._of_queue(topic, queue_id, find)

    @checked
    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: Time, *, check: bool = True
    ) -> int:
        """Return the queue offset of a queue's first message stored at or after a time (ms), or the queue's end.

        No message stored since then has a lower queue offset, even if the clock was set back: if an earlier message
        that cannot be read may have been stored since then, this raises. A call scans the log
        files whose store times are not known yet, and keeps these times for later calls. For `check` see
        `min_queue_offset`. Raises as `pull` does.

        In RocketMQ: getOffsetInQueueByTime.
        """
        time = milliseconds(timestamp)

        def find() -> int:
            log_begin = self.commit_log.min_offset
            times = queue_times(self, topic, queue_id)
            offset, queue = times.first_since(time, log_begin), times.queue
            if not check or offset <= 0:
                return offset
            self._check_lost(queue, range(offset), time, None)
            # If the queue has lost its first entries, the wanted message may be before the first remaining entry. The
            # slow check for lost entries is needed only if `offset` is the offset of the first remaining entry.
            if offset <= queue.min_queue_offset(log_begin):
                self._ends.check_begin(topic, queue_id)
            else:
                self._check_before(queue, offset)
            if offset >= queue.max_queue_offset():
                # The queue may have lost its last entries.
                self._ends.check(topic, queue_id)
            return offset

        return self._of_queue(topic, queue_id, find) if check else self._retry_after_expiry(find)

    def _check_before(self, queue: QueueReader, queue_offset: int) -> None:
        """Raise FormatError or CorruptMessageError if the message before a queue offset cannot be read.

        A search by time steps over such messages, although they may have been stored at or after the time.
        """
        log = self.commit_log
        with suppress(MessageNotFoundError):  # A pre-blank entry, or it has expired.
            entry = queue.entry(queue_offset - 1)
            try:
                log.locate(entry.physical_offset, entry.size)
            except MessageNotFoundError as error:
                if entry.physical_offset >= log.min_offset:
                    reason, offset = str(error), entry.physical_offset
                    raise CorruptMessageError(log.source.name, 0, reason, offset) from None

    def _check_lost(
        self, queue: QueueReader, span: range, begin: int | None, end: int | None
    ) -> None:
        """Raise CorruptMessageError if lost messages in a range of queue offsets may be of a window of time."""
        if not self.commit_log.holes() and not self.known_ranges.damage():
            return
        window = _window_evidence()(self, lambda *_: True, begin, end)
        if (lost := window.lost_in(queue, span)) is not None:
            raise lost.as_error()

    @checked
    def end_offset_by_time(
        self, topic: str, queue_id: int, timestamp: Time, *, check: bool = True
    ) -> int:
        """Return the queue offset after the queue's last message that was stored at or before a time (ms).

        If there is no such message, return the queue's first offset. With `check`, raise if a later message that cannot
        be read may have been stored until then.

        Raises as `pull` does.
        """
        time = milliseconds(timestamp)

        def find() -> int:
            times = queue_times(self, topic, queue_id)
            offset, queue = times.end_until(time, self.commit_log.min_offset), times.queue
            if check:
                most = queue.max_queue_offset()
                if offset >= most:
                    # The queue may have lost its last entries.
                    self._ends.check(topic, queue_id)
                self._check_lost(queue, range(offset, most), None, time)
            return offset

        return self._of_queue(topic, queue_id, find) if check else self._retry_after_expiry(find)

    @checked
    def spans_by_time(self, topic: str, queue_id: int, begin: int, end: int) -> list[range]:
        """Return ranges of queue offsets that contain every message stored between two times (ms), newest range first.

        Both times are inclusive. If clocks were set back, messages from outside this window may lie between messages
        from inside it. The ranges exclude most of the messages from outside. Raises as `pull` does.
        """
        return self._retry_after_expiry(
            lambda: queue_times(self, topic, queue_id).spans(begin, end)
        )

    def topics(self) -> list[str]:
        """Return the topics that have ConsumeQueues, sorted.

        Raises StoreAccessError, and StoreNotFoundError if the store is gone.
        """
        return self._retry_after_expiry(self.queues.topics)

    @checked
    def list_queues(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every ConsumeQueue, or of one topic's queues, sorted.

        Raises StoreAccessError, and StoreNotFoundError if the store is gone.
        """
        return self._retry_after_expiry(lambda: self.queues.list(topic))

    def begin_offset(self) -> int:
        """Return the physical offset of the first byte that has not expired. Raises StoreAccessError.

        In RocketMQ: getMinOffset, getMinPhyOffset.
        """
        return self._retry_after_expiry(lambda: self.commit_log.min_offset)

    def end_offset(self) -> int:
        """Return the physical offset at which the log currently ends, which is the offset of the next message.

        Raises StoreAccessError, StoreChangedError.

        In RocketMQ: getMaxPhyOffset.
        """
        return self._retry_after_expiry(lambda: find_end(self.commit_log, self._planner.segments()))

    def search(
        self,
        wanted: KeyPredicate,
        batch_topics: Collection[str] | None = None,
        **bounds: int | None,
    ) -> QueryResult:
        """Return all messages that match `wanted`, newest first.

        Args:
            wanted: a condition on the keys of messages, such as `KeyPredicate`
            batch_topics: topics whose inner batches are searched, None for all
            bounds: as in `query`, which raises the same errors
        """
        return self._search(wanted, batch_topics, **bounds).decoded()

    def _search(
        self, predicate: KeyPredicate, batch_topics: Collection[str] | None, **bounds: int | None
    ) -> QueryRecords:
        unindexed = self._unindexed(batch_topics)

        def search() -> QueryRecords:
            return unindexed.search(self.commit_log, predicate, **bounds).run(self._planner)

        return self._retry_after_expiry(search, looks_itself=True)

    def _of_queue(self, topic: str, queue_id: int, read: Callable[[], _Answer]) -> _Answer:
        """Return the result of `read`, which reads a queue. Raise LostQueueError if this queue is lost."""

        def attempt() -> _Answer:
            try:
                return read()
            except MessageNotFoundError:
                self._ends.check_missing(topic, queue_id)
                raise

        return self._retry_after_expiry(attempt)

    def _retry_after_expiry(
        self, read: Callable[[], _Answer], *, looks_itself: bool = False
    ) -> _Answer:
        """Return the result of `read`. If `read` fails because files of the log have expired, call it again.

        looks_itself  whether `read` itself refreshes the log, as `Planner.segments` does
        """
        self.check_open()
        while True:
            if not looks_itself:
                self.commit_log.refresh()
            begin = self.commit_log.min_offset
            try:
                return read()
            except StoreError:
                self.commit_log.refresh()
                # If no file has expired since the first attempt, the error has another reason.
                if self.commit_log.min_offset == begin:
                    raise

    @checked
    def get_by_offset_id(self, message_id: str) -> MessageExt | None:
        """Return the message with an offset id; None if it does not exist. Raises StoreAccessError."""
        try:
            store_host, physical_offset = decode_offset_id(message_id)
            message = self._retry_after_expiry(lambda: self.commit_log.get(physical_offset))
        except (ValueError, MessageNotFoundError, CorruptMessageError):
            return None
        # A unique key may look like an offset id. Take `message_id` as an offset id only if the record at the offset in
        # `message_id` states the same store host and the same offset.
        is_same = message.store_host == store_host and message.physical_offset == physical_offset
        return message if is_same else None


def _pull_past(
    pull_at: Callable[[int, _Skipped], _AnyPulled], place: QueuePlace, on_corrupt: OnUnreadable
) -> _AnyPulled:
    """Return the first result of a pull that does not begin at unreadable messages.

    `pull_at` pulls from a queue offset, once. With "fail", its errors are raised.
    """
    if on_corrupt == "fail":
        return pull_at(place.queue_offset, None)
    skipped: list[UnreadableMessages] = []
    position = place.queue_offset
    while True:
        try:
            pulled = pull_at(position, skipped)
            break
        except FormatError as error:
            end = error.resume_offset
            if end is None or end <= position or len(skipped) == _MOST_SKIPPED:
                raise
            queue = place.topic, place.queue_id
            skipped.append(UnreadableMessages(*queue, position, end, finding_of(error)))
            position = end
    status = pulled.status
    if status is PullStatus.NO_NEW_MESSAGE and position > place.queue_offset:
        status = PullStatus.NO_MATCHED_MESSAGE
    return pulled._replace(status=status, unreadable=tuple(skipped))


def _parent_of(queue_name: str) -> str:
    lite = lite_topic_of(queue_name)
    return "" if lite is None else f": query {lite[0]}"


def _bounds(
    begin: Time | None, end: Time | None, limit: int | None, after: int | None
) -> dict[str, int | None]:
    times = {"begin": optional_milliseconds(begin), "end": optional_milliseconds(end, is_end=True)}
    return {**times, "limit": limit, "after": after}
