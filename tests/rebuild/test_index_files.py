"""The boundaries of IndexFiles, for any boundaries of splits."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput.format.index_file import IndexHeader, decode_header
from tests.oracle.forge import RecordFields, encode_record, forge_log
from tests.oracle.walk import walk
from tests.rebuild.rebuilding import SMALL, assert_oracle, index_files, rebuild_log

SPLIT_SIZES = pytest.mark.parametrize("split_size", [1, 91, 300, None])
CAPACITY = 4  # number of keys in a file of five items, because the first item is never used
CONFIG = replace(SMALL, index_items=CAPACITY + 1)


def keyed(keys: str, store_timestamp: int = 1_000, sys_flag: int = 0) -> RecordFields:
    properties = {"KEYS": keys}
    return RecordFields(
        "t", properties=properties, store_timestamp=store_timestamp, sys_flag=sys_flag
    )


def rebuilt(folder: Path, records: list[RecordFields], split_size: int | None) -> list[IndexHeader]:
    """Return headers of the IndexFiles, which equal the oracle's files byte for byte."""
    log = forge_log(records, file_bytes=1024)
    rebuild_log(folder, log.files(), CONFIG, split_size=split_size)
    assert_oracle(folder / "out", walk(log.files()), CONFIG)
    return [decode_header(data) for data in index_files(folder / "out")]


@SPLIT_SIZES
@pytest.mark.parametrize("count", range(1, 2 * CAPACITY + 2))
def test_the_keys_of_one_message_may_lie_in_several_files(
    count: int, split_size: int | None, tmp_path: Path
) -> None:
    keys = " ".join(map(str, range(count)))
    headers = rebuilt(tmp_path, [keyed("a"), keyed(keys), keyed("z")], split_size)
    assert len(headers) == -(-(count + 2) // CAPACITY)


@SPLIT_SIZES
def test_a_log_may_end_exactly_where_a_file_is_full(split_size: int | None, tmp_path: Path) -> None:
    headers = rebuilt(tmp_path, [keyed("a b"), keyed("c d")], split_size)
    assert [header.index_count for header in headers] == [CAPACITY + 1]


@SPLIT_SIZES
@pytest.mark.parametrize("after", [RecordFields("t"), keyed(""), keyed("k", sys_flag=12)])
def test_any_message_after_a_full_file_makes_the_next(
    after: RecordFields, split_size: int | None, tmp_path: Path
) -> None:
    """The next file has no entries. Its begin and end are both the end of the previous file."""
    records = [keyed("a b", 5_000), keyed("c d", 9_000), after]
    full, empty = rebuilt(tmp_path, records, split_size)
    assert full.index_count == CAPACITY + 1
    end = (full.end_timestamp, full.end_physical_offset)
    assert empty == IndexHeader(end[0], end[0], end[1], end[1], 0, 0)


@SPLIT_SIZES
def test_messages_before_the_last_key_make_no_file(split_size: int | None, tmp_path: Path) -> None:
    records = [keyed("a b"), RecordFields("t"), keyed("c d")]
    assert len(rebuilt(tmp_path, records, split_size)) == 1


@SPLIT_SIZES
@pytest.mark.parametrize("count", [1, 2, 30])
def test_a_log_without_keys_has_one_empty_file(
    count: int, split_size: int | None, tmp_path: Path
) -> None:
    headers = rebuilt(tmp_path, [RecordFields("t")] * count, split_size)
    assert headers == [IndexHeader(0, 0, 0, 0, 0, 0)]


@SPLIT_SIZES
def test_the_first_entry_of_a_file_carries_the_gap_to_the_one_before(
    split_size: int | None, tmp_path: Path
) -> None:
    records = [keyed("a b c d", 10_000), *[RecordFields("t")] * 9, keyed("e", 75_999)]
    _, second = rebuilt(tmp_path, records, split_size)
    assert second.begin_timestamp == 75_999


@SPLIT_SIZES
@pytest.mark.parametrize("first", [-(2**63), -1, 0, 2**63 - 1])
def test_times_that_cannot_be(first: int, split_size: int | None, tmp_path: Path) -> None:
    records = [keyed("a b c", first), keyed("d e", 5), keyed("f g h", first), keyed("i", 7)]
    assert len(rebuilt(tmp_path, records, split_size)) == 3


@SPLIT_SIZES
def test_a_message_from_before_the_last_indexed_one_has_no_entries(
    split_size: int | None, tmp_path: Path
) -> None:
    """A broker compares the physical offset in the record, not the record's place in the log."""
    log = forge_log([], file_bytes=1024)
    for stated in (0, 5_000, 4_999, 5_000, 300, 5_001):
        log.put_bytes(encode_record(replace(keyed("a b"), physical_offset=stated)))
    rebuild_log(tmp_path, log.files(), CONFIG, split_size=split_size)
    assert_oracle(tmp_path / "out", walk(log.files()), CONFIG)
    headers = [decode_header(data) for data in index_files(tmp_path / "out")]
    assert sum(header.next_item - 1 for header in headers) == 2 * 4
