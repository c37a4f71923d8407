"""Answer pulls, including pulls that wait for messages (`PullMessageProcessor`, `PullRequestHoldService`, 4.9.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import NamedTuple, cast

from reput.base import now_ms
from reput.core import PulledRecords, PullStatus, UnreadableMessages, finding_of
from reput.errors import FormatError, MessageNotFoundError, StoreError, UsageError
from reput.format.commit_log import decode
from reput.wings.serve.broker.broker import MASTER_ID, ServedBroker
from reput.wings.serve.broker.groups import TAG_TYPE
from reput.wings.serve.broker.limits import LimitError, NameRefusedError
from reput.wings.serve.broker.sql_filter import SQL_TYPE, Matcher
from reput.wings.serve.remoting.commands import Command, Refusal, ResponseCode
from reput.wings.serve.remoting.consuming import check_expression
from reput.wings.serve.remoting.handling import Answer, InThread, Later, Peer, answers
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.rights import is_mixed, may_be_foreign

_COMMITS, _WAITS, _HAS_SUBSCRIPTION = 1, 2, 4
_MOST_BYTES = 256 << 10  # The default of a broker's maxTransferBytesOnMessageInMemory.
_MOST_WAIT_MS = 60_000
_MOST_WOKEN = 500  # Pulls examined in a row, before other requests are answered.
_MOST_LOOKED_AT = 1024
"""Maximum number of messages that one pull with a filter examines."""
_OUTCOMES = {
    PullStatus.FOUND: (ResponseCode.SUCCESS, "FOUND"),
    PullStatus.NO_MATCHED_MESSAGE: (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
    PullStatus.NO_NEW_MESSAGE: (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
    PullStatus.OFFSET_TOO_SMALL: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    PullStatus.OFFSET_TOO_LARGE: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
}


class _Pull(NamedTuple):
    request: Command
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    tags: str | None
    matches: Matcher | None
    floor: int = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A waiting pull, and its answer if no message arrives."""

    pull: _Pull
    peer: Peer
    answer: Command
    later: Later
    until_ms: int
    is_over: bool = False


class Pulling:
    """Answers pulls from one broker's store. Use it only in the thread that serves the connections."""

    def __init__(self, broker: ServedBroker, clock_ms: Callable[[], int] = now_ms) -> None:
        self._broker, self._clock_ms = broker, clock_ms
        self._waiting: dict[tuple[str, int], dict[_Waiting, None]] = {}
        self._by_peer: dict[Peer, dict[_Waiting, None]] = {}
        self._by_time: list[tuple[int, int, _Waiting]] = []
        self._grown: dict[tuple[str, int], int] = {}
        self._woken: Iterator[tuple[_Waiting, int]] | None = None
        self._numbers, self._count = count(), 0
        self._is_ending = False

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Return whether a pull waits for messages of a queue. Any thread may call this."""
        return (topic, queue_id) in self._waiting

    def wake_up(self, topic: str, queue_id: int, end: int) -> None:
        """Answer the pulls that wait for messages of a queue. The queue now ends at `end`."""
        place = topic, queue_id
        if place in self._waiting:
            self._grown[place] = max(end, self._grown.get(place, end))
            if self._woken is None:
                self._woken = self._of_grown()
                self._wake()

    def _of_grown(self) -> Iterator[tuple[_Waiting, int]]:
        """Yield the pulls waiting for queues that have grown, each with the end of its queue."""
        while self._grown:
            place = next(iter(self._grown))
            end = self._grown.pop(place)
            for waiting in list(self._waiting.get(place, ())):
                yield waiting, end

    def _wake(self) -> None:
        """Answer pulls whose queues have grown, some at a time: 100,000 pulls may wait for one queue."""
        looked_at = 0
        for waiting, end in islice(self._woken or (), _MOST_WOKEN):
            looked_at += 1
            if not waiting.is_over and waiting.pull.queue_offset < end:
                self._forget(waiting)
                waiting.peer.run(
                    partial(self._answer, waiting.pull), waiting.pull.request, waiting.later.resolve
                )
        if looked_at == _MOST_WOKEN:
            asyncio.get_running_loop().call_soon(self._wake)
        else:
            self._woken = None

    def look(self) -> None:
        """Answer pulls that have waited long enough. Call this several times per second."""
        now = self._clock_ms()
        for _ in range(_MOST_WOKEN):
            if not self._by_time or self._by_time[0][0] > now:
                return
            waiting = heappop(self._by_time)[2]
            if not waiting.is_over:
                self._forget(waiting)
                waiting.later.resolve(waiting.answer)

    def growth(self) -> Callable[[], list[tuple[str, int, int]]] | None:
        """Return a function that finds the ends of awaited queues. Returns None if no queue is awaited.

        The function may run in any thread. It is needed for stores that another process writes, because that process
        does not notify this one.
        """
        queues = list(self._waiting)
        return (lambda: [(*queue, self._end(*queue)) for queue in queues]) if queues else None

    def answer_waiting(self) -> None:
        """Answer all waiting pulls, because the server stops. Later pulls are answered without waiting."""
        self._is_ending = True  # A pull after this call must not wait: nobody would answer it.
        for pulls in list(self._waiting.values()):
            for entry in list(pulls):
                self._forget(entry)
                entry.later.resolve(entry.answer)

    def disconnected(self, peer: Peer) -> None:
        """Drop the waiting pulls of a client that has left."""
        for waiting in list(self._by_peer.get(peer, ())):
            self._forget(waiting)

    def _end(self, topic: str, queue_id: int) -> int:
        try:
            return self._broker.max_offset(topic, queue_id)
        except Exception:  # The pull itself will report the error.
            return (1 << 63) - 1

    @answers(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def _pull(self, request: Command, peer: Peer) -> Answer:
        sys_flag = request.int32("sysFlag")
        pull = self._parse(request, sys_flag)
        if (redirect := self._redirect(pull)) is not None:
            return redirect
        if sys_flag & _COMMITS:
            offset = request.int64("commitOffset")
            # The request commits an offset and also asks for messages. If the commit is refused, answer the rest.
            with suppress(LimitError, NameRefusedError):
                self._broker.offsets.commit(pull.group, pull.topic, pull.queue_id, offset)
        wait_ms = min(max(request.int64("suspendTimeoutMillis"), 0), _MOST_WAIT_MS)

        def then(answer: Command) -> Command | Later:
            self._note(pull, answer)
            may_wait = answer.code == ResponseCode.PULL_NOT_FOUND and sys_flag & _WAITS
            is_full = self._count >= self._broker.limits.waiting
            if not may_wait or is_full or self._is_ending:
                return answer
            waiting = _Waiting(pull, peer, answer, Later(), self._clock_ms() + wait_ms)
            self._remember(waiting)
            return waiting.later

        if (answer := self._at_once(pull)) is not None:
            self._note(pull, answer)
            return answer
        return InThread(lambda: self._answer(pull), then)

    def _note(self, pull: _Pull, answer: Command) -> None:
        """Record how far a group has pulled, because 5.x tools show it."""
        if self._broker.is_five and answer.code == ResponseCode.SUCCESS:
            next_offset = int(answer.fields["nextBeginOffset"])
            self._broker.pulled.note(pull.group, pull.topic, pull.queue_id, next_offset)

    def _redirect(self, pull: _Pull) -> Command | None:
        """Return the answer that tells a client to pull from another offset, or None if the pull's offset is valid.

        The pull's offset is invalid if the group's offset was reset, or if the pull's offset belongs to a deleted topic
        of the same name.
        """
        broker, place = self._broker, (pull.topic, pull.queue_id)
        reset = broker.offsets.take_reset(pull.group, *place)
        floor = pull.floor
        if reset is None and pull.queue_offset >= floor:
            return None
        remark, offset = "OFFSET_RESET", reset
        if offset is None:
            remark, offset = "OFFSET_TOO_SMALL", floor
        most = broker.max_offset(*place)
        return _answered(
            pull.request, ResponseCode.PULL_OFFSET_MOVED, remark, offset, floor, max(most, floor)
        )

    def reset(self, group: str, topic: str) -> None:
        """Answer the waiting pulls of a group and topic, because its offsets were reset."""
        for (of, _), pulls in list(self._waiting.items()):
            for entry in list(pulls) if of == topic else ():
                if entry.pull.group != group:
                    continue
                if (answer := self._redirect(entry.pull)) is None:
                    # `_redirect` reports a reset of a queue to one pull only. It returns None if an earlier pull has
                    # got the report, or if the queue was not reset. The queue's remaining pulls then continue to
                    # wait. Do not call it for each remaining pull: there may be 100,000 pulls.
                    break
                self._forget(entry)
                entry.later.resolve(answer)

    def _remember(self, waiting: _Waiting) -> None:
        pull = waiting.pull
        self._waiting.setdefault((pull.topic, pull.queue_id), {})[waiting] = None
        self._by_peer.setdefault(waiting.peer, {})[waiting] = None
        heappush(self._by_time, (waiting.until_ms, next(self._numbers), waiting))
        self._count += 1
        # Pulls that were answered before their timeout stay in the heap. Remove them before they fill the memory.
        if len(self._by_time) > 2 * self._count + _MOST_WOKEN:
            self._by_time = [entry for entry in self._by_time if not entry[2].is_over]
            heapify(self._by_time)

    def _forget(self, waiting: _Waiting) -> None:
        waiting.is_over = True
        self._count -= 1
        queue, peer = (waiting.pull.topic, waiting.pull.queue_id), waiting.peer
        del self._waiting[queue][waiting], self._by_peer[peer][waiting]
        if not self._waiting[queue]:
            del self._waiting[queue]
        if not self._by_peer[peer]:
            del self._by_peer[peer]

    def _parse(self, request: Command, sys_flag: int) -> _Pull:
        group, topic = request.text("consumerGroup"), request.text("topic")
        queue_id = request.int32("queueId")
        config = self._broker.topics.get(topic)
        if not self._broker.subscriptions.get(group).may_consume:
            raise Refusal(f"subscription group no permission, {group}", ResponseCode.NO_PERMISSION)
        if config is None:
            remark = f"topic[{topic}] not exist, apply first please!"
            raise Refusal(remark, ResponseCode.TOPIC_NOT_EXIST)
        if not config.is_readable:
            remark = f"the topic[{topic}] pulling message is forbidden"
            raise Refusal(remark, ResponseCode.NO_PERMISSION)
        if not 0 <= queue_id < config.read_queues:
            remark = f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queues}]"
            raise Refusal(remark)
        tags, matches = self._filter(request, group, topic, sys_flag)
        offset, floor = request.int64("queueOffset"), self._broker.topics.floor(topic, queue_id)
        return _Pull(request, group, topic, queue_id, offset, tags, matches, floor)

    def _filter(
        self, request: Command, group: str, topic: str, sys_flag: int
    ) -> tuple[str | None, Matcher | None]:
        """Return the requested tags, or a filter. Raises Refusal for an invalid expression."""
        if sys_flag & _HAS_SUBSCRIPTION:
            kind = request.optional_text("expressionType")
            expression = request.optional_text("subscription")
        else:
            if self._broker.groups.consumer_group(group) is None:
                remark = "the consumer's group info not exist"
                raise Refusal(remark, ResponseCode.SUBSCRIPTION_NOT_EXIST)
            subscription_data = self._broker.groups.subscription(group, topic)
            if subscription_data is None:
                remark = "the consumer's subscription not exist"
                raise Refusal(remark, ResponseCode.SUBSCRIPTION_NOT_EXIST)
            if subscription_data.version < request.int64("subVersion"):
                remark = "the consumer's subscription not latest"
                raise Refusal(remark, ResponseCode.SUBSCRIPTION_NOT_LATEST)
            kind, expression = subscription_data.expression_type, subscription_data.expression
        if expression is not None and len(expression) > self._broker.limits.expression_chars:
            remark = (
                f"the expression is longer than {self._broker.limits.expression_chars} characters"
            )
            raise Refusal(remark, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        if kind == SQL_TYPE and self._broker.has_sql_filters:
            try:
                return None, check_expression(self._broker, expression or "")
            except UsageError as error:
                remark = f"parse the consumer's subscription failed: {error}"
                raise Refusal(remark, ResponseCode.SUBSCRIPTION_PARSE_FAILED) from None
        if kind not in (None, "", TAG_TYPE):
            raise Refusal(f"The broker does not support consumer to filter message by {kind}")
        return expression, None

    def _at_once(self, pull: _Pull) -> Command | None:
        """Return the answer if it can be read without a thread, or None if reading may take long."""
        if pull.matches is not None or is_mixed(pull.topic) or not self._broker.is_quick:
            return None
        most = max(pull.request.int32("maxMsgNums"), 1)
        body_read = self._broker.store.quick_records(
            pull.topic, pull.queue_id, pull.queue_offset, most, pull.tags, _MOST_BYTES
        )
        if body_read is None:
            return None
        is_free = pull.request.rights.is_free
        if not is_free and may_be_foreign(pull.topic, (bytes(body_read.body),)):
            return None
        self._broker.counters.pulled(
            pull.topic, pull.group, body_read.messages, len(body_read.body)
        )
        code, remark = _OUTCOMES[PullStatus.FOUND]
        least = max(body_read.min_offset, pull.floor)
        # The body is not bytes but a memory view of the log, so that the records are sent without a copy.
        body = cast(bytes, body_read.body)
        return _answered(
            pull.request,
            code,
            remark,
            body_read.next_begin_offset,
            least,
            body_read.max_offset,
            body,
        )

    def _answer(self, pull: _Pull) -> Command:
        most = max(pull.request.int32("maxMsgNums"), 1)
        try:
            pulled = self._records(pull, most)
        except MessageNotFoundError:  # The queue exists, but has never had a message.
            code = (
                ResponseCode.PULL_OFFSET_MOVED if pull.queue_offset else ResponseCode.PULL_NOT_FOUND
            )
            return _answered(pull.request, code, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        except UsageError as error:
            return pull.request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        records: Sequence[bytes] = pulled.records
        rights = pull.request.rights
        if not rights.is_free and may_be_foreign(pull.topic, records):
            records = rights.readable(records)
        return self._answer_with(pull, pulled, records)

    def _records(self, pull: _Pull, most: int) -> PulledRecords:
        """Return the records for a pull. Raises MessageNotFoundError, UsageError."""
        matches = pull.matches
        if matches is None:
            return self._readable(pull, pull.queue_offset, most)
        selection: list[bytes] = []
        position, looked_at, size = pull.queue_offset, 0, 0
        while True:
            try:
                pulled = self._readable(pull, position, most - len(selection))
            except FormatError:
                if position == pull.queue_offset:
                    raise
                # Answer the messages before the unreadable ones. The next pull reports these.
                break
            for record in pulled.records:
                if matches(decode(record).properties):
                    selection.append(record)
                    size += len(record)
            looked_at += len(pulled.records)
            position = pulled.next_begin_offset
            is_over = pulled.status is not PullStatus.FOUND or looked_at >= _MOST_LOOKED_AT
            if is_over or len(selection) >= most or size >= _MOST_BYTES:
                break
        status = pulled.status
        if selection:
            status = PullStatus.FOUND
        elif position > pull.queue_offset:
            status = PullStatus.NO_MATCHED_MESSAGE
        return PulledRecords(
            status, tuple(selection), position, pulled.min_offset, pulled.max_offset
        )

    def _readable(self, pull: _Pull, position: int, most: int) -> PulledRecords:
        """Return records from a queue offset on. Unreadable messages are skipped, as a broker does.

        If the broker is exact, an error reports them to each group once.

        Raises FormatError, StoreError, and the errors of `pull_records`.
        """
        store, place = self._broker.store, (pull.topic, pull.queue_id, position)
        tags = None if pull.matches is not None else pull.tags
        if self._broker.is_exact:
            try:
                return store.pull_records(*place, most, tags, _MOST_BYTES)
            except FormatError as error:
                end = error.resume_offset
                if end is None:
                    store.unreadable.note([UnreadableMessages(*place, position, finding_of(error))])
                if end is None or position > pull.queue_offset:
                    raise
                lost = UnreadableMessages(*place, end, finding_of(error))
                store.unreadable.note([lost])
                if store.unreadable.tell(pull.group, lost):
                    raise StoreError(f"{lost}; the next pull continues at {end}") from error
        return store.pull_records(*place, most, tags, _MOST_BYTES, on_corrupt="skip")

    def _answer_with(self, pull: _Pull, pulled: PulledRecords, records: Sequence[bytes]) -> Command:
        body = b"".join(records)
        self._broker.counters.pulled(pull.topic, pull.group, len(records), len(body))
        code, remark = _outcome(pulled, pull.queue_offset)
        least = max(pulled.min_offset, pull.floor)
        return _answered(
            pull.request, code, remark, pulled.next_begin_offset, least, pulled.max_offset, body
        )


def _outcome(pulled: PulledRecords, queue_offset: int) -> tuple[ResponseCode, str]:
    if not pulled.max_offset:
        code = ResponseCode.PULL_OFFSET_MOVED if queue_offset else ResponseCode.PULL_NOT_FOUND
        return code, "NO_MESSAGE_IN_QUEUE"
    return _OUTCOMES[pulled.status]


def _answered(
    request: Command,
    code: int,
    remark: str,
    next_offset: int,
    least: int,
    most: int,
    body: bytes = b"",
) -> Command:
    fields = {
        "suggestWhichBrokerId": str(MASTER_ID),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(least),
        "maxOffset": str(most),
    }
    return request.answer(code, remark, fields, body)
