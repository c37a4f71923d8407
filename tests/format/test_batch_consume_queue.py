"""Entries of batch queues and units of extension files, against the bytes that a 5.3.3 broker wrote."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.format.consume_queue import (
    BATCH_ENTRY_BYTES,
    ConsumeQueueEntry,
    batch_entry,
    decode_batch_entries,
    decode_batch_entry,
    decode_entries,
    encode_batch_entry,
)
from reput.format.consume_queue_ext import (
    UNIT_BYTES,
    ExtensionUnit,
    address_of,
    decode_unit,
    encode_unit,
    is_address,
    position_of,
)
from reput.testing.strategies import int32, int64
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
int16 = st.integers(-(1 << 15), (1 << 15) - 1)


@given(st.builds(ConsumeQueueEntry, int64, int32, int64), int64, int64, int16)
def test_batch_entries_come_back(
    place: ConsumeQueueEntry, store_timestamp: int, base: int, size: int
) -> None:
    entry = batch_entry(place, store_timestamp, base, size)
    data = encode_batch_entry(entry)
    assert data == struct.pack(">qiqqqhii", *place, store_timestamp, base, size, -1, 0)
    found = decode_batch_entry(b"x" + data, 1)
    assert found == place
    assert vars(found) == vars(entry)
    assert found.stop == base + size
    with pytest.raises(struct.error):
        decode_batch_entry(data, 1)


def joined(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_batch_entries_are_the_ones_that_the_broker_reads(golden: Golden) -> None:
    store = golden("five_batch")
    stored = {row.physical_offset: row.store_timestamp for row in store.messages}
    count = 0
    for queue in store.queues:
        if queue.java_class != "BatchConsumeQueue":
            continue
        folder = store.path / "batchconsumequeue" / queue.topic / str(queue.queue_id)
        data = joined(folder)
        rows = [
            row
            for row in store.queue_entries
            if (row.topic, row.queue_id) == (queue.topic, queue.queue_id)
        ]
        entries = list(decode_batch_entries(data))[: len(rows)]
        assert not any(data[len(rows) * BATCH_ENTRY_BYTES :])
        assert [(*entry, entry.base_offset, entry.batch_size) for entry in entries] == [
            (row.physical_offset, row.size, row.tags_code, row.queue_offset, row.batch_size)
            for row in rows
        ]
        assert [e.store_timestamp for e in entries] == [stored[e.physical_offset] for e in entries]
        assert b"".join(map(encode_batch_entry, entries)) == data[: len(rows) * BATCH_ENTRY_BYTES]
        count += len(rows)
    assert count > 600


@given(st.builds(ExtensionUnit, int64, int64, st.binary(max_size=100)), st.binary(max_size=9))
def test_extension_units_come_back(unit: ExtensionUnit, after: bytes) -> None:
    data = encode_unit(unit)
    assert len(data) == unit.size_bytes == UNIT_BYTES + len(unit.bit_map)
    assert decode_unit(data + after) == unit
    assert decode_unit(data[:-1]) is None


@given(st.binary(max_size=64))
def test_other_bytes_are_no_extension_unit(data: bytes) -> None:
    found = decode_unit(data)
    assert found is None or data.startswith(encode_unit(found))


def test_addresses_are_what_no_tags_code_is(golden: Golden) -> None:
    assert position_of(address_of(1 << 40)) == 1 << 40
    assert is_address(address_of(0))
    assert is_address(-(1 << 31) - 1)
    assert not is_address(-(1 << 31))
    assert not is_address(1_700_000_000_000)

    store = golden("five_ext")
    tags = {row.physical_offset: row.tags_code for row in store.messages}
    stored = {row.physical_offset: row.store_timestamp for row in store.messages}
    count = 0
    for folder in sorted((store.path / "consumequeue").glob("*/*")):
        units = b""
        extension = store.path / "consumequeue_ext" / folder.parent.name / folder.name
        if extension.is_dir():
            units = joined(extension)
        for entry in decode_entries(joined(folder)):
            if entry.size > 0 and is_address(entry.tags_code):
                unit = decode_unit(units[position_of(entry.tags_code) :])
                assert unit is not None
                assert unit.tags_code == tags[entry.physical_offset]
                assert unit.store_timestamp == stored[entry.physical_offset]
                count += 1
    assert count > 300
