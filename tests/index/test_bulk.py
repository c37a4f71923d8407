"""Many hashes in one IndexFile: every way to look them up finds the same as single look-ups."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from reput.base.config import StoreConfig
from reput.core.index.reader import BrokenChainError, IndexFileReader
from reput.core.log.offset_range import OffsetRange
from reput.engine.lookup import index_file_search as bulk
from reput.engine.lookup.index_file_search import IndexFileSearch
from reput.engine.rebuild.growing import DEFAULT_SPLIT_BYTES
from tests.index.proving import ITEMS, ITEMS_AT, SLOTS, change_words, index_of, messages

Found = list[tuple[int, int]]
_WITHIN = OffsetRange(1000, 30_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with damage, which breaks some chains."""
    (path,) = index_of(tmp_path, messages(400).files())
    change_words(path, [ITEMS_AT + 20 * 100, ITEMS_AT + 20 * 300 + 16], Random(1))
    return path


def one_by_one(path: Path, hashes: list[int]) -> tuple[Found, list[int]]:
    reader = IndexFileReader(str(path), SLOTS, ITEMS)
    found: Found = []
    broken = []
    for number, key_hash in enumerate(hashes):
        offsets = []
        try:
            for offset in reader.offsets(key_hash):
                if offset < _WITHIN.start:
                    break
                offsets.append(offset)
        except BrokenChainError:
            broken.append(number)
        found += [(number, offset) for offset in offsets if offset < _WITHIN.stop]
    reader.close()
    return found, broken


def in_bulk(path: Path, hashes: list[int]) -> tuple[Found, list[int]]:
    found: Found = []
    broken: list[int] = []
    for hits in IndexFileSearch(str(path), SLOTS, ITEMS, _WITHIN).find(np.array(hashes, np.int32)):
        found += zip(hits.which.tolist(), hits.offsets.tolist(), strict=True)
        broken += hits.broken.tolist()
    return sorted(found, key=lambda hit: hit[0]), sorted({*broken})


@pytest.mark.parametrize("scattered", [0, 1 << 40])
@pytest.mark.parametrize("bytes_per_hit", [1, 1 << 11, 1 << 40])
def test_however_they_are_read(
    file: Path, monkeypatch: pytest.MonkeyPatch, scattered: int, bytes_per_hit: int
) -> None:
    monkeypatch.setattr(bulk, "_SCATTERED_BYTES", scattered)
    monkeypatch.setattr(bulk, "_BYTES_PER_HIT", bytes_per_hit)
    reader = IndexFileReader(str(file), SLOTS, ITEMS)
    hashes = sorted({reader.item(number).key_hash for number in range(1, reader.next_item)} | {5})
    reader.close()
    wanted = one_by_one(file, hashes)
    assert len(wanted[0]) > 200
    assert wanted[1]
    assert in_bulk(file, hashes) == wanted


@pytest.mark.parametrize("scattered", [0, 1 << 40])
def test_a_file_is_read_once_for_several_groups(
    file: Path, monkeypatch: pytest.MonkeyPatch, scattered: int
) -> None:
    monkeypatch.setattr(bulk, "_SCATTERED_BYTES", scattered)
    reads: list[IndexFileReader] = []
    read_all = bulk._read_all

    def counted(reader: IndexFileReader) -> bulk._Chains:
        reads.append(reader)
        return read_all(reader)

    monkeypatch.setattr(bulk, "_read_all", counted)
    reader = IndexFileReader(str(file), SLOTS, ITEMS)
    hashes = sorted({reader.item(number).key_hash for number in range(1, reader.next_item)} | {5})
    reader.close()
    groups = [hashes[::2], [], hashes[1::2]]
    found: list[tuple[Found, set[int]]] = [([], set()) for _ in groups]
    search = IndexFileSearch(str(file), SLOTS, ITEMS, _WITHIN)
    for group, hits in search.find_each(np.array(each, np.int32) for each in groups):
        found[group][0].extend(zip(hits.which.tolist(), hits.offsets.tolist(), strict=True))
        found[group][1].update(hits.broken.tolist())
    for each, (pairs, broken) in zip(groups, found, strict=True):
        assert (sorted(pairs, key=lambda hit: hit[0]), sorted(broken)) == one_by_one(file, each)
    assert len(reads) == 1


def test_a_search_of_a_whole_file_weighs_more_than_a_scan_of_a_split_and_one_of_a_few_keys_less() -> (
    None
):
    config = StoreConfig()
    search = IndexFileSearch("full", config.hash_slots, config.index_items, _WITHIN)
    whole = search.weight(100_000)
    assert search.weight(10) < DEFAULT_SPLIT_BYTES < 4 * DEFAULT_SPLIT_BYTES < whole
    assert whole < search.weight(10_000_000) < 100 * whole  # a file is read once for all keys
