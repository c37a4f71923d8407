"""Define the commands `reput warm-up` and `reput completion`."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from importlib.util import find_spec

import click
from click.shell_completion import get_completion_class

from reput.base import WITHOUT_SCRIPT
from reput.cli.main import FOUND, cli
from reput.kernels.ahead import compile_all

# Each module compiles different kernels, in a separate process. The longest compilation starts first.
_PARTS = (
    "reput.engine.stores.warm_up", "reput.engine.tables.warm_up", "reput.engine.lookup.warm_up",
    "reput.engine.check.run", "reput.wings.lakes.task", "reput.wings.inspect.warm_up",
)  # fmt: skip
_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "warm-up",
    epilog="\b\nExamples:\n  reput warm-up\n  reput warm-up --spark",
)
@click.option(
    "--spark", is_flag=True,
    help="Also archive the classes of Spark's JVM, so that local sessions of this user start sooner. "
    "It takes a minute of processor time, and 170 MB in the cache folder.",
)  # fmt: skip
def warm_up_command(spark: bool) -> int:
    """Compile all kernels in parallel and cache them for later processes.

    Otherwise, each command compiles its kernels when it first runs after an installation, which takes about ten
    seconds. Run this command when you build an image, and on each machine of a cluster whose executors do not share an
    installation.
    """
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
        from reput.spark import archive_classes

        begun = time.monotonic()
        path = archive_classes()
        size = path.stat().st_size
        click.echo(
            f"Archived Spark's classes in {path}: {size:,} bytes, {time.monotonic() - begun:.1f} s."
        )
    return FOUND


def _warm_up(module: str) -> None:
    import_module(module).warm_up()


@click.command(
    "completion",
    epilog="\b\nExamples:"
    '\n  eval "$(reput completion bash)"        # in ~/.bashrc'
    '\n  eval "$(reput completion zsh)"         # in ~/.zshrc'
    "\n  reput completion fish > ~/.config/fish/completions/reput.fish",
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion_command(shell: str) -> int:
    """Print a script that makes Tab complete commands, options, and topics of the given store."""
    completion = get_completion_class(shell)
    assert completion is not None, shell
    click.echo(completion(cli, {}, "reput", "_REPUT_COMPLETE").source())
    return FOUND
