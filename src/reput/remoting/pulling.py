"""Pulls, and those that wait for messages (`PullMessageProcessor`, `PullRequestHoldService`, 4.9.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from reput.broker.broker import MASTER_ID, Broker
from reput.broker.groups import TAG_TYPE
from reput.broker.limits import LimitError
from reput.broker.names import NameRefusedError
from reput.clock import now_ms
from reput.errors import MessageNotFoundError, UsageError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.commands import Command
from reput.remoting.handling import Answer, Handler, Later, Peer, failed
from reput.remoting.rights import holds_others
from reput.store.answers import PulledRecords, PullStatus

_COMMITS, _WAITS, _HAS_SUBSCRIPTION = 1, 2, 4
_MOST_BYTES = 256 << 10  # maxTransferBytesOnMessageInMemory
_MOST_WAIT_MS = 60_000
_OUTCOMES = {
    PullStatus.FOUND: (ResponseCode.SUCCESS, "FOUND"),
    PullStatus.NO_MATCHED_MESSAGE: (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
    PullStatus.NO_NEW_MESSAGE: (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
    PullStatus.OFFSET_TOO_SMALL: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    PullStatus.OFFSET_TOO_LARGE: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
}


class _Refused(Exception):
    """A pull that gets no messages, and its answer."""

    def __init__(self, answer: Command) -> None:
        super().__init__()
        self.answer = answer


class _Pull(NamedTuple):
    request: Command
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    tags: str | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    pull: _Pull
    later: Later
    until_ms: int


class Pulling:
    """Answers pulls from one broker's store."""

    def __init__(self, broker: Broker, clock_ms: Callable[[], int] = now_ms) -> None:
        self._broker, self._clock_ms = broker, clock_ms
        self._waiting: dict[tuple[str, int], list[_Waiting]] = {}

    def handlers(self) -> dict[int, Handler]:
        """By code."""
        return {RequestCode.PULL_MESSAGE: self._pull}

    @property
    def waiting(self) -> int:
        """How many pulls wait for messages."""
        return sum(map(len, self._waiting.values()))

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Whether a pull waits for messages of a queue; in any thread."""
        return (topic, queue_id) in self._waiting

    def wake_up(self, topic: str, queue_id: int, end: int) -> None:
        """A queue has grown to `end`: answer those that wait for it."""
        key = topic, queue_id
        waiting = self._waiting.pop(key, [])
        if still := [each for each in waiting if each.pull.queue_offset >= end]:
            self._waiting[key] = still
        for each in waiting:
            if each.pull.queue_offset < end:
                each.later.resolve(self._answer_again(each.pull))

    def look(self) -> None:
        """Answer those whose queue has grown, or who have waited long enough; to be called several times a second."""
        for topic, queue_id in list(self._waiting):
            self.wake_up(topic, queue_id, self._end(topic, queue_id))
        now = self._clock_ms()
        for key, waiting in list(self._waiting.items()):
            if late := [each for each in waiting if each.until_ms <= now]:
                self._waiting[key] = [each for each in waiting if each.until_ms > now]
                for each in late:
                    each.later.resolve(self._answer_again(each.pull))
            if not self._waiting[key]:
                del self._waiting[key]

    def answer_all(self) -> None:
        """Answer all that wait, for the server ends."""
        waiting, self._waiting = self._waiting, {}
        for each in (one for some in waiting.values() for one in some):
            each.later.resolve(self._answer_again(each.pull))

    def _end(self, topic: str, queue_id: int) -> int:
        try:
            return self._broker.max_offset(topic, queue_id)
        except Exception:  # the pull, which is tried then, says why
            return (1 << 63) - 1

    def _pull(self, request: Command, peer: Peer) -> Answer:
        sys_flag = request.int32("sysFlag")
        try:
            pull = self._checked(request, sys_flag)
        except _Refused as refused:
            return refused.answer
        answer = self._answer(pull)
        if sys_flag & _COMMITS:
            offset = request.int64("commitOffset")
            with suppress(LimitError, NameRefusedError):  # the messages are asked for, too
                self._broker.offsets.commit(pull.group, pull.topic, pull.queue_id, offset)
        if answer.code == ResponseCode.PULL_NOT_FOUND and sys_flag & _WAITS:
            wait_ms = min(max(request.int64("suspendTimeoutMillis"), 0), _MOST_WAIT_MS)
            later = Later()
            waiting = _Waiting(pull, later, self._clock_ms() + wait_ms)
            self._waiting.setdefault((pull.topic, pull.queue_id), []).append(waiting)
            return later
        return answer

    def _checked(self, request: Command, sys_flag: int) -> _Pull:
        group, topic = request.text("consumerGroup"), request.text("topic")
        queue_id = request.int32("queueId")
        config = self._broker.topics.get(topic)
        if not self._broker.subscriptions.get(group).may_consume:
            remark = f"subscription group no permission, {group}"
            raise _Refused(request.answer(ResponseCode.NO_PERMISSION, remark))
        if config is None:
            remark = f"topic[{topic}] not exist, apply first please!"
            raise _Refused(request.answer(ResponseCode.TOPIC_NOT_EXIST, remark))
        if not config.is_readable:
            remark = f"the topic[{topic}] pulling message is forbidden"
            raise _Refused(request.answer(ResponseCode.NO_PERMISSION, remark))
        if not 0 <= queue_id < config.read_queues:
            remark = f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queues}]"
            raise _Refused(request.answer(ResponseCode.SYSTEM_ERROR, remark))
        tags = self._tags(request, group, topic, sys_flag)
        return _Pull(request, group, topic, queue_id, request.int64("queueOffset"), tags)

    def _tags(self, request: Command, group: str, topic: str, sys_flag: int) -> str | None:
        """The tags that are wanted. Raises _Refused for what is not an expression of tags."""
        if sys_flag & _HAS_SUBSCRIPTION:
            kind = request.optional_text("expressionType")
            expression = request.optional_text("subscription")
        else:
            if self._broker.groups.consumer_group(group) is None:
                remark = "the consumer's group info not exist"
                raise _Refused(request.answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark))
            found = self._broker.groups.subscription(group, topic)
            if found is None:
                remark = "the consumer's subscription not exist"
                raise _Refused(request.answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark))
            if found.version < request.int64("subVersion"):
                remark = "the consumer's subscription not latest"
                raise _Refused(request.answer(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark))
            kind, expression = found.expression_type, found.expression
        if kind not in (None, "", TAG_TYPE):
            remark = f"The broker does not support consumer to filter message by {kind}"
            raise _Refused(request.answer(ResponseCode.SYSTEM_ERROR, remark))
        return expression

    def _answer_again(self, pull: _Pull) -> Command:
        try:
            return self._answer(pull)
        except Exception as error:
            return failed(pull.request, error)

    def _answer(self, pull: _Pull) -> Command:
        most = max(pull.request.int32("maxMsgNums"), 1)
        try:
            found = self._broker.store.pull_records(
                pull.topic, pull.queue_id, pull.queue_offset, most, pull.tags, _MOST_BYTES
            )
        except MessageNotFoundError:  # the topic has such a queue, and nothing was ever put there
            code = (
                ResponseCode.PULL_OFFSET_MOVED if pull.queue_offset else ResponseCode.PULL_NOT_FOUND
            )
            return _answered(pull.request, code, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        except UsageError as error:
            return pull.request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        code, remark = _outcome(found, pull.queue_offset)
        records: Sequence[bytes] = found.records
        if holds_others(pull.topic):
            records = pull.request.rights.readable(records)
        body = b"".join(records)
        return _answered(
            pull.request, code, remark, found.next_begin_offset, found.min_offset, found.max_offset,
            body,
        )  # fmt: skip


def _outcome(found: PulledRecords, queue_offset: int) -> tuple[ResponseCode, str]:
    if not found.max_offset:
        code = ResponseCode.PULL_OFFSET_MOVED if queue_offset else ResponseCode.PULL_NOT_FOUND
        return code, "NO_MESSAGE_IN_QUEUE"
    return _OUTCOMES[found.status]


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
