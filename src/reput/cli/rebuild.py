"""`reput rebuild`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import config_from, store_argument, with_config_options
from reput.cli.sizes import size_option
from reput.errors import UsageError


@click.command(
    "rebuild",
    short_help="Make consumequeue/ and index/ again, on Spark.",
    epilog="\b\nExamples:"
    "\n  reput rebuild /data/store --broker-config broker.conf --output /mnt/rebuilt"
    "\n  reput rebuild /data/store --output /mnt/live --follow",
)
@store_argument
@click.option(
    "--only",
    type=click.Choice(["consumequeue", "index"]),
    help="Rebuild one of the two; leave the other as it is.",
)
@click.option(
    "--output", type=click.Path(), metavar="DIR", help="Write there and leave the store as it is."
)
@with_config_options
@click.option(
    "--queue-entries",
    type=int,
    metavar="N",
    help="Entries of a ConsumeQueue file (mappedFileSizeConsumeQueue / 20).",
)
@click.option(
    "--split-size",
    callback=size_option,
    metavar="SIZE",
    help="Bytes of CommitLog a task, such as 128MiB.",
)
@click.option("--master", default="local[*]", show_default=True, help="The Spark master to run on.")
@click.option(
    "--salvage",
    is_flag=True,
    help="Behind damage go on at the next record that proves itself, not at the next file.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Then carry it on beside whoever writes the log, until Ctrl-C; needs --output.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the closing summary as JSON.")
def command(
    store: str,
    only: Any,
    output: str | None,
    broker_config: str | None,
    split_size: int | None,
    master: str,
    salvage: bool,
    follow: bool,
    as_json: bool,
    **sizes: int | None,
) -> int:
    """Make consumequeue/ and index/ of STORE again from its commitlog/, on Spark.

    The files are the ones that a broker's own dispatch would have written. Their sizes are those of
    the files there are; where there are none any more, give the broker's settings unless they are
    its defaults. Stop the broker first, or use --output. Until the very end the old files stay in
    place; a run that was killed goes on where it was when it is started again.

    --follow keeps the indexes of a log that a broker is writing, or that is copied here from time to
    time: what is in --output is carried on, rebuilt first where there is nothing. It may be killed at
    any moment and started again. `reput query STORE --index DIR` finds what is in it at once.

    Exits with 3 when the CommitLog is damaged: what could be read is rebuilt, what could not is
    told.
    """
    if follow:
        if output is None:
            raise UsageError("--follow: needs --output, for the store is only read")
        if only or salvage:
            raise UsageError("--follow: not together with --only or --salvage")
    from reput.store.commit_log_files import list_commit_log_files
    from reput.store.rebuild.existing import config_of

    list_commit_log_files(store)  # starting Spark takes seconds; say at once that there is no store
    config = None
    if broker_config or any(size is not None for size in sizes.values()):
        config = config_from(broker_config, config_of(store), **sizes)
    if follow:
        from reput.cli.follow import run_follow

        return run_follow(store, str(output), config, split_size, master, as_json)
    from reput.cli.rebuild_view import RebuildProgress, damage_lines, summary_text
    from reput.spark.rebuild import rebuild
    from reput.spark.session import command_session

    with RebuildProgress() as progress, command_session(master) as spark:
        report = rebuild(
            spark, store, only=only, output=output, config=config,
            split_size=split_size, salvage=salvage, progress=progress,
        )  # fmt: skip
    for line in damage_lines(report):
        click.echo(f"reput: {line}", err=True)
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else summary_text(report))
    return DAMAGED if report.damage else FOUND
