"""Errors name arguments; who types options reads options."""

import ast
from pathlib import Path

import click
import pytest

from reput.cli.arguments import option_of
from reput.cli.main import cli

SOURCE = Path(__file__).parents[2] / "src" / "reput"


def options() -> set[str]:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    parameters = [parameter for command in commands if command for parameter in command.params]
    return {text for each in parameters for text in (*each.opts, *each.secondary_opts)}


def named_arguments() -> set[str]:
    """What `arguments=[...]` lists anywhere in the source, as far as it is written out."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "arguments":
                values = ast.walk(node.value)
                found |= {v.value for v in values if isinstance(v, ast.Constant)}
    return {name for name in found if isinstance(name, str)}


@pytest.mark.parametrize("argument", sorted(named_arguments()))
def test_every_argument_that_an_error_names_has_an_option(argument: str) -> None:
    assert option_of(argument) in options()
