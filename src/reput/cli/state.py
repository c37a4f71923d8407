"""`reput state`: what a broker keeps beside the messages, most of it by 5.x brokers."""

from __future__ import annotations

import click

from reput.cli.main import _STATE, command_of


class _StateGroup(click.Group):
    """Imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_STATE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name) if cmd_name in _STATE else None


@click.group(
    "state",
    cls=_StateGroup,
    short_help="Show lag, open transactions, timers, pops, compacted and tiered messages.",
    epilog="\b\nExamples:\n  reput state lag /data/store\n  reput state timer /data/store --all",
)
def command() -> None:
    """Show what a broker keeps beside the messages of a store: consumer lag, transactions, timers, pops."""
