"""Rules of dispatch that no golden store shows: gaps, drops, pre-blank, empty index files."""

from dataclasses import replace

import pytest

from tests.oracle.brute import query_exact
from tests.oracle.consume_queue import ENTRY, PRE_BLANK, write_consume_queues
from tests.oracle.forge import RecordFields, forge_log
from tests.oracle.index_file import HEADER, ITEM, IndexFile, write_index_files
from tests.oracle.query import EndlessChainError, IndexView, query_offset
from tests.oracle.records import Record
from tests.oracle.walk import walk

QUEUE_FILE_BYTES = 5 * ENTRY.size


def records_of(*fields: RecordFields) -> list[Record]:
    return walk(forge_log(fields, file_bytes=65536).files()).dispatched


def entries(data: bytes) -> list[int]:
    """Return the physical offsets of a queue file's entries, -1 for a pre-blank one."""
    parts = [data[at : at + ENTRY.size] for at in range(0, len(data), ENTRY.size)]
    return [-1 if part == PRE_BLANK else ENTRY.unpack(part)[0] for part in parts if any(part)]


def queue_of(*queue_offsets: int) -> tuple[list[int], dict[str, list[int]]]:
    """Return physical offsets of records with these queue offsets, and the resulting queue files."""
    # No record is at offset 0, so no entry looks like padding.
    fields = [RecordFields("other"), *(RecordFields("t", queue_offset=i) for i in queue_offsets)]
    records = records_of(*fields)
    files = write_consume_queues(records, file_bytes=QUEUE_FILE_BYTES - 7)["t", 0]
    assert {len(data) for data in files.values()} == {QUEUE_FILE_BYTES}
    offsets = [record.physical_offset for record in records[1:]]
    return offsets, {name: entries(data) for name, data in files.items()}


def test_a_queue_that_starts_above_0_is_filled_up_before_it() -> None:
    (a, b, c), files = queue_of(13, 14, 15)
    assert files == {f"{200:020d}": [-1, -1, -1, a, b], f"{300:020d}": [c]}


def test_a_gap_is_closed_up_and_what_went_before_is_dropped() -> None:
    (a, b, c, _, e), files = queue_of(0, 1, 7, 2, 3)
    assert files == {f"{0:020d}": [a, b, c, e]}


def test_queue_offset_0_goes_wherever_the_end_is() -> None:
    (a, b, c, d, e, f), files = queue_of(5, 0, 0, 8, 0, 10)
    assert files == {f"{100:020d}": [a, b, c, d, e], f"{200:020d}": [f]}


def test_an_entry_that_is_dropped_at_the_end_of_a_file_leaves_the_next_one_empty() -> None:
    (a, b, c, d, e, _), files = queue_of(0, 1, 2, 3, 4, 3)
    assert files == {f"{0:020d}": [a, b, c, d, e], f"{100:020d}": []}


def test_a_record_that_is_dispatched_again_is_dropped() -> None:
    # Only the end of the last entry counts, so queue offset 0 would be accepted anywhere.
    records = records_of(*[RecordFields("t", queue_offset=0)] * 3)
    again = [*records, records[1], records[2]]
    once = write_consume_queues(records, file_bytes=100)
    assert len(entries(once["t", 0][f"{0:020d}"])) == 3
    assert write_consume_queues(again, file_bytes=100) == once


def test_further_queues_need_as_many_offsets_and_light_ones_have_the_id_0() -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    fields = RecordFields("t", queue_id=3, properties=properties)
    uneven = replace(fields, properties=properties | {"INNER_MULTI_QUEUE_OFFSET": "0"})
    not_a_number = replace(fields, properties=properties | {"INNER_MULTI_QUEUE_OFFSET": "0,x"})

    def queues(fields: RecordFields, *, multi: bool, lmq: bool) -> set[tuple[str, int]]:
        return set(
            write_consume_queues(
                records_of(fields), file_bytes=100, enable_multi_dispatch=multi, enable_lmq=lmq
            )
        )

    assert queues(fields, multi=True, lmq=True) == {("t", 3), ("%LMQ%a", 0), ("b", 3)}
    assert queues(fields, multi=True, lmq=False) == {("t", 3), ("%LMQ%a", 3), ("b", 3)}
    assert queues(fields, multi=False, lmq=True) == {("t", 3)}
    assert queues(uneven, multi=True, lmq=True) == {("t", 3)}
    assert queues(not_a_number, multi=True, lmq=True) == {("t", 3), ("%LMQ%a", 0)}
    assert queues(RecordFields("t"), multi=True, lmq=True) == {("t", 0)}


@pytest.mark.parametrize(
    ("sys_flag", "queued", "indexed"),
    [(0, True, True), (4, False, True), (8, True, True), (12, False, False)],
)
def test_transactions(sys_flag: int, queued: bool, indexed: bool) -> None:
    records = records_of(RecordFields("t", sys_flag=sys_flag, properties={"KEYS": "k"}))
    (index,) = write_index_files(records, hash_slots=3, index_items=9)
    assert bool(write_consume_queues(records, file_bytes=100)) is queued
    assert index.index_count == (2 if indexed else 1)
    assert query_exact([(0, records[0])], "t", "k", 0, 2**63 - 1) == ([0] if indexed else [])


def keyed(keys: str, store_timestamp: int) -> RecordFields:
    return RecordFields("t", properties={"KEYS": keys}, store_timestamp=store_timestamp)


def test_a_full_index_file_is_followed_by_one_before_any_key_needs_it() -> None:
    records = records_of(keyed("a b", 7000), RecordFields("t", store_timestamp=9000))
    first, second = write_index_files(records, hash_slots=3, index_items=3)
    assert first.index_count == 3
    assert second.first_store_timestamp is None
    assert second.created_store_timestamp == 9000
    assert HEADER.unpack_from(second.to_bytes()) == (7000, 7000, 0, 0, 0, 0)


def test_keys_straddle_files_and_the_first_of_the_second_has_the_gap_as_its_time() -> None:
    first, second = write_index_files(
        records_of(keyed("a", 10_000), keyed("b c", 75_999)), hash_slots=3, index_items=3
    )
    assert [ITEM.unpack_from(first.items, ITEM.size * i)[2] for i in (1, 2)] == [0, 65]
    # The time of "c" is relative to the end of the first file, which is the time of "b": the same message.
    assert ITEM.unpack_from(second.items, ITEM.size)[2] == 0
    assert second.begin_timestamp == second.first_store_timestamp == 75_999


def test_the_gap_between_files_makes_the_first_entry_late() -> None:
    files = write_index_files(
        records_of(keyed("a b", 10_000), keyed("c", 70_000)), hash_slots=3, index_items=3
    )
    assert ITEM.unpack_from(files[1].items, ITEM.size)[2] == 60
    index = [IndexView(file.to_bytes(), 3) for file in files]
    assert query_offset(index, "t", "c", 9, 70_000, 70_000).offsets == ()
    assert len(query_offset(index, "t", "c", 9, 70_000, 130_000).offsets) == 1


def test_records_before_the_end_of_the_last_index_file_are_skipped_but_not_the_last_itself() -> (
    None
):
    records = records_of(keyed("a", 1000), keyed("b", 2000))
    (index,) = write_index_files([*records, *records], hash_slots=3, index_items=9)
    assert index.index_count == 1 + 2 + 1


def test_a_key_counts_once_however_often_it_is_there() -> None:
    record = records_of(RecordFields("t", properties={"KEYS": "k  k", "UNIQ_KEY": "k"}))[0]
    assert record.index_keys == ["k", "k", "k"]
    walked = [(5, record), (9, record)]
    time = record.store_timestamp
    assert query_exact(walked, "t", "k", time, time) == [9, 5]
    assert query_exact(walked, "t", "k", time + 1, time + 1) == []
    assert query_exact(walked, "t", "", time, time) == []
    assert query_exact(walked, "T", "k", time, time) == []


def test_a_chain_without_an_end_is_told() -> None:
    file = IndexFile(hash_slots=1, index_items=9, created_store_timestamp=0)
    for number in range(3):
        file.put("t", f"k{number}", number, 1000)
    loop = bytearray(file.to_bytes())
    first_item = HEADER.size + 4 + ITEM.size
    loop[first_item + 16 : first_item + 20] = (3).to_bytes(4, "big")
    with pytest.raises(EndlessChainError):
        query_offset([IndexView(loop, 1)], "t", "missing", 9, 0, 2000)


def test_an_index_file_must_have_room_for_a_key() -> None:
    with pytest.raises(ValueError, match="fewer than two"):
        IndexFile(hash_slots=1, index_items=1, created_store_timestamp=0)
