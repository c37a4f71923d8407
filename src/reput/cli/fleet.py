"""Define the command `reput fleet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reput.cli.many import MONITORING, answer_stores, fail_on_option, resume_option
from reput.cli.options import (
    GivenStores,
    config_options,
    report_format,
    runner_options,
    stores_argument,
)

if TYPE_CHECKING:
    from reput.engine.stores import Chosen


@click.command(
    "fleet",
    short_help="Print the state of each store of a cluster in one line.",
    epilog="\b\nExamples:"
    "\n  reput fleet --stores fleet.toml"
    "\n  reput fleet /brokers/*/store --format nagios --fail-on damage"
    "\n  reput fleet --stores fleet.toml --format prometheus > reput.prom",
)
@stores_argument
@config_options
@fail_on_option
@resume_option
@runner_options
@report_format(
    "jsonl",
    "Output format; jsonl has one store per line, nagios and prometheus are for monitoring.",
    MONITORING,
)
def command(
    given: GivenStores,
    fail_on: str,
    resume: str | None,
    chosen: Chosen,
    layout: str,
    **opening: Any,
) -> int:
    """Print one line per STORE, the worst first.

    The line shows the state, the newest message, growth, days until the disk is full, the share of the log that
    IndexFiles cover, the consumer group with the largest lag, the age of the oldest message that a group has not
    consumed, and the worst finding.

    The state is the result of `reput check --quick`, which checks names, sizes, headers, ends and samples. Nothing is
    written. Stores are read in parallel; stores with the same cluster and broker name are compared.

    Exits with 0 when all stores are valid, with 3 when messages or entries are lost or wrong (or a store could not be
    read), and with 5 when there are only warnings. With --format nagios, the exit codes are those of a Nagios plugin.
    """
    from reput.wings.fleet import survey
    from reput.wings.fleet.api import fleet_lines

    return answer_stores(
        survey, given.named(), layout, fail_on=fail_on, resume=resume, runner=chosen,
        rows=lambda report: [report.as_dict()], lines=fleet_lines, **opening,
    )  # fmt: skip
