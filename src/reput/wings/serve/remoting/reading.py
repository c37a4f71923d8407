"""Answer requests for messages by key or by offset, and for the offsets, times and entries of queues.

Mirrors `QueryMessageProcessor` and parts of `AdminBrokerProcessor` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reput.base import looks_like_seconds
from reput.core import QueryMessageResult
from reput.errors import MessageNotFoundError
from reput.format.commit_log import decode
from reput.format.rocksdb_index import KEY_TYPE, UNIQUE_TYPE
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.remoting.commands import Command, FieldError, ResponseCode
from reput.wings.serve.remoting.handling import Answer, InThread, Peer, answers
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.rights import AccessError

_BY_UNIQUE_KEY = "_UNIQUE_KEY_QUERY"
_UPPER = "upper"
_DEFAULT_MOST = 32  # The default of a broker's defaultQueryMaxNum.
_MOST_ENTRIES = 1 << 14
# The fields with which clients of 5.4 ask for one type of entries, and for the entries after an earlier answer.
_INDEX_TYPE, _LAST_KEY = "indexType", "lastKey"


class Reading:
    """Answers requests for messages from one broker's store."""

    def __init__(self, broker: ServedBroker, most_exact: int | None = None) -> None:
        """Answer requests from the store of `broker`.

        If `most_exact` is a number, queries by key are exact and return at most this many messages.
        """
        self._broker, self._store, self._most_exact = broker, broker.store, most_exact
        self._most_bytes = broker.limits.answer_bytes

    @answers(RequestCode.QUERY_MESSAGE)
    def _query(self, request: Command, peer: Peer) -> Answer:
        _check_index_type(request)
        return self._plain(request) if self._most_exact is None else self._exact(request)

    def _plain(self, request: Command) -> Answer:
        most = request.int32("maxNum")
        # Like a broker, ignore the client's maxNum in a query by unique key (`QueryMessageProcessor`).
        if request.optional_text(_BY_UNIQUE_KEY) == "true":
            most = _DEFAULT_MOST
        question = (
            request.text("topic"), request.text("key"), most, request.int64("beginTimestamp"),
            request.int64("endTimestamp"),
        )  # fmt: skip

        def answer(answered: tuple[QueryMessageResult, list[bytes], bool]) -> Command:
            result, records, is_cut = answered
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
            return answer(self._store.query_records(*question, self._most_bytes))

        # Answer a quick query here, in the event loop. In a thread, it takes several times as long, because the thread
        # waits for the interpreter's lock.
        is_quick = self._broker.is_quick and self._broker.wait_dispatched(timeout_s=0)
        result = self._store.quick_query(*question, self._most_bytes) if is_quick else None
        return InThread(work) if result is None else answer(result)

    def _exact(self, request: Command) -> InThread:
        topic, key = request.text("topic"), request.text("key")
        begin, end = request.int64("beginTimestamp"), request.int64("endTimestamp")

        def work() -> Command:
            with self._store.reader() as reader:
                result = reader.find_records(
                    topic, key, max(begin, 0), end, self._most_exact, max_bytes=self._most_bytes
                )
            # A client cannot see that an answer is incomplete, so the request fails.
            if not result.is_complete:
                lost = result.coverage.unreadable[0]
                return request.answer(
                    ResponseCode.SYSTEM_ERROR, f"the answer is incomplete: {lost}"
                )
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
        remark = "there are older messages: ask for an earlier endTimestamp" if is_cut else None
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
                return request.answer(
                    ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
                )
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
                    return request.answer(
                        ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!"
                    )
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


def _check_index_type(request: Command) -> None:
    """Raise FieldError for a query by tag, and for the next page of an earlier answer (5.4).

    A query by key or by unique key is answered with the messages of both, which clients filter.
    """
    index_type = request.optional_text(_INDEX_TYPE) or KEY_TYPE
    if index_type not in (KEY_TYPE, UNIQUE_TYPE):
        raise FieldError(
            f"{_INDEX_TYPE} {index_type} is not supported, only {KEY_TYPE} and {UNIQUE_TYPE}"
        )
    if request.optional_text(_LAST_KEY):
        raise FieldError(f"{_LAST_KEY} is not supported: ask for an earlier endTimestamp")
