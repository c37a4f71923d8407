"""IndexFile header, slots, items, and the hash of a key."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.format.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    IndexHeader,
    IndexItem,
    decode_header,
    decode_item,
    encode_header,
    encode_item,
    file_bytes,
    index_key,
    item_position,
    key_hash,
    slot_position,
)
from reput.testing.strategies import int32, int64, java_text
from tests.golden.stores import SHIPPED, GoldenStore
from tests.oracle import index_file as oracle

Golden = Callable[[str], GoldenStore]


@given(st.builds(IndexHeader, int64, int64, int64, int64, int32, int32))
def test_headers_come_back(header: IndexHeader) -> None:
    data = encode_header(header)
    assert data == oracle.HEADER.pack(*header)
    assert decode_header(data + b"rest") == header
    assert header.next_item == max(header.index_count, 1)


@given(st.builds(IndexItem, int32, int64, int32, int32), st.binary(max_size=5))
def test_items_come_back(item: IndexItem, before: bytes) -> None:
    data = encode_item(item)
    assert data == oracle.ITEM.pack(*item)
    assert decode_item(before + data, len(before)) == item


@given(java_text, java_text)
@example("", "")
@example("a", "b#c")
@example("polygenelubricants", "")
def test_the_hash_of_a_key_is_the_oracles(topic: str, key: str) -> None:
    assert key_hash(index_key(topic, key)) == oracle.key_hash(topic, key)


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("AaAa", 2031744), ("polygenelubricants", 0), ("😀#", 54959904)]
)
def test_hashes_are_never_below_0(text: str, value: int) -> None:
    assert key_hash(text) == value


def test_positions() -> None:
    assert file_bytes(5_000_000, 20_000_000) == 420_000_040
    assert slot_position(0) == HEADER_BYTES == 40
    assert item_position(7, 0) == slot_position(7) == 68
    assert file_bytes(7, 9) == item_position(7, 9)


@pytest.mark.parametrize(
    ("decode", "length"), [(decode_header, HEADER_BYTES), (decode_item, ITEM_BYTES)]
)
def test_short_data_is_refused(decode: Callable[[bytes], object], length: int) -> None:
    with pytest.raises(struct.error):
        decode(bytes(length - 1))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_brokers_files_come_back_to_the_byte(golden: Golden, name: str) -> None:
    store = golden(name)
    for row in store.index:
        data = (store.path / "index" / row.file).read_bytes()
        assert len(data) == file_bytes(store.hash_slots, store.index_items)
        header = decode_header(data)
        stated = (row.begin_timestamp, row.end_timestamp, row.begin_physical_offset)
        assert header[:3] == stated
        # index.tsv has the count as in memory, where it starts at 1.
        assert header.next_item == max(row.index_count, 1)
        assert header.hash_slot_count == row.hash_slot_count
        again = bytearray(len(data))
        again[:HEADER_BYTES] = encode_header(header)
        for slot in range(store.hash_slots):
            at = slot_position(slot)
            again[at : at + 4] = data[at : at + 4]
        for number in range(1, header.next_item):
            at = item_position(store.hash_slots, number)
            again[at : at + ITEM_BYTES] = encode_item(decode_item(data, at))
        assert again == data
