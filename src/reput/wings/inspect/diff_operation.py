"""Define `reput.diff`, which compares two stores, or a store and an export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Unpack

from reput.base import Report, agreeing, checked, counted, printable
from reput.core import ReaderOptions
from reput.engine.stores import open_store
from reput.errors import UsageError
from reput.wings import lakes
from reput.wings.inspect.comparing.difference import Difference, Example, Part, What
from reput.wings.inspect.diff import diff as diff_stores

DIFF_SCHEMA = "reput-diff/1"
"""Version of the JSON form (docs/diff.md). The number is raised with every incompatible change."""
_PARTS = {
    Part.MESSAGE: "messages",
    Part.QUEUE_ENTRY: "ConsumeQueue entries",
    Part.INDEX_ENTRY: "index entries",
    Part.HEADER: "IndexFile headers",
}
_WAYS = {
    "by_offset": "Copies of one log, compared by physical offset.",
    "by_queue": "Compared by topic, queue and queue offset.",
    "by_row": "A store and an export, compared by physical offset, column by column.",
}


@dataclass(frozen=True, slots=True, repr=False)
class DiffReport(Report):
    """The differences between A and B: counts, then examples."""

    a: str
    b: str
    found: Difference

    @property
    def is_same(self) -> bool:
        return self.found.is_same

    @property
    def is_damaged(self) -> bool:
        """Return whether a part of A or B could not be read."""
        return self.found.is_damaged

    @property
    def headline(self) -> str:
        noun = "messages" if self.found.way == "by_row" else "stores"
        return f"The {noun} are the same." if self.is_same else f"The {noun} differ."

    def lines(self) -> Iterator[str]:
        difference = self.found
        for name, store, extent in zip("AB", (self.a, self.b), difference.logs, strict=True):
            yield f"{name}: {printable(store)}, log from {extent.begin:,} to {extent.end:,}"
        yield _WAYS[difference.way]
        if difference.equal_bytes:
            yield f"Identical log files, byte for byte: {difference.equal_bytes:,} bytes."
        yield ""
        yield f"{'':22}{'only in A':>14}{'only in B':>14}{'different':>14}"
        for part, words in _PARTS.items():
            if part is Part.MESSAGE or difference.way != "by_row":
                counts = (difference.counts[part, what] for what in What)
                yield f"{words:22}" + "".join(f"{count:>14,}" for count in counts)
        yield ""
        yield from map(printable, _remarks(difference))
        yield from (printable(_example_in_words(example)) for example in difference.examples)
        yield self.headline

    def as_dict(self) -> dict[str, Any]:
        difference = self.found
        return {
            "schema": DIFF_SCHEMA,
            "a": self.a,
            "b": self.b,
            "same": difference.is_same,
            "way": difference.way,
            "logs": [extent._asdict() for extent in difference.logs],
            "equal_bytes": difference.equal_bytes,
            "equal_messages": difference.equal_messages,
            "counts": {
                part: {what: difference.counts[part, what] for what in What} for part in Part
            },
            "before_the_other": difference.expired,
            "after_the_other": difference.behind,
            "examples": [example._asdict() for example in difference.examples],
            "notes": difference.notes,
            "unreadable": [[lost.as_json() for lost in side] for side in difference.damage],
        }


@checked
def diff(
    a: str | PathLike[str],
    b: str | PathLike[str],
    *,
    name: str | None = None,
    catalog: str | None = None,
    table: str | None = None,
    **reading: Unpack[ReaderOptions],
) -> DiffReport:
    """Compare the messages, queue entries, index entries and IndexFile headers of two stores.

    Messages of two copies of one log are paired by physical offset, messages of other stores by topic, queue and queue
    offset. One of the two may be a Parquet, Iceberg or Delta table that an export wrote. Its rows are then compared
    with the messages of the store, column by column. Nothing is written.

    Args:
        a: A store or an export.
        b: The other store or export.
        name: The store's name in the export; by default the store's path. If the export has no store of this name, use
            the rows that were exported from the same log.
        catalog: The catalog of an Iceberg export.
        table: The table of an Iceberg export.
        reading: Settings of the stores as for `open_store`.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    for path in (a, b):
        if Path(path).is_file():
            raise UsageError(
                f"{fspath(path)}: is a file; compare stores, or a store with a Parquet, Iceberg or Delta table"
            )
    storage = reading.get("storage_options")
    exports = [lakes.format_of(path, storage) is not None for path in (fspath(a), fspath(b))]
    if any(exports):
        difference = _with_export(
            fspath(a), fspath(b), exports, name, storage, catalog=catalog, table=table
        )
    elif name or catalog or table:
        raise UsageError(
            "name, catalog and table describe an export, but neither A nor B is an export",
            arguments=["name", "catalog", "table"],
        )
    else:
        with open_store(a, **reading) as left, open_store(b, **reading) as right:
            difference = diff_stores(left, right)
    return DiffReport(fspath(a), fspath(b), difference)


def _with_export(
    a: str,
    b: str,
    exports: list[bool],
    name: str | None,
    storage: Mapping[str, str] | None,
    **options: str | None,
) -> Difference:
    from reput.wings.inspect.comparing.tables import diff_export

    if all(exports):
        raise UsageError("both A and B are exports; compare an export with its store")
    store, folder = (b, a) if exports[0] else (a, b)
    table = lakes.open_export(folder, storage_options=storage, **options)
    return diff_export(store, table, name, store_is_b=exports[0], storage_options=storage)


def _remarks(difference: Difference) -> list[str]:
    lines = []
    for name, opposite, before, after in zip(
        "AB", "BA", difference.expired, difference.behind, strict=True
    ):
        if before:
            lines.append(
                f"{counted(before, 'message')} of {name} {agreeing(before, 'precedes')} the beginning of {opposite}, "
                "probably because of expiry."
            )
        if after:
            lines.append(
                f"{counted(after, 'message')} of {name} {agreeing(after, 'follows')} the end of {opposite}: "
                f"{opposite} is older, or was truncated."
            )
    return lines + [f"Note: {note}." for note in difference.notes]


def _example_in_words(example: Example) -> str:
    """Describe an example, as in `message only in A: orders, queue 1, queue offset 7 (offset 4711)`."""
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
