"""`reput report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import (
    config_options,
    given_config,
    page_option,
    queue_entries_option,
    read_store_argument,
    runner_options,
)
from reput.cli.output import check_page, write_page

if TYPE_CHECKING:
    from reput.operations.runners import Chosen


@click.command(
    "report",
    short_help="Write a store's findings and figures as one HTML page.",
    epilog="\b\nExamples:"
    "\n  reput report /data/store --output report.html"
    "\n  reput report /data/store --output report.html --quick",
)
@read_store_argument
@page_option(required=True)
@config_options
@queue_entries_option
@click.option("--quick", is_flag=True, help="Check names, sizes, headers, ends and samples only.")
@runner_options
def command(
    store: str,
    output: str,
    broker_config: str | None,
    queue_entries: int | None,
    quick: bool,
    chosen: Chosen,
    **sizes: int | None,
) -> int:
    """Write a page about STORE: what `reput check` finds and what `reput stats` measures, as charts.

    The page is one file without scripts, and needs no network. STORE is only read: checked first,
    then measured. The page is written when both are done.

    Exits with 0 when the store is valid, with 3 when it is damaged.
    """
    from reput.cli.progress import PhaseBars
    from reput.files.anchors import writing_to
    from reput.operations.report import report

    check_page(output, [store])
    config = given_config(store, broker_config, {"queue_entries": queue_entries, **sizes})
    opening: dict[str, Any] = {"broker_config": broker_config, **sizes}
    with writing_to(output, [store]):
        with PhaseBars(transient=True) as progress:
            found = report(
                store, quick=quick, check_config=config, runner=chosen, progress=progress, **opening
            )
        write_page(output, found.html())
    return FOUND if found.is_valid else DAMAGED
