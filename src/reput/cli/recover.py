"""Define the command `reput recover`."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from reput.base import counted, printable
from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import flag, own, owner_options, store_argument

if TYPE_CHECKING:
    from reput.engine.writer import RecoveryReport


@click.command(
    "recover",
    epilog="\b\nExamples:"
    "\n  reput recover /data/store"
    "\n  reput recover /data/store --broker-config broker.conf --format json"
    "\n  reput recover /data/store --as-broker",
)
@store_argument
@flag("--as-broker", "Remove readable messages after damage, as a broker does, and keep a copy.")
@owner_options
def command(
    store: str, as_broker: bool, layout: str, broker_config: str | None, **sizes: int | None
) -> int:
    """Recover STORE after a crash, as opening it for writing does, and report its state.

    The CommitLog ends where a broker would end it: in the files that a broker checks, at the first record that cannot
    be read or has a wrong CRC. The bytes after it are cleared. Missing entries of ConsumeQueues are written; every
    existing entry keeps its queue offset. In IndexFiles, missing entries are written, and wrong or
    duplicate ones are removed.

    If readable messages follow the damage, nothing is changed, unless a power cut explains the damage. reput repair
    --salvage keeps these messages. With --as-broker they are removed, and STORE/reput.cut gets a copy.

    Older files of the CommitLog are read only if the indexes must be compared with them. A line states how much was not
    read; reput check reads all. Damage there is only reported: all entries keep their queue offsets, also the entries
    of unreadable messages. If a message in the checked files has no entry and a wrong queue offset, nothing is changed.
    In this case, repair the store with reput repair.

    Stop the broker first: a store has one owner at a time. Missing files are created in the sizes
    of the existing ones. If no files exist and the broker does not use the default sizes, pass its
    settings.

    Exits with 3 if bytes were cut off the CommitLog, if ConsumeQueues had entries for messages after the CommitLog's
    end, or if a part of the CommitLog cannot be read.
    """
    begin = time.monotonic()
    with own(store, broker_config, as_broker, **sizes) as writer:
        report, seconds = writer.recovery, time.monotonic() - begin
    if layout == "json":
        click.echo(json.dumps(_as_json(report, seconds), indent=2))
    else:
        click.echo(_text(store, report, seconds))
    return DAMAGED if report.lost_messages or report.damage else FOUND


def _as_json(report: RecoveryReport, seconds: float) -> dict[str, object]:
    expired = report.expired_unindexed
    return {
        **asdict(report),
        "damage": [finding.as_json() for finding in report.damage],
        "expired_unindexed": None if expired is None else expired.as_json(),
        "seconds": round(seconds, 3),
    }


def _text(store: str, report: RecoveryReport, seconds: float) -> str:
    how = "was shut down cleanly" if report.is_clean else "was not shut down cleanly"
    lines = [f"{printable(store)} {how}; recovered in {seconds:,.1f} s"]
    return "\n".join([*lines, *(f"  {label:<13} {value}" for label, value in _rows(store, report))])


def _rows(store: str, report: RecoveryReport) -> Iterator[tuple[str, str]]:
    end = report.log_end
    read = _from("read", report.checked_from, end, "nothing read")
    yield "CommitLog", f"{report.log_begin:,} to {end:,}, {read}"
    # The comparison of the indexes also reads records, and reports each unreadable one.
    unread_bytes = min(report.checked_from, report.compared_from, end) - report.log_begin
    if unread_bytes > 0:
        command = f"reput check {shlex.quote(store)}"
        unread = counted(unread_bytes, "byte")
        yield "not read", f"{unread}; to find damage there: {command}"
    # A broker preallocates the next log file. Count deleted empty files separately, because nothing was lost with them.
    empty = len(report.empty_files)
    files = len(report.deleted_files) - empty
    unused = f"; {empty:,} preallocated deleted" if empty else ""
    yield "cut off", f"{counted(report.truncated_bytes, 'byte')}, {counted(files, 'file')}{unused}"
    if report.kept:
        yield (
            "copy",
            f"{counted(report.kept_messages, 'readable message')} in {printable(report.kept)}",
        )
    if report.queues_end > end:
        text = f"ConsumeQueues have entries for messages up to {report.queues_end:,}"
        yield "missing", f"{text}; the CommitLog ends before them"
    yield (
        "indexes",
        _from("compared with the CommitLog", report.compared_from, end, "nothing to compare"),
    )
    yield "ConsumeQueue", _from("dispatched again", report.queues_from, end, "complete")
    yield "IndexFile", _from("dispatched again", report.index_from, end, "complete")
    if report.entries_written:
        yield (
            "written",
            f"{counted(report.entries_written, 'entry', 'entries')} before the last entry of a queue, missing or wrong",
        )
    if report.entries_kept:
        yield "kept", f"{counted(report.entries_kept, 'entry', 'entries')} of unreadable messages"
    if report.damage:
        size = sum(finding.length for finding in report.damage)
        yield (
            "damage",
            f"{counted(len(report.damage), 'place')}, {counted(size, 'byte')} of the CommitLog cannot be read",
        )
    if report.expired_unindexed is not None:
        yield "lost", printable(str(report.expired_unindexed))
    for note in report.notes:
        yield "note", printable(note)


def _from(done: str, begin: int, end: int, otherwise: str) -> str:
    return f"{done} from {begin:,} on" if begin < end else otherwise
