"""The tables of layouts: what derives from one table reads the same values from a broker's bytes."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reput.format import commit_log
from reput.format.commit_log import HEAD, HEADS, INNER_HEAD, decode, locate
from reput.format.consume_queue import BATCH_ENTRY, ENTRY, decode_entry
from reput.format.dtypes import (
    BATCH_ENTRY_DTYPE,
    ENTRY_DTYPE,
    ENTRY_WORDS,
    HEAD_DTYPE,
    ITEM_DTYPE,
    ROCKSDB_VALUE_DTYPE,
    entry_fields,
    item_hashes,
    item_offsets,
    raw_entries,
)
from reput.format.index_file import HEADER, ITEM, decode_header, decode_item, item_position
from reput.format.layout import Layout
from reput.format.rocksdb_queue import VALUE
from reput.kernels import entry_words
from reput.kernels.integers import swap32
from reput.kernels.jit import new_rows
from reput.kernels.record_columns import PARTS_DTYPE, gather_i32, gather_i64, locate_parts
from tests.golden.stores import GoldenStore
from tests.oracle.walk import read_log

Golden = Callable[[str], GoldenStore]


def test_everything_derives_from_the_fields() -> None:
    layout = Layout(first="h", second="q", third="3s", last="i")
    data = struct.pack(">hq3si", -2, 1 << 40, b"abc", 7)
    assert layout.size == len(data) == 17
    assert layout.positions == {"first": 0, "second": 2, "third": 10, "last": 13}
    assert layout.struct.unpack(data) == (-2, 1 << 40, b"abc", 7)
    assert layout.reader("second", "last").unpack_from(data) == (1 << 40, 7)
    # A reader ends with its last field, a whole structure with its own.
    assert layout.reader("first", "second").size == 10
    twice = struct.Struct(">" + layout.whole("second") + layout.whole("first", "last"))
    assert twice.unpack(data + data) == (1 << 40, -2, 7)
    row = np.frombuffer(data, np.dtype([*layout.columns]))[0]
    assert row.tolist() == (-2, 1 << 40, b"abc", 7)


def test_the_fields_are_where_the_format_page_says() -> None:
    assert list(HEAD.positions.values()) == [
        0,
        4,
        8,
        12,
        16,
        20,
        28,
        36,
        40,
        48,
        56,
        64,
        72,
        76,
        84,
    ]
    assert [head.size for head in HEADS.values()] == [88, 100, 100, 112]
    assert list(ENTRY.positions.values()) == [0, 8, 12]
    assert list(HEADER.positions.values()) == [0, 8, 16, 24, 32, 36]
    assert list(ITEM.positions.values()) == [0, 4, 12, 16]
    assert list(INNER_HEAD.positions.values()) == [0, 4, 8, 12, 16]
    assert ENTRY_WORDS == 5


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        (HEAD, HEAD_DTYPE), (ENTRY, ENTRY_DTYPE), (ITEM, ITEM_DTYPE),
        (BATCH_ENTRY, BATCH_ENTRY_DTYPE), (VALUE, ROCKSDB_VALUE_DTYPE),
    ],
)  # fmt: skip
def test_a_dtype_has_the_positions_of_its_struct(layout: Layout, dtype: np.dtype[Any]) -> None:
    assert dtype.itemsize == layout.size == layout.struct.size
    assert dtype.fields is not None
    assert {name: field[1] for name, field in dtype.fields.items()} == layout.positions
    data = bytes(range(1, layout.size + 1))
    assert np.frombuffer(data, dtype)[0].tolist() == layout.struct.unpack(data)


def test_head_struct_dtype_and_kernels_read_the_same_fields(golden: Golden) -> None:
    store = golden("basic")
    start, data = next((start, bytes(data)) for start, data in read_log(store.path))
    offsets = [row.physical_offset - start for row in store.messages]
    offsets = [at for at in offsets if 0 <= at < len(data)]
    array = np.frombuffer(bytearray(data), np.uint8)
    parts = new_rows(len(offsets), PARTS_DTYPE)
    locate_parts(array, np.array(offsets), parts)
    assert offsets
    for at, part in zip(offsets, parts, strict=True):
        message, layout = decode(data, at), locate(data, at, len(data))
        fields = dict(zip(HEAD.codes, HEAD.struct.unpack_from(data, at), strict=True))
        row = np.frombuffer(data, HEAD_DTYPE, 1, at)[0]
        assert fields == dict(zip(HEAD.codes, row.tolist(), strict=True))
        assert fields["store_timestamp"] == message.store_timestamp
        assert fields["reconsume_times"] == message.reconsume_times
        assert fields["body_bytes"] == len(message.body) == part["body_bytes"]
        assert at + HEAD.positions["store_timestamp"] == layout.store_timestamp_position
        assert part["store_timestamp"] == layout.store_timestamp_position
        assert part["body"] == layout.body_position == at + HEAD.size
        assert part["topic"] == layout.topic_position
        assert part["properties"] == layout.properties_position
        for name, code in HEAD.codes.items():
            if code in "iq":
                gather = gather_i64 if code == "q" else gather_i32
                found = np.empty(1, np.int64 if code == "q" else np.int32)
                gather(array, np.array([at]), HEAD.positions[name], found)
                assert found[0] == fields[name]


@pytest.mark.parametrize("flags", HEADS)
def test_kernels_find_the_parts_after_hosts_of_both_sizes(flags: int) -> None:
    head = HEADS[flags]
    values = [
        0 if not code.endswith("s") else bytes(int(code[:-1])) for code in head.codes.values()
    ]
    fields: dict[str, Any] = dict(zip(head.codes, values, strict=True))
    fields |= {"magic": commit_log.MESSAGE_MAGIC, "sys_flag": flags, "body_bytes": 3}
    fields["total_bytes"] = commit_log.record_bytes(head, 3, 2, 4)
    record = commit_log.join_record(head.struct.pack(*fields.values()), b"abc", b"\1T", b"k\1v\2")
    parts = new_rows(1, PARTS_DTYPE)
    locate_parts(np.frombuffer(bytearray(record), np.uint8), np.zeros(1, np.int64), parts)
    layout = locate(record, 0, len(record))
    assert layout.store_timestamp_position == head.positions["store_timestamp"]
    assert parts[0].tolist() == (
        0, layout.store_timestamp_position, layout.body_position, 3, layout.topic_position, 1,
        layout.properties_position, 4,
    )  # fmt: skip


def test_entry_struct_dtype_and_words_read_the_same_fields(golden: Golden) -> None:
    store = golden("basic")
    path = next(
        path for path in sorted((store.path / "consumequeue").rglob("0*")) if path.is_file()
    )
    data = path.read_bytes()
    entries = raw_entries(np.frombuffer(bytearray(data), np.uint8))
    rows = entry_fields(entries).tolist()
    assert rows == np.frombuffer(data, ENTRY_DTYPE).tolist()
    assert any(size for _, size, _ in rows)
    for number, row in enumerate(rows):
        assert tuple(decode_entry(data, number * ENTRY.size)) == row
        assert entry_of(entries[number]) == row


def entry_of(words: npt.NDArray[np.uint32]) -> tuple[int, int, int]:
    """Return the fields of an entry, as kernels read them."""
    return (
        int(entry_words.read_long(words, entry_words.ENTRY_OFFSET)),
        int(entry_words.signed_word(words[entry_words.ENTRY_SIZE])),
        int(entry_words.read_long(words, entry_words.ENTRY_TAGS_CODE)),
    )


def test_item_struct_dtype_and_words_read_the_same_fields(golden: Golden) -> None:
    store = golden("basic")
    data = min((store.path / "index").iterdir()).read_bytes()
    assert tuple(decode_header(data)) == HEADER.struct.unpack_from(data)
    begin = item_position(store.hash_slots, 0)
    items = raw_entries(np.frombuffer(bytearray(data[begin:]), np.uint8))
    assert len(items) == store.index_items
    last = decode_header(data).last_item(store.index_items)
    assert last > 1
    hashes, offsets = item_hashes(items), item_offsets(items)
    for number in range(1, last + 1):
        item = decode_item(data, begin + number * ITEM.size)
        assert (hashes[number], offsets[number]) == item[:2]
        assert entry_words.item_offset(items, number) == item.physical_offset
        words = items[number]
        assert swap32(words[entry_words.ITEM_HASH]) == item.key_hash
        assert swap32(words[entry_words.ITEM_SECONDS]) == item.time_diff_s
        assert swap32(words[entry_words.ITEM_PREVIOUS]) == item.previous


@pytest.mark.parametrize("value", [0, 1, -1, 1 << 40, -(1 << 63), (1 << 63) - 1])
def test_words_that_were_written_are_read_again(value: int) -> None:
    words = np.zeros(ENTRY_WORDS, np.uint32)
    entry_words.write_long(words, entry_words.ENTRY_TAGS_CODE, np.int64(value))
    assert words.tobytes() == ENTRY.struct.pack(0, 0, value)
    assert entry_words.read_long(words, entry_words.ENTRY_TAGS_CODE) == value
    assert entry_words.has_long(words, entry_words.ENTRY_TAGS_CODE, np.int64(value))
    assert not entry_words.has_long(words, entry_words.ENTRY_TAGS_CODE, np.int64(value ^ 1 << 33))
