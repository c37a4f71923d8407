"""The counters of a broker: messages put and pulled, by topic and by group.

Mirrors `StatsItem`, `BrokerStatsManager`, `StoreStatsService` and `BrokerStats` (tag rocketmq-all-4.9.3). A broker
samples all counters every few seconds. Here, a counter is sampled only when a number is added to the counter. So
counters that do not change cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from threading import Lock
from typing import NamedTuple

from reput.base import now_ms

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
HITS, MISSES = "found", "missed"
"""Names of the counters of pulls that found messages, and of pulls that found none."""
TEN_S, MINUTE, TEN_MIN, HOUR, DAY = range(5)
_WINDOWS = (
    (10_000, 1_000), (60_000, 10_000), (600_000, 60_000), (3_600_000, 600_000),
    (86_400_000, 3_600_000),
)  # fmt: skip
"""Length of each window, and the time between its samples, in ms."""
_LEAST_STEP_MS = min(step for _, step in _WINDOWS)


class Rate(NamedTuple):
    """A counter over a window: its sum, its rate per second, and its mean per call (`BrokerStatsItem`)."""

    sum: int
    tps: float
    average: float


class Counter:
    """One counter.

    Attributes:
        value: The sum of all numbers.
        calls: Number of calls of `add`.
    """

    __slots__ = ("_due", "_samples", "calls", "value")

    def __init__(self) -> None:
        self.value = self.calls = self._due = 0
        self._samples = [deque[tuple[int, int, int]](maxlen=w // s + 1) for w, s in _WINDOWS]

    def add(self, number: int, now: int) -> None:
        """Add a number to the sum."""
        if now >= self._due:
            for samples, (_, step) in zip(self._samples, _WINDOWS, strict=True):
                if not samples or now - samples[-1][0] >= step:
                    samples.append((now, self.value, self.calls))
            self._due = now + _LEAST_STEP_MS
        self.value += number
        self.calls += 1

    def rate(self, window: int, now: int) -> Rate:
        """Return the rate over a window. The window begins at a sample, so its length is not exact."""
        since = now - _WINDOWS[window][0]
        for begin, value, calls in self._samples[window]:
            if begin >= since:
                total, times = self.value - value, self.calls - calls
                seconds = _WINDOWS[window][0] / 1000
                return Rate(total, total / seconds, total / times if times else 0.0)
        return Rate(0, 0.0, 0.0)


class Counters:
    """The counters of one broker.

    Any thread may use them. There are at most `most` counters of topics and groups. If this limit is reached, a new
    counter replaces the oldest one.
    """

    def __init__(self, most: int, clock_ms: Callable[[], int] = now_ms) -> None:
        self._most, self._clock_ms = most, clock_ms
        self._guard = Lock()
        self._counters: dict[tuple[str, str], Counter] = {}
        self._total = {name: Counter() for name in (BROKER_PUT_NUMS, BROKER_GET_NUMS, HITS, MISSES)}
        self._put_bytes = 0
        self._mornings = {name: [0, 0] for name in (BROKER_PUT_NUMS, BROKER_GET_NUMS)}
        self._day = self._today()

    def _today(self) -> int:
        return datetime.fromtimestamp(self._clock_ms() / 1000).toordinal()

    def put(self, topic: str, messages: int, size_bytes: int) -> None:
        """Count messages that one request has stored in a topic."""
        now = self._clock_ms()
        with self._guard:
            self._add(TOPIC_PUT_NUMS, topic, messages, now)
            self._add(TOPIC_PUT_SIZE, topic, size_bytes, now)
            self._total[BROKER_PUT_NUMS].add(messages, now)
            self._put_bytes += size_bytes

    def pulled(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """Count a pull, and the messages that it found."""
        now = self._clock_ms()
        with self._guard:
            self._total[HITS if messages else MISSES].add(1, now)
            if messages:
                key = f"{topic}@{group}"
                self._add(GROUP_GET_NUMS, key, messages, now)
                self._add(GROUP_GET_SIZE, key, size_bytes, now)
                self._total[BROKER_GET_NUMS].add(messages, now)

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message that a group has sent back."""
        with self._guard:
            self._add(SEND_BACK_NUMS, f"{topic}@{group}", 1, self._clock_ms())

    def _add(self, name: str, key: str, number: int, now: int) -> None:
        counter = self._counters.get((name, key))
        if counter is None:
            if len(self._counters) >= self._most:
                del self._counters[next(iter(self._counters))]
            counter = self._counters[name, key] = Counter()
        counter.add(number, now)

    def rates(self, name: str, key: str, cluster: str) -> tuple[Rate, Rate, Rate] | None:
        """Return the rates of a counter over the last minute, hour and day, or None for an unknown counter.

        Args:
            name, key: Name and key as a tool sends them: `TOPIC_PUT_NUMS` and a topic, `GROUP_GET_NUMS` and
                `topic@group`.
            cluster: Name of the cluster. Used as `key`, it means the counter of the whole broker.
        """
        now = self._clock_ms()
        with self._guard:
            counter = self._counters.get((name, key))
            if counter is None and key == cluster and name in (BROKER_PUT_NUMS, BROKER_GET_NUMS):
                counter = self._total[name]
            if counter is None:
                return None
            return counter.rate(MINUTE, now), counter.rate(HOUR, now), counter.rate(DAY, now)

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return how many messages of a topic a group pulls per second (`tpsGroupGetNums`)."""
        with self._guard:
            counter = self._counters.get((GROUP_GET_NUMS, f"{topic}@{group}"))
            return counter.rate(MINUTE, self._clock_ms()).tps if counter is not None else 0.0

    def forget(self, predicate: Callable[[str], bool]) -> None:
        """Delete the counters of topics and groups that no longer exist."""
        with self._guard:
            for name, key in [key_pair for key_pair in self._counters if predicate(key_pair[1])]:
                del self._counters[name, key]

    def roll(self) -> None:
        """If a new day has begun, record the present totals as its initial totals. Call this every few seconds."""
        today = self._today()
        if today != self._day:
            with self._guard:
                self._day = today
                for name, mornings in self._mornings.items():
                    mornings[:] = mornings[1], self._total[name].value

    def as_table(self) -> dict[str, str]:
        """Return the counters of the whole broker, under the names of `brokerStatus`."""
        now = self._clock_ms()
        with self._guard:
            puts, gets = self._total[BROKER_PUT_NUMS], self._total[BROKER_GET_NUMS]
            hits, misses = self._total[HITS], self._total[MISSES]
            table = {
                "putTps": _three(now, puts),
                # 4.9 misspells this name, and 5.x corrects it.
                "getTransferedTps": _three(now, gets),
                "getTransferredTps": _three(now, gets),
                "getFoundTps": _three(now, hits),
                "getMissTps": _three(now, misses),
                "getTotalTps": _three(now, hits, misses),
                "putMessageTimesTotal": str(puts.value),
                "putMessageSizeTotal": str(self._put_bytes),
                "putMessageAverageSize": str(self._put_bytes / max(puts.value, 1)),
                "msgPutTotalTodayNow": str(puts.value),
                "msgGetTotalTodayNow": str(gets.value),
            }
            for verb, name in (("Put", BROKER_PUT_NUMS), ("Get", BROKER_GET_NUMS)):
                yesterday, today = self._mornings[name]
                table[f"msg{verb}TotalYesterdayMorning"] = str(yesterday)
                table[f"msg{verb}TotalTodayMorning"] = str(today)
        return table


def _three(now: int, *counters: Counter) -> str:
    """Return the rates per second over 10 seconds, a minute and 10 minutes, as text."""
    windows = (TEN_S, MINUTE, TEN_MIN)
    rates = (sum(counter.rate(window, now).tps for counter in counters) for window in windows)
    return " ".join(str(rate) for rate in rates)
