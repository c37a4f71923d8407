"""The readers that look up keys in an index: a query, a look-up, the table. All must find the same messages."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import reput
from reput.engine.tables.filters import Condition, dispatched_under
from tests.lookup.looking_up import bulk
from tests.query.stores import offsets
from tests.tables.reading import read

Asked = tuple[str, str]
_KEYS_AT_ONCE = 20


class Reader(Protocol):
    """Return physical offsets, newest first, of each (topic, key) in order."""

    def __call__(self, path: Path, asked: Sequence[Asked]) -> list[list[int]]: ...


def by_query(path: Path, asked: Sequence[Asked]) -> list[list[int]]:
    with reput.open_store(path) as opened:
        return [offsets(opened.query(*each)) for each in asked]


def by_lookup(path: Path, asked: Sequence[Asked]) -> list[list[int]]:
    with TemporaryDirectory() as folder:
        rows = [(topic, key, None, None) for topic, key in asked]
        return [found.offsets for found in bulk(Path(folder) / "staged", [path], rows)]


def by_table(path: Path, asked: Sequence[Asked]) -> list[list[int]]:
    found: dict[Asked, set[int]] = {each: set() for each in asked}
    for topic in {topic for topic, _ in asked}:
        keys = [key for of, key in found if of == topic]
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            for key, offset in _rows(path, topic, keys[start : start + _KEYS_AT_ONCE]):
                if (topic, key) in found:
                    found[topic, key].add(offset)
    return [sorted(found[each], reverse=True) for each in asked]


def _rows(path: Path, topic: str, keys: Sequence[str]) -> Iterator[tuple[str, int]]:
    """(key, physical offset) of messages that the options `key` and `uniqueKey` find."""
    columns = ["physical_offset", "keys", "unique_keys"]
    for column in ("keys", "unique_keys"):
        wanted = [Condition("topic", "=", topic), *dispatched_under(column, keys)]
        for row in read(path, columns, wanted, on_corrupt="skip").to_pylist():
            for key in row[column]:
                yield key, row["physical_offset"]


READERS: dict[str, Reader] = {"query": by_query, "lookup": by_lookup, "table": by_table}
