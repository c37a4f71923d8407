"""Read mutated IndexFiles. Kernel and reader must find the same chains, and an inspection must end."""

from __future__ import annotations

import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np

from fuzz.allowed import allowed
from reput.core.index.reader import BrokenChainError, IndexFileReader
from reput.core.index.set_reader import IndexFileSetReader
from reput.format.index_file import HEADER_BYTES, SLOT_BYTES, file_bytes
from reput.kernels.index_chains import look_up_keys
from reput.wings.inspect.inspection import inspect
from tests.golden.stores import GoldenStore, unpack

_STORE = "extremes"
_HASH_SLOTS, _INDEX_ITEMS = 31, 60  # The sizes of that store's IndexFiles.
_FILE_BYTES = file_bytes(_HASH_SLOTS, _INDEX_ITEMS)
_ITEM_WORDS = 5
_FAR = 2**63 - 1


class Target:
    MAX_BYTES = 2 * _FILE_BYTES

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "index"
        self._folder.mkdir()
        self._file = self._folder / "20240101000000000"

    @staticmethod
    def seeds() -> list[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            store = GoldenStore(_STORE, unpack(_STORE, Path(folder)))
            return [path.read_bytes() for path in sorted((store.path / "index").iterdir())]

    def run(self, data: bytes) -> None:
        self._file.write_bytes(data)
        with allowed():
            inspect(self._file)
        with allowed():
            IndexFileSetReader(self._folder, None, None).close()
        self._file.write_bytes(data[:_FILE_BYTES].ljust(_FILE_BYTES, b"\0"))
        with allowed():
            inspect(self._file, hash_slots=_HASH_SLOTS, index_items=_INDEX_ITEMS)
        with allowed():
            reader = IndexFileReader(str(self._file), _HASH_SLOTS, _INDEX_ITEMS)
            try:
                _compare_chains(reader, self._file.read_bytes())
            finally:
                reader.close()


def _compare_chains(reader: IndexFileReader, data: bytes) -> None:
    items = range(1, reader.next_item)
    hashes = sorted({max(reader.item(number).key_hash, 0) for number in items} | {0, 2**31 - 1})
    by_kernel = _by_kernel(reader, data, hashes)
    for key_hash in hashes:
        found: list[int] = []
        kernel, is_broken = by_kernel[key_hash]
        try:
            for offset in reader.offsets(key_hash):
                found.append(offset)
        except BrokenChainError:
            assert is_broken
        else:
            assert not is_broken
        assert kernel == [offset for offset, _ in groupby(found) if offset < _FAR]
    reader.is_consistent()
    for number in items:
        reader.reaches(number)
        reader.is_in_order(number, reader.next_item - 1)


def _by_kernel(
    reader: IndexFileReader, data: bytes, hashes: list[int]
) -> dict[int, tuple[list[int], bool]]:
    """Return, by hash, the offsets that the kernel finds, and whether the chain is broken.

    No two offsets in a row are equal.
    """
    words = np.frombuffer(data, np.uint32, offset=HEADER_BYTES)
    slots = words[: _HASH_SLOTS * SLOT_BYTES // 4]
    items = words[_HASH_SLOTS * SLOT_BYTES // 4 :].reshape(-1, _ITEM_WORDS)
    keys = np.array(hashes, np.int32)
    room = _INDEX_ITEMS * len(hashes)
    hits_key, hits_offset = np.empty(room, np.int32), np.empty(room, np.int64)
    broken = np.zeros(len(hashes), np.uint8)
    done, hits = look_up_keys(
        slots, items, reader.next_item - 1, 0, _FAR, keys, 0, hits_key, hits_offset, broken
    )
    assert done == len(hashes)
    found: dict[int, tuple[list[int], bool]] = {
        key: ([], bool(cut)) for key, cut in zip(hashes, broken, strict=True)
    }
    for key, offset in zip(hits_key[:hits].tolist(), hits_offset[:hits].tolist(), strict=True):
        found[hashes[key]][0].append(offset)
    return found
