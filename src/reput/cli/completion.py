"""`reput completion`, and the completion of topics."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, get_completion_class

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
    """Print a script for SHELL, after which Tab completes commands, options, and topics of the given store."""
    from reput.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(cli, {}, "reput", "_REPUT_COMPLETE").source())
    return FOUND


def complete_topics(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the topics of the store that stands before the option on the command line."""
    from reput.format.file_names import BATCH_QUEUE_FOLDER, CONSUME_QUEUE_FOLDER

    # An option that still lacks its value ends the parsing: the arguments before it are left over.
    given = ctx.params.get("store") or ctx.params.get("stores") or tuple(ctx.args)
    topics: set[str] = set()
    for store in [given] if isinstance(given, str) else given:
        for kind in (CONSUME_QUEUE_FOLDER, BATCH_QUEUE_FOLDER):
            folder = os.path.join(store, kind)
            if os.path.isdir(folder):
                topics.update(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [CompletionItem(topic) for topic in sorted(topics) if topic.startswith(incomplete)]
