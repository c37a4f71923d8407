"""What quick surveys of the stores showed last, for metrics: each store is looked at again after some minutes."""

from __future__ import annotations

import time
from threading import Lock, Thread

from reput.console.mounts import Mounts
from reput.errors import ReputError
from reput.operations.fleet import SurveyReport, survey
from reput.operations.stores import StoreAnswer

_MOST_AGE_S = 300.0
_SHARE = 0.1
"""Share of the time of one processor that surveys take at most."""


class Surveys:
    """The last survey of each store. One store at a time is surveyed, in a thread that ends when nothing is due."""

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts
        self._guard = Lock()
        self._is_running = False
        self._done: dict[str, tuple[float, StoreAnswer[SurveyReport]]] = {}

    def latest(self) -> dict[str, StoreAnswer[SurveyReport]]:
        """Return the last survey of each store that was surveyed. Begin to survey the stores that are due."""
        names = set(self._mounts.names)
        with self._guard:
            self._done = {name: one for name, one in self._done.items() if name in names}
            if not self._is_running and self._due() is not None:
                self._is_running = True
                Thread(target=self._run, name="reput-survey", daemon=True).start()
            return {name: answer for name, (_, answer) in self._done.items()}

    def _due(self) -> str | None:
        now = time.monotonic()
        for name in self._mounts.names:
            done = self._done.get(name)
            if done is None or now - done[0] > _MOST_AGE_S:
                return name
        return None

    def _run(self) -> None:
        while True:
            with self._guard:
                name = self._due()
                if name is None:
                    self._is_running = False
                    return
            begun = time.monotonic()
            answer = self._answer(name)
            with self._guard:
                self._done[name] = time.monotonic(), answer
            time.sleep((time.monotonic() - begun) * (1 / _SHARE - 1))

    def _answer(self, name: str) -> StoreAnswer[SurveyReport]:
        try:
            _, store = self._mounts.named(name)
            report = survey(store.path, config=store.told_config)
            return StoreAnswer(name, store.path, report, None, report.log_bytes)
        except ReputError as error:
            return StoreAnswer(name, name, None, error)
