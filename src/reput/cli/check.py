"""`reput check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import (
    config_options,
    given_config,
    queue_entries_option,
    read_store_argument,
    report_format,
    runner_options,
)

if TYPE_CHECKING:
    from reput.findings import Finding
    from reput.operations.runners import Chosen


@click.command(
    "check",
    short_help="Check CommitLog, ConsumeQueues and IndexFiles against each other.",
    epilog="\b\nExamples:"
    "\n  reput check /data/store"
    "\n  reput check /data/store --quick"
    "\n  reput check /backup/store --format jsonl > findings.jsonl",
)
@read_store_argument
@config_options
@queue_entries_option
@click.option("--quick", is_flag=True, help="Look at names, sizes, headers, ends and samples only.")
@runner_options
@report_format("jsonl", "Output format; jsonl has one finding per line.")
def command(
    store: str,
    broker_config: str | None,
    quick: bool,
    chosen: Chosen,
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
    from reput.cli.progress import PhaseBars
    from reput.operations.check import check, finding_fields, finding_lines, header

    config = given_config(store, broker_config, sizes)
    if as_json:
        click.echo(json.dumps(header(store, quick)))
    with PhaseBars(transient=True) as progress:

        def show(finding: Finding) -> None:
            with progress.aside():
                for line in finding_lines(finding, store) if not as_json else ():
                    click.echo(line)
                if as_json:
                    click.echo(json.dumps(finding_fields(finding, store)))

        report = check(
            store, config=config, quick=quick, runner=chosen, on_finding=show, progress=progress
        )
    if as_json:
        click.echo(json.dumps({"valid": report.is_valid, "findings": len(report.findings)}))
    else:
        click.echo(report.verdict)
    return FOUND if report.is_valid else DAMAGED
