"""Define the command `reput stats`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.many import answer_stores, resume_option
from reput.cli.options import (
    GivenStores,
    archived_stores_argument,
    reader_options,
    report_format,
    runner_options,
)
from reput.cli.output import warn

if TYPE_CHECKING:
    from reput.engine.stores import Chosen


@click.command(
    "stats",
    short_help="Measure a store: topics, queues, keys, IndexFiles, growth.",
    epilog="\b\nExamples:"
    "\n  reput stats /data/store"
    "\n  reput stats /data/store --format json > stats.json"
    "\n  reput stats /brokers/*/store",
)
@archived_stores_argument
@reader_options
@resume_option
@runner_options
@report_format("json")
def command(
    given: GivenStores, as_json: bool, resume: str | None, chosen: Chosen, **opening: Any
) -> int:
    """Print statistics of the messages and indexes of STORE.

    The statistics are: messages and bytes by topic, over time and by queue; frequent keys and tags;
    retries and dead letters; coverage and chain lengths of the IndexFiles; and when the disk will
    be full.

    Several STOREs, or those of a fleet file, are measured in parallel. The command then prints one
    line per store and the sums; --format json has all figures of each store.

    The whole log is read once. Nothing is written. Exits with 3 if a part of the log could not be
    read; the figures exclude that part.
    """
    from reput.wings.inspect.api import stats

    store = given.one
    if store is None or resume is not None:
        layout = "json" if as_json else "text"
        return answer_stores(stats, given, layout, resume=resume, runner=chosen, **opening)
    report = stats(store, **opening)
    click.echo(json.dumps(report.as_dict()) if as_json else str(report))
    warn(*report.figures.damage)
    return FOUND if report.is_complete else DAMAGED
