"""Write docs/commands.md, the reference of all commands and options: python docs/site/commands.py."""

import sys
from pathlib import Path

import click

from reput.cli.main import cli

PAGE = Path(__file__).parents[1] / "commands.md"


def page() -> str:
    """Return the page: `--help` of every command."""
    parts = [
        "# Commands\n",
        "The `--help` of every command. [Exit codes](exit-codes.md) are the same for all.\n",
        _help(cli, "reput"),
    ]
    with click.Context(cli, info_name="reput") as parent:
        for name in cli.list_commands(parent):
            command = cli.get_command(parent, name)
            assert command is not None
            parts += [f"## reput {name}\n", _help(command, f"reput {name}")]
            for inner in command.list_commands(parent) if isinstance(command, click.Group) else ():
                found = command.get_command(parent, inner)
                assert found is not None
                parts += [f"### reput {name} {inner}\n", _help(found, f"reput {name} {inner}")]
    return "\n".join(parts)


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command, info_name=name, max_content_width=90, terminal_width=90,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    return f"```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(), end="")
    else:
        PAGE.write_text(page(), encoding="utf-8")
