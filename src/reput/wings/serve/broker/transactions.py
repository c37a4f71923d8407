"""Keep transactions: prepared messages that wait for their producer's decision.

Mirrors `TransactionalMessageServiceImpl`, `TransactionalMessageBridge` and `EndTransactionProcessor` (tag
rocketmq-all-4.9.3). Prepared messages wait in the topic of half messages. A decision is an op message, in another
topic, that states the prepared message's queue offset. A broker counts how often it has asked the producer for the
decision. To store this number, it puts the prepared message again each time. Here, the number is kept in memory, and
the committed offset in the topic of half messages is the queue offset of the first undecided message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from reput.base import now_ms
from reput.engine.writer import Message
from reput.errors import MessageNotFoundError, MessageRefusedError, ReputError, StoreError
from reput.format.commit_log import SYS_FLAG_COMMIT, SYS_FLAG_TRANSACTION_MASK, MessageExt
from reput.format.properties import (
    DISCARDED_HALF_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PRODUCER_GROUP,
    PROPERTY_SEPARATOR,
    TAGS,
    WAIT,
    encode_properties,
)
from reput.format.real_queue import held_queue
from reput.format.transactions import decided_offsets
from reput.wings.serve.broker.offsets import ConsumerOffsets
from reput.wings.serve.broker.sending import copied

if TYPE_CHECKING:
    from reput.engine.writer import WritableStore

GROUP = "CID_RMQ_SYS_TRANS"
_REMOVE_TAG = "d"
# The defaults of a broker's transactionTimeOut, transactionCheckInterval and transactionCheckMax.
_TIMEOUT_MS, _INTERVAL_MS, _MOST_CHECKS = 6_000, 60_000, 15
_MOST_AT_ONCE = 256


class TransactionError(ReputError):
    """A decision does not match the prepared message that it names."""


@dataclass(slots=True)
class _Open:
    """A prepared message that waits for a decision."""

    physical_offset: int
    asked_ms: int
    checks: int = 0


class Transactions:
    """The prepared messages of one store. Any thread may use them."""

    def __init__(
        self,
        store: WritableStore,
        offsets: ConsumerOffsets,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._store, self._offsets, self._clock_ms = store, offsets, clock_ms
        self._open: dict[int, _Open] = {}
        self._half_at = offsets.committed(GROUP, HALF_TOPIC, 0) or 0
        self._op_at = offsets.committed(GROUP, OP_TOPIC, 0) or 0
        self._decided_early: set[int] = set()
        self._guard = Lock()

    def prepared(self, physical_offset: int, queue_offset: int, group: str) -> MessageExt:
        """Return the prepared message that a group's decision names. Raises TransactionError."""
        # The texts of the errors are those of a broker's answers.
        try:
            message = self._store.get(physical_offset)
        except StoreError:
            raise TransactionError("Find prepared transaction message failed") from None
        if message.topic != HALF_TOPIC:
            raise TransactionError("Find prepared transaction message failed")
        if message.properties.get(PRODUCER_GROUP) != group:
            raise TransactionError("The producer group wrong")
        if message.queue_offset != queue_offset:
            raise TransactionError("The transaction state table offset wrong")
        return message

    def end(self, prepared: MessageExt, decision: int) -> None:
        """Commit (SYS_FLAG_COMMIT) or roll back a message. Raises TransactionError, and the errors of a put."""
        with self._guard:
            if decision == SYS_FLAG_COMMIT:
                # Put the message before the decision. After a crash between the two, the producer is asked again. The
                # message may be stored twice, but is not lost.
                self._store.put(_committed(prepared, self._store.config.is_five))
            self._decide(prepared.queue_offset)

    def to_check(self) -> list[MessageExt]:
        """Return some messages about which producers must be asked now. Discard messages that were checked too often.

        Raises StoreFailedError, StoreAccessError.
        """
        with self._guard:
            return self._to_check()

    def _to_check(self) -> list[MessageExt]:
        self._follow()
        now, due = self._clock_ms(), list[MessageExt]()
        for queue_offset, half in list(self._open.items()):
            if len(due) == _MOST_AT_ONCE:
                break
            wait = _INTERVAL_MS if half.checks else _TIMEOUT_MS
            if now - half.asked_ms < wait:
                continue
            try:
                message = self._store.get(half.physical_offset)
            except StoreError:
                # The message has expired, so it can be neither committed nor discarded.
                self._open.pop(queue_offset, None)
                continue
            if half.checks >= _MOST_CHECKS:
                again = copied(message, self._store.config.is_five)
                discarded = replace(again, topic=DISCARDED_HALF_TOPIC, queue_id=0)
                # If a message was checked too often, a broker copies it to DISCARDED_HALF_TOPIC, and stops asking about
                # it. If the copy is refused, continue, so that other messages need not wait.
                with suppress(MessageRefusedError):
                    self._store.put(discarded)
                self._decide(queue_offset)
                continue
            half.checks, half.asked_ms = half.checks + 1, now
            due.append(message)
        return due

    def _decide(self, queue_offset: int) -> None:
        body = str(queue_offset).encode()
        # A broker creates this map itself, with 16 buckets, also in 5.x. There, WAIT comes before TAGS.
        ending = PROPERTY_SEPARATOR if self._store.config.is_five else ""
        text = encode_properties({WAIT: "true", TAGS: _REMOVE_TAG}) + ending
        properties = text.encode()
        self._store.put(Message(OP_TOPIC, body, None, None, 0, properties))
        self._open.pop(queue_offset, None)

    def _follow(self) -> None:
        """Read the prepared messages and decisions since the last call, and find the first undecided message."""
        for decided in self._new(OP_TOPIC, self._op_at):
            self._op_at = decided.queue_offset + 1
            if decided.tags != _REMOVE_TAG:
                continue
            for number in decided_offsets(decided.body):
                # Decisions are read first, so a decision may arrive here before its prepared message.
                if self._open.pop(number, None) is None and number >= self._half_at:
                    self._decided_early.add(number)
        for prepared in self._new(HALF_TOPIC, self._half_at):
            self._half_at = prepared.queue_offset + 1
            if prepared.queue_offset in self._decided_early:
                self._decided_early.discard(prepared.queue_offset)
            else:
                self._open[prepared.queue_offset] = _Open(
                    prepared.physical_offset, prepared.store_timestamp
                )
        # After a restart, reading begins at the oldest undecided message.
        first = min(self._open, default=self._half_at)
        self._offsets.commit(GROUP, HALF_TOPIC, 0, first)
        if not self._open and not self._decided_early:
            # Commit the offset in the queue of decisions only when all half messages are decided. After a restart, half
            # messages are read again from the oldest undecided one on. The decisions about later half messages are then
            # needed again.
            self._offsets.commit(GROUP, OP_TOPIC, 0, self._op_at)

    def _new(self, topic: str, queue_offset: int) -> Iterator[MessageExt]:
        while True:
            try:
                pulled = self._store.pull(topic, 0, queue_offset, _MOST_AT_ONCE, on_corrupt="skip")
            except MessageNotFoundError:
                return
            # At the end of the queue, a pull returns no messages, and its next offset is not after the requested
            # offset. If a pull returns no messages, and its next offset is after the requested offset, the pull has
            # skipped expired messages.
            if not pulled.messages and pulled.next_begin_offset <= queue_offset:
                return
            yield from pulled.messages
            queue_offset = pulled.next_begin_offset


def queue_of_prepared(message: MessageExt) -> tuple[str, int]:
    """Return the real topic and queue of a prepared message. Raises TransactionError."""
    queue = held_queue(message.properties)
    if queue is None:
        raise TransactionError("Find prepared transaction message failed")
    return queue


def _committed(prepared: MessageExt, is_five: bool) -> Message:
    topic, queue_id = queue_of_prepared(prepared)
    flags = prepared.sys_flag & ~SYS_FLAG_TRANSACTION_MASK | SYS_FLAG_COMMIT
    return replace(
        copied(prepared, is_five), topic=topic, queue_id=queue_id, sys_flag=flags,
        prepared_transaction_offset=prepared.physical_offset,
    )  # fmt: skip
