"""`reput recover`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import store_argument
from reput.cli.owned import own, with_owner_options
from reput.cli.text import printable

if TYPE_CHECKING:
    from reput.store.recovery.report import RecoveryReport


@click.command(
    "recover",
    short_help="Bring a store in order that was not closed.",
    epilog="\b\nExamples:"
    "\n  reput recover /data/store"
    "\n  reput recover /data/store --broker-config broker.conf --format json",
)
@store_argument
@with_owner_options
def command(store: str, layout: str, broker_config: str | None, **sizes: int | None) -> int:
    """Bring STORE in order, as whoever opens it to write would, and say what was found.

    The CommitLog ends where a broker would end it: at the first record that cannot be read or whose
    CRC is wrong, of those that a broker looks at. What lies behind is cleared. ConsumeQueues and
    IndexFiles then have one entry for each message and key, whatever they had before.

    Stop the broker first: a store has one owner at a time. What is missing is made in the sizes of
    the files there are; where there are none any more, give the broker's settings unless they are
    its defaults.

    Exits with 3 when bytes were cut off the CommitLog.
    """
    begin = time.monotonic()
    with own(store, broker_config, **sizes) as opened:
        report, seconds = opened.recovery, time.monotonic() - begin
    if layout == "json":
        click.echo(json.dumps({**asdict(report), "seconds": round(seconds, 3)}, indent=2))
    else:
        click.echo(_text(store, report, seconds))
    return DAMAGED if report.truncated_bytes or report.deleted_files else FOUND


def _text(store: str, report: RecoveryReport, seconds: float) -> str:
    how = "was closed in order" if report.is_clean else "was not closed in order"
    lines = [f"{printable(store)} {how}; it is now, after {seconds:,.1f} s"]
    return "\n".join([*lines, *(f"  {label:<13} {value}" for label, value in _rows(report))])


def _rows(report: RecoveryReport) -> Iterator[tuple[str, str]]:
    end = report.log_end
    read = _from("read", report.checked_from, end, "nothing of it read")
    yield "CommitLog", f"{report.log_begin:,} to {end:,}, {read}"
    yield "cut off", f"{report.truncated_bytes:,} bytes, {len(report.deleted_files):,} files"
    yield "indexes", _from("compared with it", report.compared_from, end, "known to be good")
    yield "ConsumeQueue", _from("dispatched again", report.queues_from, end, "complete")
    yield "IndexFile", _from("dispatched again", report.index_from, end, "complete")
    for note in report.notes:
        yield "note", printable(note)


def _from(done: str, begin: int, end: int, otherwise: str) -> str:
    return f"{done} from {begin:,} on" if begin < end else otherwise
