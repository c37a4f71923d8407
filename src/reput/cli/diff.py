"""`reput diff`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import open_from, with_config_options
from reput.errors import UsageError
from reput.messages.text import printable

if TYPE_CHECKING:
    from reput.verify.comparing.difference import Difference, Example

SCHEMA = "reput-diff/1"
"""Raised with every change that a program would have to know of; see docs/diff.md."""
SAME, DIFFERENT = FOUND, 1
_PARTS = (
    ("message", "messages"),
    ("queue_entry", "ConsumeQueue entries"),
    ("index_entry", "index entries"),
    ("header", "IndexFile headers"),
)


@click.command(
    "diff",
    short_help="Compare two stores, or a store and an export.",
    epilog="\b\nExamples:"
    "\n  reput diff /data/store /backup/store"
    "\n  reput diff /data/store /lake/messages"
    "\n  reput diff /master/store /replica/store --json",
)
@click.argument("a", metavar="A", type=click.Path())
@click.argument("b", metavar="B", type=click.Path())
@with_config_options
@click.option(
    "--name", help="The store's name in the export.  [default: its path, or the same log]"
)
@click.option("--catalog", help="The catalog of an Iceberg export.")
@click.option("--table", help="The table of an Iceberg export.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    a: str,
    b: str,
    name: str | None,
    catalog: str | None,
    table: str | None,
    as_json: bool,
    **opening: Any,
) -> int:
    """Compare the messages, ConsumeQueue entries, index entries and IndexFile headers of stores A and B.

    Two copies of one log are compared by physical offset; other stores by topic, queue and queue
    offset, and then a message's content is all of its record but the physical offset. Counts come
    first, then examples. Nothing is written.

    One of the two may be a Parquet, Iceberg or Delta table that `reput export` wrote: then its rows
    are compared with the messages of the store, column by column.

    Exits with 0 if the stores are the same, with 1 if they differ, with 3 if a part of one could not
    be read.
    """
    from reput.export.control_folder import format_of

    for path in (a, b):
        if os.path.isfile(path):
            raise UsageError(
                f"{path}: a file; compare stores, or a store with a Parquet, Iceberg or Delta table"
            )
    exports = [format_of(path) is not None for path in (a, b)]
    if any(exports):
        found = _with_export(a, b, exports, name, catalog=catalog, table=table)
    elif name or catalog or table:
        raise UsageError("--name, --catalog, --table are about an export; neither A nor B is one")
    else:
        from reput.verify.diff import diff

        with (
            open_from(a, index=None, **opening) as left,
            open_from(b, index=None, **opening) as right,
        ):
            found = diff(left, right)
    if as_json:
        click.echo(json.dumps(as_fields(found, a, b)))
    else:
        _print(found, a, b)
    for side in found.damage:
        for lost in side:
            click.echo(f"reput: {printable(str(lost))}", err=True)
    if found.is_damaged:
        return DAMAGED
    return SAME if found.is_same else DIFFERENT


def _with_export(
    a: str, b: str, exports: list[bool], name: str | None, **options: str | None
) -> Difference:
    from reput.export.comparing import diff_export
    from reput.export.tables.reading import open_export

    if all(exports):
        raise UsageError("A and B are exports; compare one with the store that it was made of")
    store, folder = (b, a) if exports[0] else (a, b)
    return diff_export(store, open_export(folder, **options), name, store_is_b=exports[0])


def as_fields(found: Difference, a: str, b: str) -> dict[str, Any]:
    """The whole result; docs/diff.md describes the fields."""
    from reput.verify.comparing.difference import Part, What

    return {
        "schema": SCHEMA,
        "a": a,
        "b": b,
        "same": found.is_same,
        "way": found.way,
        "logs": [extent._asdict() for extent in found.logs],
        "equal_bytes": found.equal_bytes,
        "equal_messages": found.equal_messages,
        "counts": {part: {what: found.counts[part, what] for what in What} for part in Part},
        "before_the_other": found.expired,
        "after_the_other": found.behind,
        "examples": [example._asdict() for example in found.examples],
        "notes": found.notes,
        "unreadable": [[lost.as_json() for lost in side] for side in found.damage],
    }


def _print(found: Difference, a: str, b: str) -> None:
    counted = as_fields(found, a, b)["counts"]
    for name, store, extent in zip("AB", (a, b), found.logs, strict=True):
        click.echo(f"{name}: {printable(store)}, log from {extent.begin:,} to {extent.end:,}")
    how = {
        "by_offset": "Copies of one log, compared by physical offset.",
        "by_queue": "Compared by topic, queue and queue offset.",
        "by_row": "A store and an export, compared by physical offset, column by column.",
    }
    click.echo(how[found.way])
    if found.equal_bytes:
        click.echo(
            f"Files of the log that are the same, byte for byte: {found.equal_bytes:,} bytes."
        )
    click.echo(f"\n{'':22}{'only in A':>14}{'only in B':>14}{'different':>14}")
    for part, words in _PARTS[:1] if found.way == "by_row" else _PARTS:
        counts = counted[part].values()
        click.echo(f"{words:22}" + "".join(f"{count:>14,}" for count in counts))
    click.echo()
    for line in _remarks(found):
        click.echo(printable(line))
    for example in found.examples:
        click.echo(printable(_example_in_words(example)))
    what = "messages" if found.way == "by_row" else "stores"
    click.echo(f"The {what} are the same." if found.is_same else f"The {what} differ.")


def _remarks(found: Difference) -> list[str]:
    lines = []
    for name, other, before, after in zip("AB", "BA", found.expired, found.behind, strict=True):
        if before:
            lines.append(f"{before:,} messages of {name} lie before {other} begins: expired there.")
        if after:
            lines.append(
                f"{after:,} messages of {name} lie after the end of {other}: {other} is older, or cut short."
            )
    return lines + [f"Note: {note}." for note in found.notes]


def _example_in_words(example: Example) -> str:
    """`message only in A: orders, queue 1, queue offset 7 (offset 4711)`."""
    a, b = example.physical_offset_a, example.physical_offset_b
    offsets = ""
    if a is not None and b is not None and a != b:
        offsets = f" (offset {a} in A, {b} in B)"
    elif a is not None or b is not None:
        offsets = f" (offset {a if a is not None else b})"
    words = f"{example.part} {example.what}".replace("_", " ")
    words = words.replace("only in a", "only in A").replace("only in b", "only in B")
    detail = f": {example.detail}" if example.detail else ""
    return f"{words}: {example.place}{offsets}{detail}"
