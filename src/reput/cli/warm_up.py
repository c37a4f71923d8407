"""Define the command `reput warm-up`."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from importlib.util import find_spec

import click

from reput.base import WITHOUT_SCRIPT
from reput.cli.main import FOUND

# Each module compiles different kernels, in a separate process. The longest compilation starts first.
_PARTS = (
    "reput.engine.stores.warm_up", "reput.engine.tables.warm_up", "reput.engine.tables.lookup.warm_up",
    "reput.engine.check.warm_up", "reput.wings.lakes.task", "reput.cli.warm_up_commands",
)  # fmt: skip


@click.command(
    "warm-up",
    short_help="Compile the kernels ahead of time.",
    epilog="\b\nExamples:\n  reput warm-up\n  reput warm-up --spark",
)
@click.option(
    "--spark", is_flag=True,
    help="Also archive the classes of Spark's JVM, so that local sessions of this user start sooner. "
    "It takes a minute of processor time, and 170 MB in the cache folder.",
)  # fmt: skip
def command(spark: bool) -> int:
    """Compile all kernels in parallel and cache them for later processes.

    Otherwise, each command compiles its kernels when it first runs after an installation, which takes about ten
    seconds. Run this command when you build an image, and on each machine of a cluster whose executors do not share an
    installation.
    """
    from reput.kernels.ahead import compile_all

    if find_spec("numba") is None:
        click.echo("Nothing to compile: without numba, kernels run as plain Python.")
        return FOUND
    begun = time.monotonic()
    compile_all(_PARTS)
    with ProcessPoolExecutor(len(_PARTS), mp_context=WITHOUT_SCRIPT) as pool:
        for part in as_completed([pool.submit(_warm_up, name) for name in _PARTS]):
            part.result()
    click.echo(f"Compiled the kernels in {time.monotonic() - begun:.1f} s.")
    if spark:
        from reput.spark.warm_up import archive_classes

        begun = time.monotonic()
        path = archive_classes()
        size = path.stat().st_size
        click.echo(
            f"Archived Spark's classes in {path}: {size:,} bytes, {time.monotonic() - begun:.1f} s."
        )
    return FOUND


def _warm_up(module: str) -> None:
    import_module(module).warm_up()
