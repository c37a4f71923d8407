"""Measure queries for keys that no message has, in a hundred IndexFiles of full size.

Such a query searches every file. A full file has 420 MB, so a hundred files would take 42 GB. Therefore the files are
sparse: they have only the pages that the queries read, which contain the slots of the keys and the items in the chains
of these slots. A check of a whole sparse file would fail, so the benchmark declares the files as trusted. It measures
the checks that a query makes in an open file, but not the checks at the opening of a file.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.generate import FIRST_TIMESTAMP, MESSAGE_BYTES, records
from benchmarks.result import Figure, best_of
from reput.base.config import StoreConfig
from reput.core.index.key_index import Basis
from reput.core.index.plan import Planner
from reput.core.index.proofs import Judge, Proof, Verdict
from reput.core.index.reader import IndexFileReader
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.query.message_store import MessageStore
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.index_file import (
    IndexHeader,
    IndexItem,
    encode_header,
    encode_item,
    index_key,
    item_position,
    key_hash,
    slot_position,
)

_FILES, _KEYS, _MOST_MS = 100, 100, 1.5
_RUNS = 7
_MESSAGES = 16  # Messages per IndexFile. Each message has more than a million items.
_LOG_BYTES = 1 << 20
_PAGE_BYTES, _PAGE_SLOTS = 4096, 1024
_SLOT = struct.Struct(">i")
_TOPIC = "topic-0000"
_CONFIG = StoreConfig()
_LAST = _CONFIG.index_items - 1
_HASHES = (1 << 31) // _CONFIG.hash_slots  # Number of hashes that share a slot.
_ALL_HASHES = _HASHES * _CONFIG.hash_slots


def measure(folder: Path) -> Iterator[Figure]:
    """Measure on a store in `folder`, and delete it."""
    store = folder / "absent"
    keys = [f"absent-{number}" for number in range(_KEYS)]
    try:
        _write(store, keys)
        for basis in Basis:
            with _Believed(store, basis) as opened:
                name = f"a key that is absent, {_FILES} full-size IndexFiles, warm, {basis.value}"
                yield Figure("exact query, in process", name, _query_ms(opened, keys), "ms", most=_MOST_MS)  # fmt: skip
    finally:
        shutil.rmtree(store, ignore_errors=True)


def _query_ms(store: MessageStore, keys: list[str]) -> float:
    def query_all() -> None:
        for key in keys:
            found = store.query(_TOPIC, key)
            assert not found.messages
            assert found.coverage.indexed_files == _FILES
            assert not found.coverage.problems

    query_all()  # The first round reads the pages from disk.
    return best_of(_RUNS, query_all) / len(keys) * 1e3


class _Believed(MessageStore):
    """A store whose IndexFiles are trusted without a check.

    Depending on `basis`, each file counts as proven or as spot-checked, for all its messages except the first and the
    last.
    """

    def __init__(self, path: Path, basis: Basis) -> None:
        self._basis = basis
        super().__init__(path, config=_CONFIG)

    def key_planner(self, judge: Judge | None = None) -> Planner:
        return super().key_planner(self._judge)

    def _judge(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None,
        files: int = 1,
    ) -> Verdict:
        header = file.header()
        begin = header.begin_physical_offset + MESSAGE_BYTES
        ranges = (OffsetRange(begin, header.end_physical_offset),)
        if self._basis is Basis.PROVEN:
            return Verdict(last, proof=Proof(last, ranges))
        return Verdict(last, ranges)


def _hash(key: str) -> int:
    return key_hash(index_key(_TOPIC, key))


def _write(path: Path, keys: list[str]) -> None:
    folder, index = path / COMMIT_LOG_FOLDER, path / "index"
    folder.mkdir(parents=True)
    index.mkdir()
    with open(folder / offset_file_name(0), "wb") as log:
        log.write(records(0, _FILES * _MESSAGES, 0))
        log.truncate(_LOG_BYTES)
    random = Random(1)
    for number in range(_FILES):
        _IndexFile(number, random).write(index / f"{20260101000000000 + number}", keys)


class _IndexFile:
    """Writes one sparse IndexFile, full of items of 16 messages, with only the pages that some keys need."""

    def __init__(self, number: int, random: Random) -> None:
        self._first, self._random = number * _MESSAGES, random
        self._items: dict[int, IndexItem] = {}

    def write(self, path: Path, keys: list[str]) -> None:
        slots = self._slots(keys)
        for number in (1, _LAST):
            self._items[number] = self._item(number, 0, 0)
        first, last = self._items[1].physical_offset, self._items[_LAST].physical_offset
        times = FIRST_TIMESTAMP, FIRST_TIMESTAMP + 1
        used = int(_CONFIG.hash_slots * 0.98)
        header = IndexHeader(*times, first, last, used, _LAST + 1)
        with open(path, "wb") as file:
            file.truncate(_CONFIG.index_file_bytes)
            os.pwrite(file.fileno(), encode_header(header), 0)
            for at, page in slots.items():
                os.pwrite(file.fileno(), page, at)
            for number, item in self._items.items():
                at = item_position(_CONFIG.hash_slots, number)
                os.pwrite(file.fileno(), encode_item(item), at)

    def _slots(self, keys: list[str]) -> dict[int, bytearray]:
        """Return the needed pages of slots by position. All slots are used. The slots of `keys` lead to chains."""
        pages: dict[int, bytearray] = {}
        for hashed in map(_hash, keys):
            at = slot_position(hashed % _CONFIG.hash_slots)
            begin = at - at % _PAGE_BYTES
            if begin not in pages:
                pages[begin] = self._page()
            _SLOT.pack_into(pages[begin], at - begin, self._chain(hashed))
        return pages

    def _page(self) -> bytearray:
        numbers = [self._random.randrange(1, _LAST) for _ in range(_PAGE_SLOTS - 1)]
        return bytearray(b"".join(map(_SLOT.pack, [_LAST, *numbers])))

    def _chain(self, hashed: int) -> int:
        """Add a chain of items, and return the newest item.

        The length is random, with the distribution of a full file: four items on average. No item has the hash of the
        key. The items before and after each item in the file are written too, because a query reads whole pages.
        """
        per_slot = _CONFIG.index_items / _CONFIG.hash_slots
        length = sum(self._random.random() < per_slot / 64 for _ in range(64))
        previous = 0
        drawn = {self._random.randrange(2, _LAST) for _ in range(length)}
        for item in sorted(drawn - self._items.keys()):
            key = (hashed + _CONFIG.hash_slots * self._random.randrange(1, _HASHES)) % _ALL_HASHES
            for other in (item - 1, item + 1):
                self._items.setdefault(other, self._item(other, 0, 0))
            self._items[item] = self._item(item, key, previous)
            previous = item
        return previous

    def _item(self, number: int, key: int, previous: int) -> IndexItem:
        message = self._first + number * _MESSAGES // (_LAST + 1)
        return IndexItem(key, message * MESSAGE_BYTES, 0, previous)
