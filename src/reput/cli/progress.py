"""Show progress bars on stderr, and let signals end a run cleanly."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType, TracebackType
from typing import Any, Self

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from reput.base import format_size
from reput.cli.output import console, stderr_is_terminal

# The signals that end the run, each with Python's default handler for it.
_SIGNALS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class RateColumn(ProgressColumn):
    """A column with bytes per second, for tasks whose field `bytes` is true."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        is_rate = speed is not None and task.fields.get("bytes")
        return Text(f"{format_size(speed)}/s" if is_rate and speed else "", style="dim")


class Bars:
    """Progress bars on stderr, with rate and remaining time. Nothing is printed if stderr is not a terminal.

    Args:
        columns: Further columns between the bar and the rate.
        transient: Whether the bars disappear when they stop.
    """

    def __init__(self, *columns: ProgressColumn, transient: bool = False) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            *columns,
            RateColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            disable=not stderr_is_terminal(),
            transient=transient,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bars while the `with` block prints, so that its lines do not mix with the bars."""
        if self._bars.disable or not self._bars.live.is_started:
            yield
            return
        self._bars.stop()
        yield
        self._bars.start()

    def stop(self) -> None:
        """Stop updating the bars, and leave them as they are."""
        self._bars.stop()


_PHASES = {
    "stores": "reading stores",
    "scan": "reading the CommitLog",
    "rescan": "rereading splits that began inside a record",
    "write": "writing queues and indexes",
    "divide": "dividing entries among queues",
    "join": "joining files of queues",
    "publish": "publishing files",
    "export": "writing the table",
    "search": "searching IndexFiles",
    "read": "reading messages",
    "index": "checking IndexFiles",
    "queues": "checking ConsumeQueues",
    "log": "checking the CommitLog",
}
_BYTE_PHASES = ("scan", "rescan", "export", "log")


class PhaseBars(Bars):
    """Progress with one bar per phase of an operation.

    An instance is the progress callback of the operation, called with the phase, the units done and the total.
    """

    def __init__(self, *, transient: bool = False) -> None:
        super().__init__(TextColumn("{task.percentage:>3.0f}%"), transient=transient)
        self._tasks = {"start": self._bars.add_task("starting", total=None)}

    def __call__(self, phase: str, done: int, total: int) -> None:
        if (starting := self._tasks.pop("start", None)) is not None:
            self._bars.remove_task(starting)
        if phase not in self._tasks:
            description = _PHASES.get(phase, phase)
            self._tasks[phase] = self._bars.add_task(
                description, total=total, bytes=phase in _BYTE_PHASES
            )
        self._bars.update(self._tasks[phase], completed=done, total=total)


@contextmanager
def export_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar for the bytes of the log that an export reads."""
    with PhaseBars() as bars:

        def show(phase: str, done: int, total: int) -> None:
            if phase == "export":
                bars(phase, done, total)

        yield show


class StoresBar(PhaseBars):
    """One bar that counts finished stores. An instance is the callback for each store's answer."""

    def __init__(self, stores: int) -> None:
        super().__init__(transient=True)
        self._stores, self._done = stores, 0

    def __call__(self, *answer: object) -> None:
        self._done += 1
        super().__call__("stores", self._done, self._stores)


@contextmanager
def signals_stop(stop: Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set the event, instead of ending the process, during the `with` block."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    with default_signals():
        for number in _SIGNALS:
            signal.signal(number, end)
        yield


@contextmanager
def default_signals() -> Iterator[None]:
    """Set Python's default signal handlers, and restore the previous handlers after the `with` block.

    Spark installs its own SIGINT handler. Without this function, it would remain after the Spark session has ended.
    """
    before = {number: signal.signal(number, handler) for number, handler in _SIGNALS.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
