"""Run commands over several stores: handle options, output for people and monitoring, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from reput import cli
from reput.base import Report, Severity
from reput.cli.main import DAMAGED, FOUND, UNREAD, WARNED
from reput.cli.options import GivenStores
from reput.cli.output import print_json_lines
from reput.engine import stores as engine_stores
from reput.errors import UsageError

if TYPE_CHECKING:
    from reput.engine.stores import NamedStore

MONITORING = ("nagios", "prometheus")

fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["damage", "warning"]),
    default="warning",
    show_default=True,
    help="Lowest severity that makes the exit code other than 0.",
)
resume_option = click.option(
    "--resume",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Record each store's answer in FILE, and skip stores that FILE already has.",
)


limit_option = click.option(
    "--store-timeout",
    "limit_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Longest time for one of several stores; a store that takes longer is not read.",
)


def code_of(severity: Severity | None, fail_on: str = "warning") -> int:
    """Return the exit code for the worst severity. With `fail_on` "damage", warnings count as success."""
    if severity is Severity.DAMAGE:
        return DAMAGED
    return WARNED if severity is Severity.WARNING and fail_on == "warning" else FOUND


def answer_stores(
    operation: Callable[..., Any],
    targets: GivenStores | Sequence[NamedStore],
    layout: str,
    *,
    fail_on: str = "warning",
    resume: str | None = None,
    rows: Callable[[Report], Iterable[dict[str, Any]]] = lambda report: (),
    lines: Callable[[engine_stores.StoresReport[Any]], Iterable[str]] = lambda report: (
        report.lines()
    ),
    **options: Any,
) -> int:
    """Run an operation over several stores, print one answer, and return the exit code.

    Args:
        operation: A function of one store, which returns a report.
        targets: The stores.
        layout: "text"; "json" (one object); "jsonl" (the `rows` of each store as soon as the store is read, at the end
        a line per store and a line with the total); or a name in `MONITORING`.
        fail_on: "damage" or "warning".
        resume: A file with the answers of an interrupted run, which are reused; None for a new run.
        rows: Returns the lines of one store's report for "jsonl".
        lines: Returns the lines of the whole answer for "text".
        options: Further arguments of `over_stores`.
    """
    stores = targets.named() if isinstance(targets, GivenStores) else targets
    with cli.StoresBar(len(stores)) as advance:

        def on_answer(answer: engine_stores.StoreAnswer[Any]) -> None:
            advance(answer)
            if layout == "jsonl" and answer.report is not None:
                with advance.aside():
                    print_json_lines({"store": answer.store, **row} for row in rows(answer.report))

        report = engine_stores.over_stores(
            operation, stores, on_answer=on_answer, resume=resume, **options
        )
    return _print_stores(report, layout, fail_on, lines)


def _print_stores(
    report: engine_stores.StoresReport[Any],
    layout: str,
    fail_on: str,
    lines: Callable[[engine_stores.StoresReport[Any]], Iterable[str]],
) -> int:
    """Print the report of several stores, and return the exit code."""
    if layout == "nagios":
        status, code = engine_stores.nagios_status(report, Severity(fail_on))
        for line in engine_stores.nagios_lines(report, status):
            click.echo(line)
        return code
    if layout == "prometheus":
        for line in engine_stores.prometheus_lines(report.answers):
            click.echo(line)
    elif layout == "json":
        click.echo(json.dumps(report.as_dict()))
    elif layout == "jsonl":
        print_json_lines(report.coverage())
        print_json_lines({"finding": finding.as_json()} for finding in report.differing)
        click.echo(json.dumps({"total": report.total()}))
    else:
        for line in lines(report):
            click.echo(line)
    # A store that could not be read may be damaged, so this counts more than a warning.
    if report.counts[engine_stores.StoreState.NOT_READ] and report.severity is not Severity.DAMAGE:
        return UNREAD
    return code_of(report.severity, fail_on)


def refuse_settings(broker_config: str | None, sizes: dict[str, int | None]) -> None:
    """Raise UsageError if settings of one broker were given for several stores."""
    names = [
        name
        for name, value in {"broker_config": broker_config, **sizes}.items()
        if value is not None
    ]
    if names:
        raise UsageError(
            f"{', '.join(names)}: only for one store; a fleet file names the configuration of "
            f"each store (config)",
            arguments=names,
        )
