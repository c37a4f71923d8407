"""--format takes text, json, jsonl and csv in every command, and the last three have the same objects."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from reput.cli.main import DAMAGED, cli
from reput.cli.options import FORMATS
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield all commands, also of groups."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())


def test_every_format_option_takes_the_four_forms() -> None:
    found = {}
    for name, command in commands():
        for parameter in command.params:
            if "--format" in parameter.opts and isinstance(parameter.type, click.Choice):
                found[name] = set(parameter.type.choices)
    assert len(found) > 25
    # The output of a look-up is a table of many columns, which has no text form.
    few = {name: taken for name, taken in found.items() if not taken.issuperset(FORMATS)}
    assert few == {"lookup": {"parquet", "jsonl", "csv"}}


READING = [
    ("query", ("--key", "order-100377")), ("find", ("53821",)), ("tail", ("-n", "3")), ("show", ("53821",)),
    ("trace", ("--key", "order-100377")), ("fleet", ()), ("inspect", ()), ("stats", ()), ("diff", ("{}",)),
    ("state lag", ()), ("state transactions", ()),
]  # fmt: skip


@pytest.mark.parametrize(("command", "options"), READING, ids=[name for name, _ in READING])
def test_the_forms_have_the_same_objects(
    golden: Golden, command: str, options: tuple[str, ...]
) -> None:
    store = str(golden("orders").path)

    def out(layout: str) -> tuple[int, str]:
        given = [one.replace("{}", store) for one in options]
        ran = reput(*command.split(), store, *given, "--format", layout)
        return ran.code, ran.out

    (code, text), (code_of_lines, lines), (code_of_csv, rows) = map(out, ("json", "jsonl", "csv"))
    assert code == code_of_lines == code_of_csv
    found: Any = json.loads(text)
    objects = found if isinstance(found, list) else [found]
    assert len(lines.splitlines()) == len(objects)
    fixed = ("surveyed_ms", "query_s")
    for line, one in zip(lines.splitlines(), objects, strict=True):
        assert {k: v for k, v in json.loads(line).items() if k not in fixed} == {
            k: v for k, v in one.items() if k not in fixed
        }
    table = list(csv.DictReader(io.StringIO(rows)))
    assert all(None not in row and None not in row.values() for row in table)
    # A header or a total is no row.
    assert len(table) <= len(objects)


def test_csv_of_a_check_has_a_row_per_finding(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    next((store / "index").iterdir()).unlink()
    ran = reput("check", store, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert ran.code == DAMAGED
    assert [row["kind"] for row in rows] == [
        json.loads(line)["kind"]
        for line in reput("check", store, "--format", "jsonl").lines
        if "kind" in line
    ]


def test_a_failure_prints_what_was_found_before_it(tmp_path: Path) -> None:
    write_log(tmp_path, [MESSAGE])
    ran = reput("query", tmp_path, "--topic", "no topic", "--key", "k", "--format", "json")
    assert json.loads(ran.out) == []


def test_messages_of_an_export_to_stdout_are_apart_from_its_summary(tmp_path: Path) -> None:
    write_log(tmp_path, [MESSAGE])
    for layout in FORMATS:
        ran = reput("export", tmp_path, "-", "--to", "jsonl", "--format", layout)
        assert [json.loads(line)["topic"] for line in ran.lines] == [MESSAGE.topic], layout
        assert "1" in ran.err
