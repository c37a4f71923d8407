"""Define the command `reput bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reput.cli.main import FOUND
from reput.cli.options import (
    config_options,
    given_config,
    report_format,
    runner_options,
    store_argument,
)
from reput.engine.stores import Chosen, opened_runner

if TYPE_CHECKING:
    from reput.wings.bench.driver import Figure

SCHEMA = "reput-bench/1"
"""Version of the JSON output; raised with every change that affects programs."""


@click.command(
    "bench",
    short_help="Measure the speed of reput with your store on this machine.",
    epilog="\b\nExamples:"
    "\n  reput bench /data/store"
    "\n  reput bench /data/store --scratch /mnt/fast --format json > bench.json",
)
@store_argument
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, writable=True),
    metavar="DIR",
    help="Parent directory of temporary indexes, which are deleted at the end.  [default: the system's]",
)
@config_options
@runner_options
@report_format("json")
def command(
    store: str,
    scratch: str | None,
    chosen: Chosen,
    broker_config: str | None,
    as_json: bool,
    **sizes: int | None,
) -> int:
    """Measure the speed of reput with STORE on this machine.

    Measures the machine's limits, a scan of the CommitLog, a rebuild of all indexes into a scratch
    directory, queries by key, and a bulk look-up of keys.

    STORE is only read. The scratch directory needs space for the indexes, about a fifth of the log. Its disk is
    measured as well. Stop other programs first. Run the command twice: the first run may read the log from disk, the
    second one reads it from the page cache.

    To measure only a part of a large store, make a directory with hard links to some of its commitlog files.
    """
    from reput.cli.progress import PhaseBars
    from reput.core import log_bytes
    from reput.engine.rebuild.warm_up import warm_up
    from reput.io import Location, Scratch
    from reput.wings.bench.driver import bench

    Location.refuse_url(store)
    size_bytes = log_bytes(store)
    config = given_config(store, broker_config, sizes)
    folder = Scratch.private_folder("reput-bench-", scratch)
    try:
        with PhaseBars() as progress, opened_runner(chosen, size_bytes, warm_up) as tasks:
            figures = list(bench(Path(store), folder, tasks, config, progress))
    finally:
        Scratch.discard(folder)
    if as_json:
        found = [figure.as_json() for figure in figures]
        click.echo(json.dumps({"schema": SCHEMA, "log_bytes": size_bytes, "figures": found}))
    else:
        _print(figures)
    return FOUND


def _print(figures: list[Figure]) -> None:
    from rich.table import Table

    from reput.cli.output import console, emit

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            table.add_row(group)
        digits = 0 if figure.value >= 1000 or figure.value.is_integer() else 2
        table.add_row(f"  {figure.name}", f"{figure.value:,.{digits}f}", figure.unit)
    emit(table, console())
