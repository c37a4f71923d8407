"""`reput rebuild --follow`: what it shows, and how it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Event
from types import FrameType

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.progress import stderr_is_terminal
from reput.cli.rebuild_view import RebuildProgress, damage_lines, summary_text
from reput.cli.text import printable
from reput.config import StoreConfig
from reput.spark.follow import follow
from reput.spark.session import command_session
from reput.store.follow import FollowReport
from reput.store.rebuild.report import RebuildReport


def run_follow(
    store: str,
    output: str,
    config: StoreConfig | None,
    split_size: int | None,
    master: str,
    as_json: bool,
) -> int:
    """Follow until SIGINT or SIGTERM, which both end it in order; the exit code."""
    stop = Event()
    is_damaged = False

    def rebuilt(report: RebuildReport) -> None:
        nonlocal is_damaged
        progress.stop()
        is_damaged = bool(report.damage)
        for line in damage_lines(report):
            click.echo(f"reput: {line}", err=True)
        click.echo(summary_text(report), err=as_json)

    def carried_on(report: FollowReport) -> None:
        progress.stop()
        click.echo(
            f"{printable(output)} has every message before {report.position:,}; what comes from "
            f"{report.compared_from:,} on was compared with the CommitLog.",
            err=as_json,
        )

    def step(report: FollowReport) -> None:
        progress.stop()
        if stderr_is_terminal():
            text = f"\rup to {report.position:,}, {report.messages:,} messages followed"
            click.echo(text, nl=False, err=True)

    with RebuildProgress() as progress, command_session(master) as spark, _signals_set(stop):
        report = follow(
            spark, store, output, config=config, split_size=split_size, stop=stop,
            progress=progress, rebuilt=rebuilt, carried_on=carried_on, step=step,
        )  # fmt: skip
    if stderr_is_terminal():
        click.echo(err=True)
    for damage in report.damage:
        click.echo(f"reput: {printable(str(damage))}", err=True)
    click.echo(json.dumps(_as_json(report), indent=2) if as_json else _summary(output, report))
    return DAMAGED if report.damage or is_damaged else FOUND


@contextmanager
def _signals_set(stop: Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event for the time of the body."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_json(report: FollowReport) -> dict[str, object]:
    return {**asdict(report), "damage": [damage._asdict() for damage in report.damage]}


def _summary(output: str, report: FollowReport) -> str:
    lines = [
        f"Followed the CommitLog to {report.position:,}: {printable(output)} has every message before that. "
        f"{report.messages:,} messages, {report.keys:,} keys since the start."
    ]
    if report.expired_files:
        lines.append(
            f"The CommitLog begins at {report.log_begin:,} now: {report.expired_files:,} files "
            "of the indexes spoke of nothing but what has expired, and are gone."
        )
    return "\n".join([*lines, *(f"Note: {printable(note)}" for note in report.notes)])
