"""`reput inspect`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import config_from, with_config_options
from reput.cli.output import console
from reput.cli.text import printable


@click.command(
    "inspect",
    short_help="Say what a store, or a file of one, holds.",
    epilog="\b\nExample:\n  reput inspect /data/store/index/20261120232222031",
)
@click.argument("path", metavar="PATH", type=click.Path(readable=False))
@with_config_options
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(
    path: str,
    broker_config: str | None,
    hash_slots: int | None,
    index_items: int | None,
    as_json: bool,
) -> int:
    """Say what PATH is and what it holds: a store, or any single file of one.

    Of a store: its ranges, sizes, topics, queues and IndexFiles, without reading them whole. Of a
    file: all that is in it. Of an IndexFile also the load of its slots, the lengths of its chains
    and every link that is broken; where it does not show how many slots and items it has, say so
    with the options.

    Exits with 3 when something in it is damaged.
    """
    from reput.cli.inspect_view import show
    from reput.verify.inspection import inspect

    config = config_from(broker_config, hash_slots=hash_slots, index_items=index_items)
    if broker_config:
        hash_slots, index_items = config.hash_slots, config.index_items
    found = inspect(path, config, hash_slots, index_items)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        show(found, console())
    for problem in found.problems:
        click.echo(f"reput: {printable(str(problem))}", err=True)
    return DAMAGED if found.problems else FOUND
