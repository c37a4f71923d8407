"""Define the command `reput completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from reput.cli.main import FOUND

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    short_help="Print a script that completes commands, options and topics.",
    epilog="\b\nExamples:"
    '\n  eval "$(reput completion bash)"        # in ~/.bashrc'
    '\n  eval "$(reput completion zsh)"         # in ~/.zshrc'
    "\n  reput completion fish > ~/.config/fish/completions/reput.fish",
)
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> int:
    """Print a script that makes Tab complete commands, options, and topics of the given store."""
    from reput.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(cli, {}, "reput", "_REPUT_COMPLETE").source())
    return FOUND
