"""Print the JSON of a command in the other forms of --format.

Each command prints text, and one form for programs: an object (json), or an object per line (jsonl). The other forms
have the same objects. `json` of lines is an array. `jsonl` has each object on a line. `csv` has a row per object, and
names the fields of nested objects with dots (`message.topic`).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import Any, Literal

import click

from reput.base import Report
from reput.engine.messages import csv_line

_NEXT = re.compile(r"\S")
Machine = Literal["json", "jsonl"]


def run_as(layout: str, machine: Machine, row: str | None, command: Callable[[], Any]) -> Any:
    """Run a command that prints JSON, and print its objects as `layout`. Return the command's exit code.

    Args:
        layout: One of the four forms, except "text" and `machine`.
        machine: The form that the command prints.
        row: The field that only objects with a result have. csv omits the other objects, such as a header.
        command: Runs the command.
    """
    # The objects of a command that fails half way, or is interrupted, are printed as well.
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", newline="")
    try:
        with redirect_stdout(printed):
            code = command()
    finally:
        printed.flush()
        buffer = printed.buffer
        buffer.seek(0)
        text = buffer.read().decode("utf-8", "replace")
        if layout == "json":
            lines = (
                text.rstrip("\n").split("\n") if text and machine == "jsonl" else [text.rstrip()]
            )
            click.echo(_array(lines).encode())
        elif layout == "jsonl":
            for item in _objects(text):
                click.echo(json.dumps(item, ensure_ascii=False).encode())
        else:
            print_csv([item for item in _objects(text) if row is None or row in item])
    return code


def _array(lines: list[str]) -> str:
    return "[\n" + ",\n".join(lines) + "\n]" if lines != [""] else "[]"


def _objects(text: str) -> Iterator[Any]:
    """Yield the objects of JSON lines, or of consecutive objects. The objects of an array are yielded one by one."""
    decoder, position = json.JSONDecoder(), 0
    while match := _NEXT.search(text, position):
        value, position = decoder.raw_decode(text, match.start())
        yield from value if isinstance(value, list) else [value]


def print_report(report: Report, layout: str, *, err: bool = False) -> None:
    """Print a report in one of the four forms, on stdout or stderr."""
    if layout == "csv":
        print_csv([report.as_dict()], err=err)
        return
    indent = None if layout == "jsonl" else 2
    text = str(report) if layout == "text" else json.dumps(report.as_dict(), indent=indent)
    click.echo(text, err=err)


def print_csv(objects: list[Any], *, err: bool = False) -> None:
    """Print a header with all fields of the objects, and a row per object."""
    rows = [dict(_cells(item)) for item in objects]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if names:
        click.echo(csv_line(names).encode(), nl=False, err=err)
    for row in rows:
        click.echo(csv_line([row.get(name) for name in names]).encode(), nl=False, err=err)


def _cells(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for name, field in value.items():
        if isinstance(field, Mapping):
            yield from _cells(field, f"{prefix}{name}.")
        elif field is None or isinstance(field, str):
            yield prefix + name, field
        else:
            yield prefix + name, json.dumps(field, ensure_ascii=False)
