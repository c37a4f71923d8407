"""The oracle's walk and the forge: the walk finds all records, and loses exactly the documented bytes after damage."""

from dataclasses import replace

import pytest

from tests.oracle import forge
from tests.oracle.forge import Files, LogForge, RecordFields, encode_record, forge_log
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.records import MAGIC_V2, Record, UnreadableError, decode
from tests.oracle.walk import Damage, walk

FILE_BYTES = 1024
FIELDS = RecordFields("topic", b"x" * 100, {"KEYS": "K1 K2", "UNIQ_KEY": "U", "TAGS": "t"})
SIZE = len(encode_record(FIELDS))


def log_of(count: int) -> LogForge:
    return forge_log([replace(FIELDS, queue_offset=i) for i in range(count)], file_bytes=FILE_BYTES)


def offsets(files: Files) -> list[int]:
    return [offset for offset, _ in walk(files).records]


OPTIONS = [
    LogOptions(),
    LogOptions(start_offset=12288, queue_start=777),
    LogOptions(irregular=True, multi_dispatch=True),
    LogOptions(records=60, file_bytes=65536, magic_v2=False),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", range(5))
def test_everything_that_was_put_is_found(seed: int, options: LogOptions) -> None:
    log = random_log(seed, options)
    found = walk(log.files)
    assert [offset for offset, _ in found.records] == log.offsets
    assert found.blanks == log.blanks
    assert found.damage == []
    assert found.end_offset == log.end_offset
    assert all(len(data) == options.file_bytes for _, data in log.files)


def test_random_logs_hold_what_they_promise() -> None:
    logs = [random_log(seed) for seed in range(20)]
    records = [record for log in logs for record in walk(log.files).dispatched]
    assert {size for log in logs for _, size in log.blanks} >= {8, 9, 12}
    assert {record.transaction_type for record in records} == {0, 4, 8, 12}
    assert any(record.magic == MAGIC_V2 and len(record.topic.encode()) > 127 for record in records)
    assert any(len(record.born_host[0]) == 16 for record in records)
    assert any("\ufffd" in record.topic for record in records)
    assert any("\ufffd" in key for record in records for key in record.index_keys)
    assert any(b"forged" in data for log in logs for _, data in log.files)
    assert random_log(3) == logs[3]


@pytest.mark.parametrize("room", [8, 9, 12, 100])
def test_a_file_can_end_with_an_exact_rest(room: int) -> None:
    log = LogForge(FILE_BYTES, start_offset=FILE_BYTES)
    log.leave(room, FIELDS)
    log.put(FIELDS)
    assert log.blanks == [(2 * FILE_BYTES - room, room)]
    assert log.offsets == [FILE_BYTES, 2 * FILE_BYTES]


def test_decode_gives_back_every_field() -> None:
    fields = RecordFields(
        topic="主" * 60,
        body=b"body",
        properties={"KEYS": " a  b", "TAGS": "x"},
        queue_id=-3,
        queue_offset=2**40,
        physical_offset=2**50,
        sys_flag=8,
        flag=-1,
        born_timestamp=-5,
        born_host=(bytes(range(16)), 65535),
        store_timestamp=2**62,
        reconsume_times=16,
        prepared_transaction_offset=99,
        magic=MAGIC_V2,
    )
    record = decode(encode_record(fields))
    assert isinstance(record, Record)
    for name in ("topic", "body", "queue_id", "queue_offset", "physical_offset", "flag", "magic"):
        assert getattr(record, name) == getattr(fields, name)
    assert record.sys_flag == 8 | 16
    assert (record.born_timestamp, record.store_timestamp) == (-5, 2**62)
    assert (record.born_host, record.store_host) == (fields.born_host, fields.store_host)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (16, 99)
    assert record.index_keys == ["a", "b"]


def test_a_topic_whose_length_byte_is_negative_cannot_be_read() -> None:
    record = bytearray(encode_record(RecordFields("t" * 100)))
    record[84 + 4] = 0xB4
    with pytest.raises(UnreadableError, match="-76 bytes"):
        decode(record)


def test_a_delay_level_that_is_no_number_makes_the_record_unreadable() -> None:
    fields = RecordFields("SCHEDULE_TOPIC_XXXX", properties={"DELAY": "soon"})
    with pytest.raises(UnreadableError, match="delay level"):
        decode(encode_record(fields))
    assert isinstance(decode(encode_record(replace(fields, topic="other"))), Record)


def test_an_unreadable_record_costs_the_rest_of_its_file() -> None:
    log = log_of(12)
    in_first = log.blanks[0][0] // SIZE
    files = forge.flip_bit(log.files(), SIZE + 4, 0)
    assert offsets(files) == [log.offsets[0], *log.offsets[in_first:]]
    (damage,) = walk(files).damage
    assert (damage.offset, damage.length) == (SIZE, FILE_BYTES - SIZE)


@pytest.mark.parametrize("total_size", [SIZE - 1, SIZE + 1, 2 * SIZE, FILE_BYTES, 2**31 - 1])
def test_a_wrong_total_size_costs_its_record_alone(total_size: int) -> None:
    log = log_of(12)
    files = forge.set_total_size(log.files(), SIZE, total_size)
    assert offsets(files) == [offset for offset in log.offsets if offset != SIZE]
    reason = f"TOTALSIZE {total_size}, but lengths add up to {SIZE}"
    assert walk(files).damage == [Damage(SIZE, SIZE, reason)]


@pytest.mark.parametrize("total_size", [-(2**31), -1, 0, 1, 7])
def test_an_impossible_total_size_costs_the_rest_of_its_file(total_size: int) -> None:
    log = log_of(12)
    found = walk(forge.set_total_size(log.files(), 0, total_size))
    assert [(damage.offset, damage.length) for damage in found.damage] == [(0, FILE_BYTES)]
    assert [offset for offset, _ in found.records] == [o for o in log.offsets if o >= FILE_BYTES]


def test_the_log_ends_where_nothing_after_proves_itself() -> None:
    log = log_of(10)
    last = log.offsets[-1]
    for files in (
        forge.flip_bit(log.files(), last + 4, 0),
        forge.zero_fill(log.files(), last, SIZE),
        forge.zero_fill(log.files(), last + 60, SIZE),
        forge.set_total_size(log.files(), last, SIZE + 1),
        forge.truncate(log.files(), last + SIZE - 1),
    ):
        found = walk(files)
        assert [offset for offset, _ in found.records] == log.offsets[:-1]
        assert (found.damage, found.end_offset) == ([], last)


def test_damage_before_a_record_that_proves_itself_is_no_end() -> None:
    log = log_of(10)
    *_, before, last = log.offsets
    files = forge.zero_fill(log.files(), before, 8)
    found = walk(files)
    (damage,) = found.damage
    assert damage.offset == before
    assert found.end_offset == files[-1][0] + FILE_BYTES
    # If the last record states another physical offset, it does not prove that the log continues after the zeros.
    lying = forge.flip_bit(files, last + 28 + 7, 3)
    assert (walk(lying).damage, walk(lying).end_offset) == ([], before)


def test_zeros_before_the_last_file_with_data_are_damage_and_after_it_nothing() -> None:
    log = log_of(16)
    files = log.files()
    assert len(files) == 4
    emptied = forge.zero_fill(files, FILE_BYTES, FILE_BYTES)
    damage = [(damage.offset, damage.length) for damage in walk(emptied).damage]
    assert damage == [(FILE_BYTES, FILE_BYTES)]
    longer = [*files, (4 * FILE_BYTES, bytes(FILE_BYTES))]
    assert walk(longer) == walk(files)
    assert walk([(8192, bytes(FILE_BYTES))]).end_offset == 8192


def test_a_missing_file_is_damage() -> None:
    files = log_of(16).files()
    assert walk([files[0], *files[2:]]).damage == [Damage(FILE_BYTES, FILE_BYTES, "missing file")]
