"""`reput check`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import (
    given_config,
    queue_entries_option,
    read_store_argument,
    with_config_options,
)
from reput.cli.runners import Chosen, opened_runner, runner_options
from reput.messages.text import printable
from reput.tasks import Runner, SerialRunner

if TYPE_CHECKING:
    from reput.findings import Finding


@click.command(
    "check",
    short_help="Check CommitLog, ConsumeQueues and IndexFiles against each other.",
    epilog="\b\nExamples:"
    "\n  reput check /data/store"
    "\n  reput check /data/store --quick"
    "\n  reput check /backup/store --json > findings.jsonl",
)
@read_store_argument
@with_config_options
@queue_entries_option
@click.option("--quick", is_flag=True, help="Look at names, sizes, headers, ends and samples only.")
@runner_options
@click.option("--json", "as_json", is_flag=True, help="Print findings as JSON lines.")
def command(
    store: str,
    broker_config: str | None,
    quick: bool,
    runner: str | None,
    master: str | None,
    as_json: bool,
    **sizes: int | None,
) -> int:
    """Check STORE: every record and its CRC, every ConsumeQueue entry, every index entry.

    Nothing is written. Each finding says what is wrong, what it costs, what a 4.9.3 broker would do
    about it at its next start, and what to do. Findings are printed as they are found; alike ones
    are counted. A store that a broker is writing is checked up to what had been dispatched when the
    check began.

    If its CommitLog lies in other folders (storePathCommitLog=a,b), give them after it: STORE,a,b.

    Exits with 0 when the store is valid, with 3 when it is damaged.
    """
    from reput.cli.rebuild_view import RebuildProgress
    from reput.verify.check import CHECK_SCHEMA, check_store

    config = given_config(store, broker_config, sizes)
    if as_json:
        mode = "quick" if quick else "full"
        click.echo(json.dumps({"schema": CHECK_SCHEMA, "store": store, "mode": mode}))
    findings = wrong = 0
    with (
        RebuildProgress(transient=True) as progress,
        _runner(store, Chosen(runner, master), quick) as tasks,
    ):
        for finding in check_store(
            store, config=config, quick=quick, runner=tasks, progress=progress
        ):
            findings += 1
            wrong += finding.is_wrong
            with progress.aside():
                click.echo(as_line(finding, store) if as_json else as_text(finding, store))
    if as_json:
        click.echo(json.dumps({"valid": not wrong, "findings": findings}))
    else:
        click.echo(_closing(wrong, quick))
    return DAMAGED if wrong else FOUND


@contextmanager
def _runner(store: str, chosen: Chosen, quick: bool) -> Iterator[Runner]:
    """Whoever runs the tasks; a quick check has none, and does not wait for kernels."""
    if quick:
        yield SerialRunner()
        return
    from reput.log.paths import log_bytes
    from reput.verify.warm_up import warm_up

    with opened_runner(chosen, log_bytes(store), warm_up) as tasks:
        yield tasks


def as_line(finding: Finding, store: str) -> str:
    """A finding as a line of JSON."""
    return json.dumps({**finding.as_json(), "command": repair_command(finding, store)})


def as_text(finding: Finding, store: str) -> str:
    """A finding in up to four lines: what, what it costs, what a broker does, what to do."""
    from reput.findings import Remedy

    lines = [f"{finding.severity}: {finding.kind}: {finding}"]
    if finding.cost:
        lines.append(f"    cost:         {finding.cost}")
    if finding.at_next_start:
        lines.append(f"    broker start: {finding.at_next_start}")
    command = repair_command(finding, store)
    if finding.remedy is Remedy.RESTORE_FILE and command:
        lines.append(f"    repair:       {finding.remedy}, or {command}")
    elif command or finding.remedy is not Remedy.NONE:
        lines.append(f"    repair:       {command or finding.remedy}")
    return "\n".join(printable(line) for line in lines)


def repair_command(finding: Finding, store: str) -> str:
    """The command that repairs it; empty where none does."""
    from reput.findings import Kind, Remedy

    options = {
        Kind.LOST_LOG_END: "",  # what is lost stays so, but the indexes need not lead there
        Kind.TORN_LOG_END: "--truncate-tail ",
        Kind.LOG_FILE_SIZE: "--truncate-tail --salvage ",
        Kind.UNREADABLE_RECORD: "--salvage ",
        Kind.RECORD_SIZE_MISMATCH: "--salvage ",
        Kind.BODY_CRC: "--salvage ",
    }.get(finding.kind)
    if options is None:
        if finding.remedy in (Remedy.NONE, Remedy.RESTORE_FILE):
            return ""
        options = ""
    return f"reput repair {options}{shlex.quote(store)}"


def _closing(wrong: int, quick: bool) -> str:
    if wrong:
        return "damaged"
    return "nothing found (only headers, ends and samples were looked at)" if quick else "valid"
