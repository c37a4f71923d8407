"""Run slow surveys of stores in a thread, and keep their last results, for metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import Generic, NamedTuple, TypeVar

from reput.wings.console.mounts import Mounts

_SHARE = 0.1
"""While no request waits for results of surveys, the survey thread works at most this share of the time."""
Result = TypeVar("Result")


class Survey(NamedTuple, Generic[Result]):
    """The result of one survey of a store.

    Attributes:
        begun: Time at which the survey began, by `time.monotonic`.
        seen_ms: The same time in milliseconds since 1970.
        result: The result of the survey.
    """

    begun: float
    seen_ms: int
    result: Result


class Rounds(Generic[Result]):
    """Surveys stores in a thread, the store with the oldest survey first. The thread ends when no store is due."""

    def __init__(
        self,
        mounts: Mounts,
        look: Callable[[str], Result],
        *,
        most_age_s: float = 0.0,
        wait_s: float = 0.0,
    ) -> None:
        """Set the stores and times. The first survey begins when `latest` is called.

        Args:
            mounts: The stores.
            look: Surveys the store whose name is passed to it.
            most_age_s: Age of a survey, in seconds, after which the store is surveyed again.
            wait_s: Time, in seconds, for which `latest` waits for stores that are due.
        """
        self._mounts, self._look = mounts, look
        self._most_age_s, self._wait_s = most_age_s, wait_s
        self._changed = Condition()
        self._is_running = False
        self._last_request = 0.0
        self._surveys: dict[str, Survey[Result]] = {}

    def latest(self) -> dict[str, Survey[Result]]:
        """Return the last survey of each surveyed store, and start surveys of stores that are due."""
        names = set(self._mounts.names)
        with self._changed:
            self._surveys = {
                name: survey for name, survey in self._surveys.items() if name in names
            }
            self._last_request = time.monotonic()
            if not self._is_running and self._due() is not None:
                self._is_running = True
                Thread(target=self._run, name="reput-survey", daemon=True).start()
            self._changed.notify_all()  # A request is waiting, so the thread must end its pause.
            self._changed.wait_for(lambda: not self._is_running, self._wait_s)
            return dict(self._surveys)

    def _due(self) -> str | None:
        never = float("-inf")
        begun = {
            name: self._surveys[name].begun if name in self._surveys else never
            for name in self._mounts.names
        }
        oldest = min(begun, key=lambda name: begun[name], default=None)
        is_due = oldest is not None and begun[oldest] < self._last_request - self._most_age_s
        return oldest if is_due else None

    def _run(self) -> None:
        while True:
            with self._changed:
                name = self._due()
                if name is None:
                    self._is_running = False
                    self._changed.notify_all()
                    return
            begun, seen_ms = time.monotonic(), time.time_ns() // 1_000_000
            result = self._look(name)
            ended = time.monotonic()
            with self._changed:
                self._surveys[name] = Survey(begun, seen_ms, result)
                pause = (ended - begun) * (1 / _SHARE - 1)
                self._changed.wait_for(lambda: self._is_awaited, pause)

    @property
    def _is_awaited(self) -> bool:
        return time.monotonic() < self._last_request + self._wait_s
