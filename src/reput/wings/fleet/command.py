"""Define the command `reput fleet`."""

from __future__ import annotations

from typing import Any

import click

from reput import cli
from reput.engine.stores import Chosen
from reput.wings.fleet.survey import fleet_lines, survey
from reput.wings.fleet.thresholds import Thresholds

_threshold_options = cli.together(
    click.option(
        "--min-days", type=click.FloatRange(min=0), default=3.0, show_default=True,
        help="Warn if the disk is full sooner. A disk without room for one log file is always a warning.",
    ),
    click.option("--max-growth", type=cli.SIZE, help="Warn if the log grows by more per day."),
    click.option(
        "--max-lag", type=click.IntRange(min=0), help="Warn if a group has more unread messages."
    ),
    click.option(
        "--max-lag-age", type=cli.DURATION,
        help="Warn if a group has an older unread message.  [default: 1d in a store that a broker uses]",
    ),
    click.option("--max-age", type=cli.DURATION, help="Warn if the newest message is older."),
    click.option(
        "--max-proof-age", type=cli.DURATION, default="35d", show_default=True,
        help="Warn if a scrub has proved a file longer ago (reput check --scrub).",
    ),
)  # fmt: skip


@click.command(
    "fleet",
    epilog="\b\nExamples:"
    "\n  reput fleet --stores fleet.toml"
    "\n  reput fleet /brokers/*/store --format nagios --fail-on damage"
    "\n  reput fleet --stores fleet.toml --format prometheus > reput.prom",
)
@cli.stores_argument
@cli.config_options
@_threshold_options
@cli.fail_on_option
@cli.resume_option
@cli.limit_option
@cli.runner_options
@cli.all_formats(
    "jsonl",
    "Output format; jsonl has one store per line, nagios and prometheus are for monitoring.",
    further=cli.MONITORING,
    row="findings",
)
def fleet_command(
    targets: cli.GivenStores,
    min_days: float,
    max_growth: int | None,
    max_lag: int | None,
    max_lag_age: int | None,
    max_age: int | None,
    max_proof_age: int,
    fail_on: str,
    resume: str | None,
    limit_s: float | None,
    runner: Chosen,
    layout: str,
    **opening: Any,
) -> int:
    """Print one line per STORE, the worst first.

    The line shows the state, the newest message, growth, days until the disk is full, the share of the log that
    IndexFiles cover, the consumer group with the largest lag, the age of the oldest message that a group has not
    consumed, and the worst finding.

    The state is the result of `reput check --quick`, which checks names, sizes, headers, ends and samples, and of
    the limits below: a store beyond one is not ok. A figure that is unknown is shown as ?, and a line below the table
    has the reason. Nothing is written. Stores are read in parallel; stores with the same cluster and broker name are
    compared.

    Exits with 0 when all stores are valid, with 3 when messages or entries are lost or wrong, with 6 when one of
    several stores could not be read (and none is damaged), and with 5 when there are only warnings. With --format
    nagios, the exit codes are those of a Nagios plugin.
    """
    lag_age_s = None if max_lag_age is None else max_lag_age / 1000
    age_s = None if max_age is None else max_age / 1000
    limits = Thresholds(min_days, max_growth, max_lag, lag_age_s, age_s, max_proof_age / 1000)
    return cli.answer_stores(
        survey, targets.named(limit_s), layout, fail_on=fail_on, resume=resume, limit_s=limit_s, runner=runner,
        thresholds=limits,
        rows=lambda report: [report.as_dict()], lines=fleet_lines, **opening,
    )  # fmt: skip
