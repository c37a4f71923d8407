"""Find traces of known faults of brokers in a store: timers rolled again, transactions committed twice, lost pops.

Each fault leaves messages in the broker's own topics. A finding names the fault's versions and the affected messages.
The newest `MOST_MESSAGES` messages of each of these queues are read, so old traces in long queues are not found.

- TimelineRollService of 5.5 (timers in RocksDB) kept no mark of what it had rolled. It wrote the same message into the
  timer's topic each hour (apache/rocketmq#11156). A timer wheel rolls a message about every two days.
- Before 5.4.0, an op message could be written seconds late. Meanwhile the broker asked the producer again, and
  committed the transaction twice (apache/rocketmq#10199). In all versions, a producer that commits twice has the same
  effect.
- PopReviveService of 5.2.0 and older could pass a checkpoint without a copy of its unacknowledged messages
  (apache/rocketmq#7914). If pops are in RocksDB, a lost record leaves no trace (apache/rocketmq#10276).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Unpack

from reput.base import Finding, FindingsReport, Kind, checked
from reput.core import MessageStore, ReaderOptions
from reput.engine.messages import queue_messages
from reput.engine.stores import open_store
from reput.errors import MessageNotFoundError, StoreError
from reput.format.commit_log import MessageExt
from reput.format.java_string import decimal_number
from reput.format.properties import (
    HALF_TOPICS,
    OP_TOPICS,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_TOPIC,
)
from reput.format.transactions import decided_places, half_place
from reput.wings.serve import PoppedMessages

MOST_MESSAGES = 100_000
# A timer wheel rolls a message about every two days. A message was rolled again and again if it was rolled at least
# _LEAST_ROLLS times, and on average more often than once in _SHORT_ROLL_MS.
_LEAST_ROLLS, _SHORT_ROLL_MS = 5, 6 * 3_600_000
_MOST_DIGITS = 6


@dataclass(frozen=True, slots=True, repr=False)
class FaultsReport(FindingsReport):
    """The traces of known faults of brokers in a store.

    Attributes:
        findings: One finding per fault, with the number of affected messages. It names the first one.
    """

    findings: tuple[Finding, ...]

    @property
    def headline(self) -> str:
        return (
            f"{len(self.findings)} known faults of brokers"
            if self.findings
            else "no known fault of a broker"
        )

    def lines(self) -> Iterator[str]:
        yield from map(str, self.findings)
        yield self.headline

    def as_dict(self) -> dict[str, Any]:
        return {"findings": [finding.as_json() for finding in self.findings]}


@checked
def broker_faults(store: str | PathLike[str], **reading: Unpack[ReaderOptions]) -> FaultsReport:
    """Find traces of known faults of brokers in a store. Nothing is written.

    Args:
        store: The folder that contains `commitlog/`, or its URL.
        reading: Settings as for `open_store`.

    Raises:
        StoreNotFoundError, StoreAccessError, UsageError.
        MissingExtraError: Pops or offsets are in RocksDB, and rocksdict is not installed.
        FormatError: A file of the broker's state, or a queue of its own topics, is damaged.
    """
    with open_store(store, **reading) as reader:
        findings = (_rolled_again(reader), _committed_twice(reader), _lost_pops(reader))
        return FaultsReport(tuple(finding for finding in findings if finding is not None))


def _newest(store: MessageStore, topic: str, queue_id: int) -> Iterator[MessageExt]:
    """Yield the newest messages of a queue, the oldest first."""
    try:
        start = store.max_queue_offset(topic, queue_id) - MOST_MESSAGES
    except MessageNotFoundError:
        return
    yield from queue_messages(store, topic, queue_id, max(start, 0))


def _finding(
    store: MessageStore, kind: Kind, message: MessageExt, detail: str, count: int, cost: str
) -> Finding:
    file = store.commit_log.file_at(message.physical_offset)
    at = None if file is None else message.physical_offset - file.start
    path = store.path if file is None else file.path
    return Finding(kind, path, detail, at, message.physical_offset, count=count, cost=cost)


@dataclass(slots=True)
class _Rolls:
    """The copies of one timed message: their number by TIMER_ROLL_TIMES, the store times, and the newest copy."""

    newest: MessageExt
    by_times: Counter[int] = field(default_factory=Counter)
    rolled_ms: list[int] = field(default_factory=list)

    @property
    def is_repeated(self) -> bool:
        """Return whether a roll was repeated, or the message was rolled too often."""
        levels = self.by_times
        # Each copy is rolled once, so there are never more copies of a level than of the level before.
        if any(levels[level] > levels[level - 1] > 0 for level in levels if level > 0):
            return True
        rolls = len(self.rolled_ms) - 1
        if rolls < _LEAST_ROLLS:
            return False
        return max(self.rolled_ms) - min(self.rolled_ms) < rolls * _SHORT_ROLL_MS


def _rolled_again(store: MessageStore) -> Finding | None:
    rolls: dict[tuple[str, str, str], _Rolls] = {}
    for topic, queue_id in store.list_queues(TIMER_TOPIC):
        for message in _newest(store, topic, queue_id):
            properties = message.properties
            times = decimal_number(properties.get(TIMER_ROLL_TIMES, "0"), _MOST_DIGITS)
            key = properties.get(REAL_TOPIC), message.unique_key, properties.get(TIMER_OUT_MS)
            if None in key or times is None:
                continue
            named = str(key[0]), str(key[1]), str(key[2])
            copies = rolls.setdefault(named, _Rolls(message))
            copies.newest = message
            copies.by_times[times] += 1
            if times:
                copies.rolled_ms.append(message.store_timestamp)
    again = {key: copies for key, copies in rolls.items() if copies.is_repeated}
    if not again:
        return None
    (topic, unique_key, _), first = next(iter(again.items()))
    return _finding(
        store, Kind.TIMER_ROLLED_AGAIN, first.newest,
        f"the timer has rolled message {unique_key} of {topic} {len(first.rolled_ms)} times; a known fault of 5.5 "
        "with timers in RocksDB",
        len(again), "the log grows with copies, and a message may be delivered more than once",
    )  # fmt: skip


def _committed_twice(store: MessageStore) -> Finding | None:
    # Without a second decision about a transaction, there is no second commit. Decisions are much cheaper to compare
    # than all messages of the log.
    decisions: Counter[tuple[int, tuple[str, int]]] = Counter()
    for topic in OP_TOPICS:
        for _, queue_id in store.list_queues(topic):
            for message in _newest(store, topic, queue_id):
                decisions.update((queue_id, place) for place in decided_places(message))
    decided: defaultdict[tuple[str, str], int] = defaultdict(int)
    for topic in HALF_TOPICS:
        for _, queue_id in store.list_queues(topic):
            for message in _newest(store, topic, queue_id):
                count = decisions[queue_id, half_place(message)]
                target = message.properties.get(REAL_TOPIC)
                if count and target is not None and message.unique_key is not None:
                    decided[target, message.unique_key] += count
    first: tuple[MessageExt, str] | None = None
    affected = 0
    for (topic, unique_key), count in decided.items():
        commits = _commits(store, topic, unique_key) if count > 1 else []
        if len(commits) > 1:
            affected += 1
            places = " and ".join(str(commit.physical_offset) for commit in commits[:2])
            detail = (
                f"transaction {unique_key} of {topic} was committed {len(commits)} times, at {places}; a known fault "
                "before 5.4.0, or a producer that has committed twice"
            )
            first = first or (commits[-1], detail)
    if first is None:
        return None
    cost = "consumers get the message of such a transaction more than once"
    return _finding(store, Kind.COMMITTED_TWICE, *first, affected, cost)


def _commits(store: MessageStore, topic: str, unique_key: str) -> list[MessageExt]:
    """Return the messages of a transaction that were committed, oldest first."""
    messages = store.query(topic, unique_key).messages
    commits = (
        message
        for message in messages
        if message.transaction == "commit" and message.unique_key == unique_key
    )
    return sorted(commits, key=lambda message: message.physical_offset)


def _lost_pops(store: MessageStore) -> Finding | None:
    first: tuple[MessageExt, str] | None = None
    affected = 0
    for pop in PoppedMessages(store):
        for entry in pop.revived:
            if entry.retry_topic is not None:
                continue
            try:
                message = store.get_by_queue(pop.topic, pop.queue_id, entry.queue_offset)
            except StoreError:  # It has expired or is damaged, so the broker could not revive it.
                continue
            affected += 1
            detail = (
                f"{pop.group} has not acknowledged queue offset {entry.queue_offset} of {pop.topic}/{pop.queue_id}, "
                "and no retry topic has a copy; a known fault of 5.2.0 and older"
            )
            first = first or (message, detail)
    if first is None:
        return None
    cost = "the group never gets such a message again"
    return _finding(store, Kind.POP_LOST, *first, affected, cost)
