"""Run `reput rebuild --follow`: print its progress, and end it cleanly on signals."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from types import FrameType
from typing import Any

import click

from reput.base import Progress, StoreConfig, printable
from reput.cli.main import DAMAGED, FOUND
from reput.cli.output import say_waiting, stderr_is_terminal, warn
from reput.cli.progress import PhaseBars
from reput.engine.rebuild import FollowReport, RebuildReport, damage_lines
from reput.engine.rebuild.follow.operation import follow
from reput.engine.stores import Chosen

# The signals that end the run, each with Python's default handler for it.
_SIGNALS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


def run_follow(
    store: str,
    output: str,
    config: StoreConfig | None,
    split_size: int | None,
    chosen: Chosen,
    as_json: bool,
) -> int:
    """Follow a log until SIGINT or SIGTERM, and return the exit code."""
    stop = Event()
    view = _View(output, as_json)
    with signals_set(stop):
        report = follow(
            store, output, config=config, split_size=split_size, runner=chosen, shown=_rebuild_shown,
            stop=stop, on_wait=partial(say_waiting, store), on_rebuilt=view.rebuilt, on_resume=view.resumed,
            on_step=view.step,
        )  # fmt: skip
    view.end(report)
    return DAMAGED if report.damage or view.is_damaged else FOUND


@contextmanager
def _rebuild_shown() -> Iterator[Progress]:
    """Show progress bars during the first rebuild. A signal ends it at once, because a partial result is useless."""
    with _signals_kept(), PhaseBars() as progress:
        yield progress


class _View:
    """The output of one run.

    is_damaged: whether the first rebuild found damage
    """

    def __init__(self, output: str, as_json: bool) -> None:
        self._output, self._as_json = output, as_json
        self.is_damaged = False

    def rebuilt(self, report: RebuildReport) -> None:
        self.is_damaged = bool(report.damage)
        warn(*damage_lines(report.damage))
        click.echo(str(report), err=self._as_json)

    def resumed(self, report: FollowReport) -> None:
        click.echo(
            f"{printable(self._output)} has every message before {report.position:,}; "
            f"compared with the CommitLog from {report.compared_from:,} on.",
            err=self._as_json,
        )

    def step(self, report: FollowReport) -> None:
        if stderr_is_terminal():
            text = f"\rup to {report.position:,}, {report.messages:,} messages followed"
            click.echo(text, nl=False, err=True)

    def end(self, report: FollowReport) -> None:
        if stderr_is_terminal():
            click.echo(err=True)
        warn(*report.damage)
        if self._as_json:
            click.echo(json.dumps(report.as_dict(), indent=2))
        else:
            click.echo(str(report))


@contextmanager
def signals_set(stop: Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set the event, instead of ending the process, during the `with` block."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    with _signals_kept():
        for number in _SIGNALS:
            signal.signal(number, end)
        yield


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Set Python's default signal handlers, and restore the previous handlers after the `with` block.

    Spark installs its own SIGINT handler. Without this function, it would remain after the Spark session has ended.
    """
    before = {number: signal.signal(number, handler) for number, handler in _SIGNALS.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
