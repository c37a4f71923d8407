"""Errors name arguments for users of Python, and options for users of the command line."""

import ast
from pathlib import Path

import click

from reput.cli.main import cli, option_of

# No command has these: they belong to the Python API, `reput.testing`, Spark SQL, or the console's requests, or are a
# value of an argument.
OTHERS = {
    "address",
    "contains",
    "copy_of",
    "dispatcher",
    "how",
    "look_up",
    "max_messages",
    "mode",
    "onCorrupt",
    "parts",
    "request",
    "seconds",
    "store",
}
SOURCE = Path(__file__).parents[2] / "src" / "reput"


def options() -> set[str]:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    parameters = [parameter for command in commands if command for parameter in command.params]
    options = {text for each in parameters for text in (*each.opts, *each.secondary_opts)}
    return options | {each.metavar for each in parameters if each.metavar}


def named_arguments() -> set[str]:
    """Return all names that appear in `arguments=[...]` anywhere in the source."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "arguments":
                values = ast.walk(node.value)
                found |= {v.value for v in values if isinstance(v, ast.Constant)}
    return {name for name in found if isinstance(name, str)}


def test_every_argument_that_an_error_names_has_an_option() -> None:
    named, given = named_arguments(), options()
    assert len(named) > 50
    assert sorted(name for name in named if option_of(name) not in given) == sorted(OTHERS)
