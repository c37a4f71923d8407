"""Print rows of an IndexFile or a queue: `reput inspect --slots`, `--items`, `--chain`, `--entries` and `--at`.

Rows are printed while the file is read, because a file may have millions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import click

from reput.base import counted, format_time, printable
from reput.cli import FOUND, NOT_FOUND
from reput.core import IndexGeometry
from reput.errors import UsageError
from reput.format.java_string import decimal_number
from reput.io import Storage
from reput.wings.inspect.index_listing import ItemRow, SlotRow, chain_of, list_items, list_slots
from reput.wings.inspect.queue_listing import LAST_OFFSET, EntryRow, QueueListing

_TOGETHER = 1 << 10
_SLOT = "{:>10}  {:>11}  {:>11}"
_SLOT_NAMES = ("slot", "at byte", "newest item")
_ITEM = "{:>10}  {:>11}  {:>10}  {:>10}  {:>17}  {:>10}  {:<24}  {:>10}"
_ITEM_NAMES = (
    "item", "at byte", "key hash", "slot", "physical offset", "time (s)", "stored", "previous",
)  # fmt: skip

_ENTRY = "{:>12}  {:>15}  {:>17}  {:>10}  {:>20}  {}"
_ENTRY_NAMES = ("queue offset", "logical offset", "physical offset", "size", "tags code", "meaning")

IndexFileAt = tuple[str, IndexGeometry, Storage]
_Row = TypeVar("_Row", SlotRow, ItemRow, EntryRow)


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

    def counted_rows() -> Iterator[ItemRow]:
        nonlocal matches
        for row in chain.items:
            matches += row.key_hash == chain.key_hash
            yield row

    def line(row: ItemRow) -> str:
        return _item_line(row) + ("  *" if row.key_hash == chain.key_hash else "")

    if not as_json:
        slot, at, newest = chain.slot
        click.echo(f"key hash {chain.key_hash}, slot {slot} at byte {at}, newest item {newest}")
    _print(counted_rows(), line, _ITEM.format(*_ITEM_NAMES), as_json)
    if not as_json:
        click.echo(f"{counted(matches, 'item', verb='has')} the key's hash (*)")
    return FOUND if matches else NOT_FOUND


def print_entries(
    listing: QueueListing, entries: str | None, logical_offset: int | None, as_json: bool
) -> int:
    """Print entries of a queue: a range of queue offsets, both inclusive, or the entry at a byte of the queue.

    Returns:
        The exit code; NOT_FOUND if there is no entry.

    Raises:
        UsageError: the range is malformed.
    """
    if logical_offset is not None:
        rows = listing.rows_at(logical_offset)
    else:
        first, last = _range_of(entries or "-")
        rows = listing.rows(first, last + 1)
    printed = 0

    def counted_rows() -> Iterator[EntryRow]:
        nonlocal printed
        for row in rows:
            printed += 1
            yield row

    _print(counted_rows(), _entry_line, _ENTRY.format(*_ENTRY_NAMES), as_json)
    return FOUND if printed else NOT_FOUND


def _range_of(text: str) -> tuple[int, int]:
    """Return the bounds of FROM-TO, both inclusive. Either may be omitted; a single number is a range of one."""
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    begin = decimal_number(first or "0", 19)
    end = decimal_number(last or str(LAST_OFFSET - 1), 19)
    if begin is None or end is None:
        raise UsageError(f"--entries {text}: write queue offsets as FROM-TO, for example 0-99")
    if begin > end:
        raise UsageError(f"--entries {text}: the first queue offset is after the last one")
    return begin, min(end, LAST_OFFSET - 1)


def _entry_line(row: EntryRow) -> str:
    fields = (row.physical_offset, row.size, row.tags_code)
    first = "-" if row.queue_offset is None else row.queue_offset
    cells = ("-" if value is None else value for value in (first, row.logical_offset, *fields))
    return _ENTRY.format(*cells, "; ".join(_meaning(row))).rstrip()


def _meaning(row: EntryRow) -> Iterator[str]:
    if row.state != "entry":
        yield counted(row.messages, f"{row.state} entry", f"{row.state} entries")
        return
    if row.messages > 1:
        yield counted(row.messages, "message")
    if row.tag is not None:
        yield f"tag {printable(row.tag)}"
    if row.due is not None:
        yield f"due {format_time(row.due)}"
    if row.unit is not None:
        tags_code, stored_ms, bit_map = row.unit
        yield f"unit: tags code {tags_code}, stored {format_time(stored_ms)}, bit map {len(bit_map)} bytes"


def _slot_line(row: SlotRow) -> str:
    return _SLOT.format(*row)


def _item_line(row: ItemRow) -> str:
    return _ITEM.format(*row[:6], format_time(row.store_timestamp), row.previous)


def _print(rows: Iterator[_Row], line: Callable[[_Row], str], header: str, as_json: bool) -> int:
    """Print a header and a line per row, or a JSON object per row; return the exit code."""
    if not as_json:
        click.echo(header)
    while some := [
        json.dumps(_fields(row)) if as_json else line(row) for row in islice(rows, _TOGETHER)
    ]:
        click.echo("\n".join(some))
    return FOUND


def _fields(row: SlotRow | ItemRow | EntryRow) -> dict[str, Any]:
    return row.as_dict() if isinstance(row, EntryRow) else row._asdict()
