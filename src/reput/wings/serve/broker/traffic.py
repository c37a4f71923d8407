"""Count the requests of clients by outcome, and measure how long their answers take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a latency's buckets, in seconds. The last bucket has no bound."""


@dataclass(slots=True)
class Latency:
    """A histogram of durations in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """Return the upper bound of each bucket, and the number of durations up to this bound."""
        return list(zip([*map(str, _BOUNDS_S), "+Inf"], accumulate(self.counts), strict=True))


class Traffic:
    """The requests of all connections of a process.

    Attributes:
        requests: Number of requests, by the name of the request and the name of the outcome.
        seconds: Durations until the answer, by name of the request. Requests that waited for messages are not included.
        gauges: Figures that are computed on request: name, explanation, function that returns the value.
    """

    def __init__(
        self,
        name_of: Callable[[int], str],
        outcome_of: Callable[[int], str],
        gauges: Mapping[str, tuple[str, Callable[[], float]]],
    ) -> None:
        """Prepare to count.

        `name_of` returns the name of a request code, `outcome_of` the name of a response code. All unknown codes must
        share one name, so that clients cannot fill the memory.
        """
        self._name_of, self._outcome_of = name_of, outcome_of
        self.requests: dict[tuple[str, str], int] = {}
        self.seconds: dict[str, Latency] = {}
        self.gauges = gauges

    def note(self, code: int, outcome: int | None, seconds: float | None) -> None:
        """Count a request.

        A request without an answer has no `outcome`. A request that waited for messages has no `seconds`.
        """
        name = self._name_of(code)
        of = name, "none" if outcome is None else self._outcome_of(outcome)
        self.requests[of] = self.requests.get(of, 0) + 1
        if seconds is not None:
            latency = self.seconds.get(name)
            if latency is None:
                latency = self.seconds[name] = Latency()
            latency.add(seconds)
