"""The readers' scan finds the records, queues and damage that the oracle finds, with buffers of any size."""

from random import Random

import pytest

from reput.kernels import record_walk as kernel
from reput.kernels.llvm import INTERPRETED
from tests.kernels.walking import KernelWalk, Room, Row, Walked, oracle_walk
from tests.oracle.forge import Files, RecordFields, encode_record, flip_bit, forge_log
from tests.oracle.random_logs import LogOptions, random_log

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

RECORDS = 40 if INTERPRETED else 200
LITTLE = Room(window_bytes=1, messages=1, keys=1, multi=1, queues=1, name_bytes=1)


def places(found: Walked) -> list[tuple[object, ...]]:
    """Return the parts of each row that readers need."""
    return [
        (row.physical_offset, row.queue_offset, row.store_timestamp, row.size, row.sys_flag, row.queue)
        for row in found.rows
    ]  # fmt: skip


def same(files: Files, room: Room) -> KernelWalk:
    walk, expected = KernelWalk(room, places=True), oracle_walk(files)
    found = walk.walk(files)
    assert places(found) == places(expected)
    assert (found.damage, found.blanks) == (expected.damage, expected.blanks)
    assert found.misplaced == expected.misplaced
    return walk


@pytest.mark.parametrize("room", [Room(), LITTLE, Room(messages=7), Room(queues=2)], ids=str)
@pytest.mark.parametrize("seed", range(2 if INTERPRETED else 8))
def test_random_logs_have_the_records_of_the_oracle(seed: int, room: Room) -> None:
    log = random_log(seed, LogOptions(records=RECORDS, irregular=seed % 2 == 1))
    assert kernel.SCHEDULED in same(log.files, room).statuses


@pytest.mark.parametrize("seed", range(2 if INTERPRETED else 15))
def test_damage_is_what_the_oracle_says(seed: int) -> None:
    random = Random(seed)
    log = random_log(seed, LogOptions(records=RECORDS))
    files = log.files
    for _ in range(3):
        start, data = random.choice(files)
        files = flip_bit(files, start + random.randrange(len(data)), random.randrange(8))
    same(files, Room())


@pytest.mark.parametrize("delay", ["soon", "3"])
def test_the_properties_of_a_delayed_message_say_whether_it_can_be_read(delay: str) -> None:
    delayed = RecordFields("SCHEDULE_TOPIC_XXXX", properties={"DELAY": delay})
    plain = RecordFields("orders", properties={"DELAY": "soon"})
    files = forge_log([plain, delayed, plain], file_bytes=4096).files()
    walk = same(files, Room())
    assert len(walk.found.rows) == (3 if delay == "3" else 1)
    assert kernel.SCHEDULED in walk.statuses


def test_rows_have_neither_tags_code_nor_keys() -> None:
    fields = RecordFields("orders", properties={"KEYS": "a b", "UNIQ_KEY": "u", "TAGS": "t"})
    walk = KernelWalk(Room(), places=True)
    walk.messages[:]["tags_code"] = walk.messages[:]["key_count"] = 7  # rows are reused
    size = len(encode_record(fields))
    assert walk.walk([(0, encode_record(fields))]).rows == [
        Row(0, fields.queue_offset, fields.store_timestamp, 0, size, 0, ("orders", 0), (), ())
    ]
