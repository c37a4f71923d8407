"""Answer requests for messages by key or by offset, and for the offsets, times and entries of queues.

Mirrors `QueryMessageProcessor` and parts of `AdminBrokerProcessor` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from reput.base import looks_like_seconds
from reput.core import ANY_OFFSET, QueryMessageResult, facts_of
from reput.engine.writer import has_keys_in_rocksdb
from reput.errors import MessageNotFoundError
from reput.format.commit_log import decode
from reput.format.index_file import KEY_TYPE, TAG_TYPE, UNIQUE_TYPE, tag_key
from reput.format.java_string import parse_int64
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.remoting.commands import Command, FieldError, Refusal, ResponseCode
from reput.wings.serve.remoting.handling import Answer, InThread, Peer, answers
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.rights import AccessError

_BY_UNIQUE_KEY = "_UNIQUE_KEY_QUERY"
_UPPER = "upper"
_DEFAULT_MOST = 32  # The default of a broker's defaultQueryMaxNum.
_MOST_ENTRIES = 1 << 14
# The fields with which clients of 5.4 ask for one type of entries, and for the entries after an earlier answer.
_INDEX_TYPE, _LAST_KEY = "indexType", "lastKey"
_MOST_SHOWN = 64  # Characters of a malformed field in an error message.


class Reading:
    """Answers requests for messages from one broker's store."""

    def __init__(self, broker: ServedBroker, most_exact: int | None = None) -> None:
        """Answer requests from the store of `broker`.

        If `most_exact` is a number, queries by key are exact and return at most this many messages.
        """
        self._broker, self._store, self._most_exact = broker, broker.store, most_exact
        self._most_bytes = broker.limits.answer_bytes
        # IndexFiles lack keys that a broker of 5.4 keeps in RocksDB, so queries by key scan the log.
        self._has_keys_in_rocksdb = has_keys_in_rocksdb(facts_of(broker.store.path))

    @answers(RequestCode.QUERY_MESSAGE)
    def _query(self, request: Command, peer: Peer) -> Answer:
        page = _Page.of(request)
        most = self._most_exact
        if most is None and self._has_keys_in_rocksdb:
            # As `IndexRocksDBStore` does, return at most maxMsgsNumBatch messages.
            most = min(max(request.int32("maxNum"), 1), self._store.config.max_query_messages)
        return self._plain(request, page) if most is None else self._exact(request, page, most)

    def _plain(self, request: Command, page: _Page) -> Answer:
        if page.is_by_tags and not self._has_tags():
            raise FieldError(
                f"{_INDEX_TYPE} {TAG_TYPE}: the IndexFiles of this store have no tags; pull with a subscription to the "
                "tag, or have the store served with exact queries"
            )
        key, most = request.text("key"), request.int32("maxNum")
        # Like a broker, ignore the client's maxNum in a query by unique key (`QueryMessageProcessor`).
        if request.optional_text(_BY_UNIQUE_KEY) == "true":
            most = _DEFAULT_MOST
        question = (
            request.text("topic"), tag_key(key) if page.is_by_tags else key, most,
            request.int64("beginTimestamp"), request.int64("endTimestamp"), self._most_bytes, page.before,
        )  # fmt: skip

        def answer(answered: tuple[QueryMessageResult, list[bytes], bool]) -> Command:
            result, records, is_cut = answered
            # A client continues after the last message of a page, so the newest message comes first.
            if page.is_paged:
                records.reverse()
            # The index finds messages by a hash of topic and key, so a found message may belong to another topic. Check
            # the client's rights for the topic of each message.
            return self._records(
                request,
                request.rights.readable(records),
                result.index_last_update_timestamp,
                result.index_last_update_physical_offset,
                is_cut,
            )

        def work() -> Command:
            self._broker.wait_dispatched()  # The wanted message may be so new that the index lacks it.
            return answer(self._store.query_records(*question))

        # Answer a quick query here, in the event loop. In a thread, it takes several times as long, because the thread
        # waits for the interpreter's lock.
        is_quick = self._broker.is_quick and self._broker.wait_dispatched(timeout_s=0)
        result = self._store.quick_query(*question) if is_quick else None
        return InThread(work) if result is None else answer(result)

    def _has_tags(self) -> bool:
        with self._store.reader() as reader:
            return reader.index_tags_from is not None

    def _exact(self, request: Command, page: _Page, most: int) -> InThread:
        question = (
            request.text("topic"), request.text("key"), max(request.int64("beginTimestamp"), 0),
            request.int64("endTimestamp"), most, page.after,
        )  # fmt: skip

        def work() -> Command:
            with self._store.reader() as reader:
                find = reader.find_by_tags if page.is_by_tags else reader.find_records
                result = find(*question, max_bytes=self._most_bytes)
            # A client cannot see that an answer is incomplete, so the request fails.
            if not result.is_complete:
                lost = result.coverage.unreadable[0]
                raise Refusal(f"the answer is incomplete: {lost}")
            newest = result.records[0].message() if result.records else None
            return self._records(
                request,
                request.rights.readable(record.data for record in result.records),
                newest.store_timestamp if newest else 0,
                newest.physical_offset if newest else 0,
                result.cursor is not None,
            )

        return InThread(work)

    def _records(
        self, request: Command, records: list[bytes], timestamp: int, offset: int, is_cut: bool
    ) -> Command:
        fields = {
            "indexLastUpdateTimestamp": str(timestamp),
            "indexLastUpdatePhyoffset": str(offset),
        }
        remark = None
        if is_cut:
            # A client of 5.4 sends the type, and can continue after a message (`QueryMsgByKeySubCommand`, option -l).
            cursor = " or a lastKey" if request.optional_text(_INDEX_TYPE) else ""
            remark = f"there are older messages: ask for an earlier endTimestamp{cursor}"
        if records:
            return request.answer(remark=remark, fields=fields, body=b"".join(records))
        remark = remark or "can not find message, maybe time range not correct"
        return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, fields)

    @answers(RequestCode.VIEW_MESSAGE_BY_ID)
    def _view(self, request: Command, peer: Peer) -> InThread:
        offset = request.int64("offset")

        def work() -> Command:
            try:
                record = self._store.get_record(offset)
            except MessageNotFoundError:
                raise Refusal(f"can not find message by the offset, {offset}") from None
            if not request.rights.is_free:
                message = decode(record)
                if not self._broker.is_own_record(message, offset):
                    raise AccessError(f"no message begins at the offset {offset}")
                if not request.rights.may_read(message):
                    # A broker sends the same error message (`PlainPermissionManager.checkPerm`).
                    raise AccessError(f"No default permission for {message.topic}")
            return request.answer(body=record)

        return InThread(work)

    @answers(RequestCode.GET_MAX_OFFSET)
    def _max_offset(self, request: Command, peer: Peer) -> Answer:
        work = self._offset(request, self._broker.max_offset)
        return work() if self._broker.is_quick else InThread(work)

    @answers(RequestCode.GET_MIN_OFFSET)
    def _min_offset(self, request: Command, peer: Peer) -> InThread:
        """Return the queue offset of a queue's first message. The answer is computed in a thread: it may take long.

        If the queue's first entries may be lost, this searches the log for messages that precede the queue's first
        existing entry. If there is such a message, the request fails.
        """
        return InThread(self._offset(request, self._broker.min_offset))

    def _offset(self, request: Command, find: Callable[[str, int], int]) -> Callable[[], Command]:
        place = request.text("topic"), request.int32("queueId")
        return lambda: request.answer(fields={"offset": str(find(*place))})

    @answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    def _offset_by_time(self, request: Command, peer: Peer) -> InThread:
        topic, queue_id = request.text("topic"), request.int32("queueId")
        timestamp = request.int64("timestamp")
        # A client may send seconds. A broker reads the number as milliseconds: a time in 1970, before all messages. Use
        # 0 to get the same result, because `MessageStore.offset_by_time` refuses numbers that look like seconds.
        if looks_like_seconds(timestamp):
            timestamp = 0

        # Brokers of 4.9 do not know this field. A broker of 5.x takes any other value for the lower boundary.
        is_upper = (request.optional_text("boundaryType") or "").lower() == _UPPER
        search = (
            self._broker.last_offset_until
            if is_upper and self._broker.is_five
            else self._broker.offset_by_time
        )

        def work() -> Command:
            offset = search(topic, queue_id, timestamp)
            return request.answer(fields={"offset": str(offset)})

        return InThread(work)

    @answers(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def _earliest_time(self, request: Command, peer: Peer) -> InThread:
        topic, queue_id = request.text("topic"), request.int32("queueId")

        def work() -> Command:
            least = self._broker.min_offset(topic, queue_id)
            time = self._broker.store_time(topic, queue_id, least)
            return request.answer(fields={"timestamp": str(time)})

        return InThread(work)

    @answers(RequestCode.QUERY_CONSUME_QUEUE)
    def _consume_queue(self, request: Command, peer: Peer) -> InThread:
        topic, queue_id = request.text("topic"), request.int32("queueId")
        index, count = request.int64("index"), request.int32("count")
        subscription = self._subscription(request, topic)

        def work() -> Command:
            with self._store.reader() as reader:
                try:
                    queue = reader.queues.queue(topic, queue_id)
                    end = queue.max_queue_offset()
                    begin = queue.min_queue_offset(reader.begin_offset())
                except MessageNotFoundError:
                    raise Refusal(f"{queue_id}@{topic} is not exist!") from None
                if not begin <= index < end:
                    return request.answer(
                        remark=f"Index {index} of {queue_id}@{topic} is not exist!"
                    )
                stop = index + min(max(count, 0), _MOST_ENTRIES)
                entries = [
                    {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code}
                    for offset, size, code in queue.entries(index, min(stop, end))
                ]
            content = {"maxQueueIndex": end, "minQueueIndex": begin, "queueData": entries}
            return request.answer_json(content | subscription)

        return InThread(work)

    def _subscription(self, request: Command, topic: str) -> dict[str, object]:
        group = request.optional_text("consumerGroup")
        if group is None:
            return {}
        subscription = self._broker.groups.subscription(group, topic)
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        return {"subscriptionData": msgspec.Raw(subscription.raw)}


class _Page(NamedTuple):
    """The part of an answer that a client of 5.4 requests, newest messages first.

    Clients name the type of the entries in `indexType`: keys, unique keys or tags. A query by key or by unique key is
    answered with the messages of both, which clients filter. `lastKey` is the entry of the last message that the
    client has received, `hour@topic@type@key@unique key@physical offset`.

    is_paged  whether the client knows pages
    after     physical offset of the last message that the client has received; None for the first page
    """

    is_paged: bool
    is_by_tags: bool
    after: int | None

    @property
    def before(self) -> int:
        return ANY_OFFSET if self.after is None else self.after

    @classmethod
    def of(cls, request: Command) -> _Page:
        """Return the part that a request names. Raises FieldError."""
        named, last = request.optional_text(_INDEX_TYPE), request.optional_text(_LAST_KEY)
        index_type = named or KEY_TYPE
        if request.optional_text(_BY_UNIQUE_KEY) == "true":
            index_type = UNIQUE_TYPE
        if index_type not in (KEY_TYPE, TAG_TYPE, UNIQUE_TYPE):
            types = f"{KEY_TYPE}, {TAG_TYPE} or {UNIQUE_TYPE}"
            raise FieldError(f"{_INDEX_TYPE} must be {types}, not {index_type[:_MOST_SHOWN]!r}")
        after = _offset_in(last) if last else None
        return cls(bool(named or last), index_type == TAG_TYPE, after)


def _offset_in(last_key: str) -> int:
    hour, _, rest = last_key.partition("@")
    try:
        if parse_int64(hour) > 0 and (offset := parse_int64(rest.rpartition("@")[2])) >= 0:
            return offset
    except ValueError:
        pass
    raise FieldError(
        f"{_LAST_KEY} must be hour@topic@type@key@unique key@offset, not {last_key[:_MOST_SHOWN]!r}"
    )
