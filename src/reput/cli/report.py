"""`reput report`."""

from __future__ import annotations

from typing import Any

import click

from reput.cli.check import repair_command
from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import (
    given_config,
    open_from,
    queue_entries_option,
    read_store_argument,
    with_config_options,
)
from reput.cli.page_file import check_page, page_option, write_page
from reput.cli.runners import Chosen, opened_runner, runner_options


@click.command(
    "report",
    short_help="Write a store's findings and figures as one HTML page.",
    epilog="\b\nExamples:"
    "\n  reput report /data/store --output report.html"
    "\n  reput report /data/store --output report.html --quick",
)
@read_store_argument
@page_option(required=True)
@with_config_options
@queue_entries_option
@click.option("--quick", is_flag=True, help="Check names, sizes, headers, ends and samples only.")
@runner_options
def command(
    store: str,
    output: str,
    broker_config: str | None,
    queue_entries: int | None,
    quick: bool,
    runner: str | None,
    master: str | None,
    **sizes: int | None,
) -> int:
    """Write a page about STORE: what `reput check` finds and what `reput stats` measures, as charts.

    The page is one file without scripts, and needs no network. STORE is only read: checked first,
    then measured. The page is written when both are done.

    Exits with 0 when the store is valid, with 3 when it is damaged.
    """
    from reput.cli.pages.store_page import store_page
    from reput.cli.rebuild_view import RebuildProgress
    from reput.log.paths import log_bytes
    from reput.verify.check import check_store
    from reput.verify.stats import measure_store
    from reput.verify.warm_up import warm_up

    check_page(output, [store])
    config = given_config(store, broker_config, {"queue_entries": queue_entries, **sizes})
    chosen, size_bytes = Chosen(runner, master), 0 if quick else log_bytes(store)
    with (
        RebuildProgress(transient=True) as progress,
        opened_runner(chosen, size_bytes, warm_up) as tasks,
    ):
        findings = list(
            check_store(store, config=config, quick=quick, runner=tasks, progress=progress)
        )
    opening: dict[str, Any] = {"broker_config": broker_config, "index": None, **sizes}
    with open_from(store, **opening) as opened:
        figures = measure_store(opened)
    page = store_page(
        figures, findings, lambda finding: repair_command(finding, store), is_quick=quick
    )
    write_page(output, page)
    is_damaged = figures.damage or any(finding.is_wrong for finding in findings)
    return DAMAGED if is_damaged else FOUND
