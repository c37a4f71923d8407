"""ConsumeQueue entries."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.format.consume_queue import (
    ENTRY_BYTES,
    PRE_BLANK,
    ConsumeQueueEntry,
    decode_entry,
    encode_entry,
)
from reput.testing.strategies import int32, int64
from tests.golden.stores import SHIPPED, GoldenStore
from tests.oracle import consume_queue as oracle

Golden = Callable[[str], GoldenStore]


@given(st.builds(ConsumeQueueEntry, int64, int32, int64), st.binary(max_size=5))
def test_entries_come_back(entry: ConsumeQueueEntry, before: bytes) -> None:
    data = encode_entry(entry)
    assert data == oracle.ENTRY.pack(*entry)
    assert decode_entry(before + data, len(before)) == entry
    assert entry.is_written == (entry.physical_offset >= 0 and entry.size > 0)


def test_the_pre_blank_entry_counts_as_written() -> None:
    assert encode_entry(PRE_BLANK) == oracle.PRE_BLANK
    assert PRE_BLANK.is_written
    assert not decode_entry(bytes(ENTRY_BYTES)).is_written


@pytest.mark.parametrize("position", [0, 1])
def test_an_entry_has_20_bytes(position: int) -> None:
    with pytest.raises(struct.error):
        decode_entry(bytes(19 + position), position)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_brokers_entries_come_back_to_the_byte(golden: Golden, name: str) -> None:
    store = golden(name)
    for row in store.queues:
        folder = store.path / "consumequeue" / row.topic / str(row.queue_id)
        data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        entries = [decode_entry(data, at) for at in range(0, len(data), ENTRY_BYTES)]
        assert b"".join(map(encode_entry, entries)) == data
        written = [entry.is_written for entry in entries]
        assert written == [n < row.max_offset for n in range(len(entries))]
        last = entries[row.max_offset - 1]
        # In queues.tsv this is the end of the last entry's record.
        assert last.physical_offset + last.size == row.max_physical_offset
