"""Print the rows of an IndexFile for `reput inspect --slots`, `--items` and `--chain`.

Rows are printed while the file is read, because an IndexFile may have millions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

import click

from reput.cli.main import FOUND, NOT_FOUND
from reput.clock import format_time
from reput.errors import UsageError
from reput.examine.index_listing import ItemRow, SlotRow, chain_of, list_items, list_slots
from reput.files.storage import Storage
from reput.index.geometry import IndexGeometry

_TOGETHER = 1 << 10
_SLOT = "{:>10}  {:>11}  {:>11}"
_SLOT_NAMES = ("slot", "at byte", "newest item")
_ITEM = "{:>10}  {:>11}  {:>10}  {:>10}  {:>17}  {:>10}  {:<24}  {:>10}"
_ITEM_NAMES = (
    "item", "at byte", "key hash", "slot", "physical offset", "time (s)", "stored", "previous",
)  # fmt: skip

IndexFileAt = tuple[str, IndexGeometry, Storage]
_Row = TypeVar("_Row", SlotRow, ItemRow)


def print_slots(file: IndexFileAt, as_json: bool) -> int:
    """Print every used slot, and return the exit code."""
    return _print(list_slots(*file), _slot_line, _SLOT.format(*_SLOT_NAMES), as_json)


def print_items(file: IndexFileAt, as_json: bool) -> int:
    """Print every item, and return the exit code."""
    return _print(list_items(*file), _item_line, _ITEM.format(*_ITEM_NAMES), as_json)


def print_chain(file: IndexFileAt, text: str, as_json: bool) -> int:
    """Print the chain of `TOPIC#KEY`, newest item first; return NOT_FOUND if no item has the key's hash."""
    topic, joined, key = text.partition("#")
    if not joined:
        raise UsageError(f"--chain {text}: write the topic before the key, as TOPIC#KEY")
    path, geometry, storage = file
    chain = chain_of(path, geometry, topic, key, storage)
    matches = 0

    def counted() -> Iterator[ItemRow]:
        nonlocal matches
        for row in chain.items:
            matches += row.key_hash == chain.key_hash
            yield row

    def line(row: ItemRow) -> str:
        return _item_line(row) + ("  *" if row.key_hash == chain.key_hash else "")

    if not as_json:
        slot, at, newest = chain.slot
        click.echo(f"key hash {chain.key_hash}, slot {slot} at byte {at}, newest item {newest}")
    _print(counted(), line, _ITEM.format(*_ITEM_NAMES), as_json)
    if not as_json:
        click.echo(f"{matches} {'item has' if matches == 1 else 'items have'} the key's hash (*)")
    return FOUND if matches else NOT_FOUND


def _slot_line(row: SlotRow) -> str:
    return _SLOT.format(*row)


def _item_line(row: ItemRow) -> str:
    return _ITEM.format(*row[:6], format_time(row.store_timestamp), row.previous)


def _print(rows: Iterator[_Row], line: Callable[[_Row], str], header: str, as_json: bool) -> int:
    """Print a header and a line per row, or a JSON object per row; return the exit code."""
    if not as_json:
        click.echo(header)
    while some := [
        json.dumps(row._asdict()) if as_json else line(row) for row in islice(rows, _TOGETHER)
    ]:
        click.echo("\n".join(some))
    return FOUND
