"""Define the command `reput check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reput.cli.many import (
    MONITORING,
    answer_stores,
    code_of,
    fail_on_option,
    limit_option,
    refuse_settings,
    resume_option,
)
from reput.cli.options import (
    RATE,
    GivenStores,
    all_formats,
    config_options,
    given_config,
    queue_entries_option,
    runner_options,
    stores_argument,
)
from reput.cli.scrubbing import scrub_stores
from reput.errors import UsageError

if TYPE_CHECKING:
    from reput.base import Finding
    from reput.engine.stores import Chosen


@click.command(
    "check",
    short_help="Check CommitLog, ConsumeQueues and IndexFiles against each other.",
    epilog="\b\nExamples:"
    "\n  reput check /data/store"
    "\n  reput check /data/store --quick"
    "\n  reput check /backup/store --format jsonl > findings.jsonl"
    "\n  reput check --stores fleet.toml --quick --format nagios --fail-on damage"
    "\n  reput check --scrub --rate 20MB/s /data/store",
)
@stores_argument
@config_options
@queue_entries_option
@click.option("--quick", is_flag=True, help="Check names, sizes, headers, ends and samples only.")
@click.option(
    "--scrub",
    is_flag=True,
    help="Read the store for ever in small steps, and remember when each file was proved.",
)
@click.option("--rate", type=RATE, help="Bytes per second of a scrub.  [default: 20MB/s]")
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    metavar="N",
    help="End a scrub after N passes over each store.",
)
@fail_on_option
@resume_option
@limit_option
@runner_options
@all_formats(
    "jsonl",
    "Output format; jsonl has one finding per line, nagios and prometheus are for monitoring.",
    others=MONITORING,
    row="kind",
)
def command(
    given: GivenStores,
    broker_config: str | None,
    quick: bool,
    scrub: bool,
    rate: int | None,
    passes: int | None,
    fail_on: str,
    resume: str | None,
    limit_s: float | None,
    chosen: Chosen,
    layout: str,
    **sizes: int | None,
) -> int:
    """Check STORE: every record and its CRC, every ConsumeQueue entry, every index entry.

    Nothing is written. Each finding describes the problem, its consequences, the reaction of a 4.9.3 broker at its next
    start, and the remedy. Findings are printed as they are found; repetitions are only counted. The store of a running
    broker is checked up to the last message that was dispatched when the check began.

    Several STOREs, or those of a fleet file, are checked in parallel. The command then prints one
    line per store, the worst first, and the counts. Stores with the same cluster and broker name
    are compared.

    --scrub proves every file again and again. One pass is a check in small steps. A scrub that was stopped, or killed,
    continues where it stopped. A pass that ends early waits until an hour has passed since it began. `reput fleet` and
    the metrics of `reput serve` have the age of the last proof of each file, and the damage that the scrub has found,
    if the same user runs them.

    If the CommitLog of STORE is in other folders (storePathCommitLog=a,b), write STORE,a,b.

    Exits with 0 when the store is valid, with 3 when messages or entries are lost or wrong, with 6 when one of several
    stores could not be read (and none is damaged), and with 5 when there are only warnings, such as an unclean
    shutdown. With --format nagios, the exit codes are those of a Nagios plugin: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """
    from reput.engine.check import check

    store = given.one
    if scrub:
        if quick or resume is not None or layout in MONITORING:
            raise UsageError("scrub: pass neither quick nor resume nor a format for monitoring")
        refuse_settings(broker_config, sizes)
        return scrub_stores(given.named(), rate, passes, layout == "jsonl", fail_on)
    if rate is not None or passes is not None:
        raise UsageError("rate, passes: only with scrub", arguments=["rate", "passes"])
    if store is None or resume is not None or layout in MONITORING or limit_s is not None:
        refuse_settings(broker_config, sizes)
        return answer_stores(
            check, given.named(limit_s), layout, fail_on=fail_on, resume=resume, quick=quick, limit_s=limit_s,
            runner=chosen,
            rows=lambda report: report.as_dict()["findings"],
        )  # fmt: skip
    return _check_one(store, broker_config, quick, chosen, layout == "jsonl", fail_on, sizes)


def _check_one(
    store: str,
    broker_config: str | None,
    quick: bool,
    chosen: Chosen,
    as_json: bool,
    fail_on: str,
    sizes: dict[str, int | None],
) -> int:
    from reput.cli.progress import PhaseBars
    from reput.engine.check import check, check_header, finding_fields, finding_lines

    config = given_config(store, broker_config, sizes)
    if as_json:
        click.echo(json.dumps(check_header(store, quick)))
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
        end = {"valid": report.is_valid, "findings": len(report.findings), **report.counts}
        if report.unread is not None:
            end["unread"] = report.as_dict()["unread"]
        click.echo(json.dumps(end))
    else:
        click.echo(report.last_line)
    return code_of(report.severity, fail_on)
