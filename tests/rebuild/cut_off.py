"""Interrupted rebuilds, some of whose tasks continue during a later rebuild."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reput.base.tasks import SerialRunner
from reput.errors import StoreChangedError


class Stopping(SerialRunner):
    """Runs some tasks, then ends as a killed process would. Keeps the tasks that would have been next."""

    def __init__(self, tasks: int) -> None:
        self._left, self.cut_off = tasks, list[Callable[[], object]]()

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        def counted(task):  # type: ignore[no-untyped-def]
            self._left -= 1
            if self._left < 0:
                self.cut_off.append(lambda: function(task))
                raise KeyboardInterrupt
            return function(task)

        return super().run(counted, tasks, weights, progress)


class BesideCutOff(SerialRunner):
    """Lets a task of an earlier run continue in the middle of each phase of this run."""

    def __init__(self, cut_off: Callable[[], object]) -> None:
        self._cut_off, self.errors = cut_off, list[str]()

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        results = super().run(function, tasks, weights, progress)
        with pytest.raises(StoreChangedError) as caught:
            self._cut_off()
        self.errors.append(str(caught.value))
        return results
