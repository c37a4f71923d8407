"""Define the commands `reput check` and `reput prove`. `check --scrub` checks again and again in small steps."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import click

from reput.base import Finding, Severity, printable
from reput.cli import many, options
from reput.cli.main import DAMAGED, FOUND
from reput.cli.output import warn
from reput.cli.progress import PhaseBars
from reput.engine import check as engine_check
from reput.engine.check import check, check_header, finding_fields, finding_lines
from reput.engine.stores import Chosen, NamedStore, stores_of
from reput.errors import ReputError, UsageError

# A store that takes less time is not read more often than once in this time.
_LEAST_PASS_S = 3600.0


@click.command(
    "check",
    epilog="\b\nExamples:"
    "\n  reput check /data/store"
    "\n  reput check /data/store --quick"
    "\n  reput check /backup/store --format jsonl > findings.jsonl"
    "\n  reput check --stores fleet.toml --quick --format nagios --fail-on damage"
    "\n  reput check --scrub --rate 20MB/s /data/store",
)
@options.stores_argument
@options.config_options
@options.queue_entries_option
@options.flag("--quick", "Check names, sizes, headers, ends and samples only.")
@options.flag(
    "--scrub", "Read the store for ever in small steps, and remember when each file was proved."
)
@click.option("--rate", type=options.RATE, help="Bytes per second of a scrub.  [default: 20MB/s]")
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    metavar="N",
    help="End a scrub after N passes over each store.",
)
@many.fail_on_option
@many.resume_option
@many.limit_option
@options.runner_options
@options.all_formats(
    "jsonl",
    "Output format; jsonl has one finding per line, nagios and prometheus are for monitoring.",
    further=many.MONITORING,
    row="kind",
)
def command(
    targets: options.GivenStores,
    broker_config: str | None,
    quick: bool,
    scrub: bool,
    rate: int | None,
    passes: int | None,
    fail_on: str,
    resume: str | None,
    limit_s: float | None,
    runner: Chosen,
    layout: str,
    **sizes: int | None,
) -> int:
    """Check STORE: every record and its CRC, every ConsumeQueue entry, every index entry.

    Nothing is written. Each finding describes the problem, its consequences, the reaction of a 4.9.3 broker at its next
    start, and the remedy. Findings are printed as they are found; repetitions are only counted. The store of a running
    broker is checked up to the last message that was dispatched when the check began. A store without damage is also
    searched for traces of known faults of brokers (reput state faults).

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
    store = targets.single
    if scrub:
        if quick or resume is not None or layout in many.MONITORING:
            raise UsageError(
                "--scrub: cannot be combined with --quick, --resume or a format for monitoring"
            )
        many.refuse_settings(broker_config, sizes)
        return _scrub_stores(targets.named(), rate, passes, layout == "jsonl", fail_on)
    if rate is not None or passes is not None:
        raise UsageError("--rate and --passes need --scrub")
    if store is None or resume is not None or layout in many.MONITORING or limit_s is not None:
        many.refuse_settings(broker_config, sizes)
        return many.answer_stores(
            check, targets.named(limit_s), layout, fail_on=fail_on, resume=resume, quick=quick, limit_s=limit_s,
            runner=runner,
            rows=lambda report: report.as_dict()["findings"],
        )  # fmt: skip
    return _check_store(store, broker_config, quick, runner, layout == "jsonl", fail_on, sizes)


def _check_store(
    store: str,
    broker_config: str | None,
    quick: bool,
    runner: Chosen,
    as_json: bool,
    fail_on: str,
    sizes: dict[str, int | None],
) -> int:
    config = options.given_config(store, broker_config, sizes)
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
            store, config=config, quick=quick, runner=runner, on_finding=show, progress=progress
        )
    if as_json:
        end = {"valid": report.is_valid, "findings": len(report.findings), **report.counts}
        if report.unread is not None:
            end["unread"] = report.as_dict()["unread"]
        click.echo(json.dumps(end))
    else:
        click.echo(report.last_line)
    return many.code_of(report.severity, fail_on)


def _scrub_stores(
    stores: Sequence[NamedStore],
    rate: int | None,
    passes: int | None,
    as_json: bool,
    fail_on: str,
) -> int:
    """Scrub the stores in turn: each once per pass. Return the exit code after the last pass.

    A store that cannot be read does not end the scrub of the others.
    """
    worst: set[Severity | None] = set()
    failed = False
    for number in range(1, passes + 1) if passes is not None else count(1):
        begun = time.monotonic()
        # A pattern may match other stores than in the last pass.
        for store in stores_of(stores):
            try:
                worst.add(_scrub_store(store, rate, as_json))
            except ReputError as error:
                failed = True
                warn(f"{store.name}: not read: {error}")
        if number != passes:
            time.sleep(max(begun + _LEAST_PASS_S - time.monotonic(), 0))
    if failed:
        return DAMAGED
    return many.code_of(Severity.worst(worst), fail_on)


def _scrub_store(store: NamedStore, rate: int | None, as_json: bool) -> Severity | None:
    path, settings = store.arguments()

    def show(finding: Finding) -> None:
        if as_json:
            click.echo(json.dumps({"store": store.name, **finding_fields(finding, path)}))
        else:
            for line in finding_lines(finding, path):
                click.echo(line)

    config = settings.get("config")
    report = engine_check.scrub(
        path, rate=rate or engine_check.DEFAULT_RATE, config=config, on_finding=show
    )
    if as_json:
        fields = {name: value for name, value in report.as_dict().items() if name != "findings"}
        click.echo(json.dumps({**fields, "store": store.name}))
    else:
        click.echo(f"{printable(store.name)}: {report.headline}")
    return report.severity


@click.command(
    "prove",
    epilog="\b\nExample:\n  reput prove /data/store",
)
@options.stores_argument
@options.reader_options
@many.resume_option
@options.runner_options
@options.all_formats("json")
def prove_command(
    targets: options.GivenStores, layout: str, resume: str | None, runner: Chosen, **opening: Any
) -> int:
    """Prove which part of the log each IndexFile of STORE covers, and remember the proofs.

    Queries and look-ups rely on these proofs. Without a proof they only spot-check an IndexFile.

    An IndexFile covers a range of the log if every key of every message in it has an entry that a
    look-up reaches. If the range has at most 64 MiB, all of it is read. For a larger range, all slots
    and entries of the IndexFile are checked; the log is read only where entries are far apart and at
    a thousand other positions. Proofs are kept in your cache folder (XDG_CACHE_HOME, or ~/.cache),
    and are valid until the file or the log changes. The proof of a file that is open for writing is
    not kept, as the file may change without a trace. The store is only read.

    Several STOREs, or those of a fleet file, are examined in parallel, with one line of output per
    store.

    Exits with 3 if an IndexFile does not cover all of the log between its first and its last message.
    """
    store = targets.single
    if store is None or resume is not None:
        return many.answer_stores(
            engine_check.prove, targets, layout, resume=resume, runner=runner, **opening
        )
    report = engine_check.prove(store, **opening)
    click.echo(json.dumps(report.as_dict(), indent=2) if layout == "json" else str(report))
    return FOUND if report.is_complete else DAMAGED
