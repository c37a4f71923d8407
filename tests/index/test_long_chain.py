"""A long chain in arrays equals the chain item by item, for any damage."""

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.core.index import long_chain
from reput.core.index.key_index import Candidate, UntrustedIndexError
from reput.core.index.long_chain import chain_pieces, in_arrays
from reput.core.index.reader import IndexFileReader
from reput.core.log.offset_range import OffsetRange
from reput.errors import StoreError
from reput.format.index_file import HEADER_BYTES, SLOT_BYTES, item_position
from tests.kernels.chains import Chains, Entry

SLOTS, ITEMS, HASHES = 3, 60, 6
EVERYTHING = OffsetRange(0, 1 << 62)
HOSTILE = (-(2**31), -1, 0, 1, 2, 30, 58, 59, 60, 61, 2**31 - 1)


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_chain, "_PART_ITEMS", 9)
        patch.setattr(long_chain, "_FEWEST_STEPS", 2)
        patch.setattr(long_chain, "_PIECE", 4)
        yield


def filled(seed: int, items: int = ITEMS) -> bytearray:
    random = Random(seed)
    chains = Chains(SLOTS, ITEMS)
    entries = [Entry(random.randrange(HASHES), at - at % 3, 1000 + at) for at in range(items)]
    chains.put(entries)
    return bytearray(chains.to_bytes())


def plain(file: IndexFileReader, key_hash: int, within: OffsetRange) -> tuple[list[int], str]:
    found: list[int] = []
    try:
        for offset in file.offsets(key_hash):
            if offset < within.start:
                break
            if offset < within.stop and offset not in found[-1:]:
                found.append(offset)
    except StoreError as error:
        return found, str(error)
    return found, ""


def in_parts(file: IndexFileReader, key_hash: int, within: OffsetRange) -> tuple[list[int], str]:
    found: list[int] = []
    try:
        for offsets, hashes in chain_pieces(file, key_hash, within):
            assert offsets.dtype == np.int64
            assert hashes.tolist() == [key_hash] * len(offsets)
            found += offsets.tolist()
    except StoreError as error:
        return found, str(error)
    return found, ""


def check(data: bytes | bytearray, within: OffsetRange = EVERYTHING) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "20260101000000000"
        path.write_bytes(data)
        try:
            file = IndexFileReader(str(path), SLOTS, ITEMS)
        except StoreError:
            return
        for key_hash in range(HASHES + 2):
            assert in_parts(file, key_hash, within) == plain(file, key_hash, within), key_hash
        file.close()


@pytest.mark.parametrize("items", [0, 1, 2, 9, 10, 40, ITEMS])
def test_a_sound_file(items: int) -> None:
    for seed in range(3):
        check(filled(seed, items))


@pytest.mark.parametrize("within", [(0, 0), (10, 40), (11, 12), (40, 1 << 62)])
def test_a_range_of_the_log(within: tuple[int, int]) -> None:
    check(filled(1), OffsetRange(*within))


def test_an_item_may_lead_anywhere() -> None:
    data = filled(2)
    for item in range(1, ITEMS, 5):
        for value in HOSTILE:
            hostile = bytearray(data)
            struct.pack_into(">i", hostile, item_position(SLOTS, item) + 16, value)
            check(hostile)


def test_a_slot_may_lead_anywhere() -> None:
    data = filled(2)
    for slot in range(SLOTS):
        for value in (*HOSTILE, -1, -2):
            hostile = bytearray(data)
            struct.pack_into(">i", hostile, HEADER_BYTES + SLOT_BYTES * slot, value)
            check(hostile)


@given(st.data())
def test_any_damage(drawn: st.DataObject) -> None:
    data = filled(drawn.draw(st.integers(0, 9)), drawn.draw(st.sampled_from((ITEMS, 50, 20))))
    for _ in range(drawn.draw(st.integers(1, 5))):
        at = drawn.draw(st.integers(36, len(data) - 4))
        value = drawn.draw(st.sampled_from(HOSTILE) | st.integers(-(2**31), 2**31 - 1))
        struct.pack_into(">i", data, at, value)
    check(data)


def test_candidates_of_many_hashes_come_in_arrays_and_before_an_error() -> None:
    many = [Candidate(offset, offset % 3) for offset in range(30, 0, -1)]

    def found() -> Iterator[Candidate]:
        yield from many
        raise UntrustedIndexError("index", 0, "broken")

    taken: list[Candidate] = []
    arrays = in_arrays(found())
    while len(taken) < len(many):
        offsets, hashes = next(arrays)
        taken += map(Candidate, offsets.tolist(), hashes.tolist())
    assert taken == many
    with pytest.raises(UntrustedIndexError):
        next(arrays)
