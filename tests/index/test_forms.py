"""A new form of the index of keys in one file: registered, queries ask it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import reput
from reput.base import Finding
from reput.core import (
    IndexOf,
    IndexPart,
    KeyIndex,
    NamedKey,
    OffsetRange,
    TimeWindow,
    register_index_form,
)
from reput.core.index import forms
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from tests.small import SMALL


class OldHalf:
    """An index that only has the older half of another index's parts."""

    def __init__(self, whole: KeyIndex) -> None:
        self._whole = whole

    def parts(self) -> tuple[IndexPart, ...]:
        parts = self._whole.parts()
        return parts[: len(parts) // 2]

    @property
    def problems(self) -> list[Finding]:
        return self._whole.problems

    def compared(self, within: OffsetRange) -> Iterator[tuple[int, OffsetRange | None]]:
        return self._whole.compared(within)

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None
    ) -> Iterator[tuple[NamedKey, OffsetRange]]:
        return self._whole.lost_records(names, window)

    @property
    def newest_entry(self) -> int:
        return self._whole.newest_entry


class HalfForm:
    def open(self, source: IndexOf, others: Sequence[KeyIndex]) -> KeyIndex:
        return OldHalf(*others)


def has_mark(source: IndexOf) -> bool:
    return (Path(source.files.folder).parent / "half").exists()


def test_it_is_asked_where_a_store_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(StoreWriter(tmp_path, SMALL)) as writer:
        for number in range(4000):
            writer.put(Message("topic", b"%d" % number, keys=f"key-{number}"))
    with reput.open_store(tmp_path, config=SMALL) as store:
        whole = store.query("topic", "key-3999")
    monkeypatch.setattr(forms, "_forms", dict(forms._forms))
    register_index_form("half", HalfForm(), has_mark)
    with reput.open_store(tmp_path, config=SMALL) as store:
        assert store.query("topic", "key-3999").coverage == whole.coverage
    (tmp_path / "half").touch()
    with reput.open_store(tmp_path, config=SMALL) as store:
        half = store.query("topic", "key-3999")
    assert half.messages == whole.messages
    assert half.is_complete
    indexed = [part.stop for part in half.coverage.indexed]
    assert 0 < len(indexed) < len(whole.coverage.indexed)
    assert max(part.stop - part.start for part in half.coverage.scanned) > 100_000
