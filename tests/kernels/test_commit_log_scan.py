"""The scan kernel finds the same records as the oracle, with any buffer sizes, and never reads out of bounds."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.kernels import record_walk as kernel
from reput.kernels.llvm import INTERPRETED
from tests.kernels.walking import KernelWalk, Room, oracle_walk
from tests.oracle.forge import (
    BLANK_BYTES,
    Files,
    RecordFields,
    encode_blank,
    encode_record,
    flip_bit,
    forge_log,
    overwrite,
    set_total_size,
    truncate,
    zero_fill,
)
from tests.oracle.random_logs import KEYS, LogOptions, random_log
from tests.slow import examples

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

# Interpreted kernels are a few hundred times slower.
RECORDS = 60 if INTERPRETED else 200
EXAMPLES = examples(10 if INTERPRETED else 30)
OPTIONS = {
    "plain": LogOptions(records=RECORDS),
    "head expired": LogOptions(records=RECORDS, start_offset=12288, queue_start=777),
    "irregular": LogOptions(records=RECORDS, irregular=True),
    "one file": LogOptions(records=RECORDS, file_bytes=65536, magic_v2=False),
}
LITTLE = Room(window_bytes=1, messages=1, keys=1, multi=1, queues=1, name_bytes=1)
FIELDS = RecordFields("topic", b"x" * 40, {"KEYS": "K1 K2", "UNIQ_KEY": "U", "TAGS": "t"})


def same(files: Files, room: Room | None = None, *, multi: bool = False, lmq: bool = False) -> None:
    walk = KernelWalk(room or Room(), multi_dispatch=multi, lmq=lmq)
    assert walk.walk(files) == oracle_walk(files, enable_multi=multi, lmq=lmq)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(3 if INTERPRETED else 20))
def test_random_logs_are_dispatched_as_the_oracle_does(seed: int, name: str) -> None:
    files = random_log(seed, OPTIONS[name]).files
    same(files)
    same(files, LITTLE)


@pytest.mark.parametrize("tags_from", [0, 3000])
@pytest.mark.parametrize("seed", range(2 if INTERPRETED else 8))
def test_tags_are_index_entries_from_an_offset_on(seed: int, tags_from: int) -> None:
    files = random_log(seed, LogOptions(records=RECORDS)).files
    expected = oracle_walk(files, tags_from=tags_from)
    assert expected != oracle_walk(files)
    for room in (Room(), LITTLE):
        assert KernelWalk(room, tags_from=tags_from).walk(files) == expected


@pytest.mark.parametrize(("multi", "lmq"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("seed", range(2 if INTERPRETED else 10))
def test_further_queues(seed: int, multi: bool, lmq: bool) -> None:
    files = random_log(seed, LogOptions(records=RECORDS, multi_dispatch=True)).files
    same(files, multi=multi, lmq=lmq)
    same(files, LITTLE, multi=multi, lmq=lmq)


@pytest.mark.parametrize(
    "room",
    [
        Room(messages=1),
        Room(messages=7),
        Room(keys=1),
        Room(keys=100),
        Room(multi=1),
        Room(multi=100),
        Room(queues=1, name_bytes=1),
        Room(queues=2),
        Room(name_bytes=600),
    ],
    ids=str,
)
def test_little_room_costs_calls_but_changes_nothing(room: Room) -> None:
    files = random_log(5, LogOptions(records=RECORDS, multi_dispatch=True)).files
    walk = KernelWalk(room, multi_dispatch=True, lmq=True)
    assert walk.walk(files) == oracle_walk(files, enable_multi=True, lmq=True)
    assert walk.statuses & {kernel.BATCH_FULL, kernel.TABLE_FULL}


def test_every_window_size_gives_the_same() -> None:
    log = random_log(3, LogOptions(records=6 if INTERPRETED else 12, file_bytes=2048))
    expected = oracle_walk(log.files)
    longest = max(len(data) for _, data in log.files)
    sizes = range(1, longest + 1, 97 if INTERPRETED else 1)
    for window_bytes in sizes:
        walk = KernelWalk(Room(window_bytes=window_bytes))
        assert walk.walk(log.files) == expected, window_bytes
        if window_bytes < 80:
            assert kernel.MORE_BYTES in walk.statuses


@pytest.mark.parametrize("stop", range(0, 620, 61))
def test_a_walk_ends_at_the_first_boundary_at_or_past_its_stop(stop: int) -> None:
    log = forge_log([FIELDS] * 4, file_bytes=4096)
    walk = KernelWalk(Room())
    ((_, content),) = log.files()
    data = np.frombuffer(bytearray(content), np.uint8)
    assert walk.call(data, len(data), stop, 0, True) == kernel.STOPPED
    ends = [*log.offsets, log.end_offset]
    assert walk.state[kernel.POSITION] == next(end for end in ends if end >= stop)
    assert walk.state[kernel.MESSAGES] == ends.index(walk.state[kernel.POSITION])


def test_what_lies_behind_the_end_of_the_data_does_not_matter() -> None:
    record = encode_record(FIELDS)
    for length in range(len(record)):
        answers = set()
        for junk in (b"\0", b"\xff", b"\x01", b"\x7f"):
            data = np.frombuffer(bytearray(record[:length] + junk * 300), np.uint8)
            walk = KernelWalk(Room())
            status = walk.call(data, length, length, 0, False)
            answers.add((status, int(walk.state[kernel.NEEDED]), int(walk.state[kernel.MESSAGES])))
        assert len(answers) == 1, length
        ((status, needed, messages),) = answers
        assert (status, messages) == ((kernel.MORE_BYTES if length else kernel.STOPPED), 0)
        assert length < needed <= len(record) or not length


@st.composite
def mutated_logs(draw: st.DrawFn) -> Files:
    """A random log with a few places overwritten, cut, or filled with zeros."""
    seed = draw(st.integers(0, 9))
    options = LogOptions(records=10, file_bytes=2048, irregular=True, multi_dispatch=True)
    log = random_log(seed, options)
    files = log.files
    for _ in range(draw(st.integers(1, 4))):
        record = draw(st.sampled_from(log.offsets))
        offset = record + draw(st.integers(0, 110))
        kind = draw(st.sampled_from(("bytes", "size", "zeros", "cut", "length")))
        if kind == "bytes":
            files = overwrite(files, offset, draw(st.binary(min_size=1, max_size=8)))
        elif kind == "size":
            files = set_total_size(files, record, draw(st.integers(-2, 400)))
        elif kind == "zeros":
            files = zero_fill(files, offset, draw(st.integers(1, 64)))
        elif kind == "length":  # a wrong length of the body
            length = draw(st.integers(-5, 2100)).to_bytes(4, "big", signed=True)
            files = overwrite(files, record + 84, length)
        elif offset > 0:
            files = truncate(files, offset)
            break
    return files


@given(mutated_logs(), st.sampled_from((1, 100, 1 << 20)))
@settings(max_examples=EXAMPLES)
def test_mutated_logs_are_walked_as_the_oracle_walks_them(files: Files, window: int) -> None:
    same(files, Room(window_bytes=window), multi=True, lmq=True)


@given(st.binary(max_size=400))
@settings(max_examples=EXAMPLES)
def test_any_bytes_behind_a_magic_are_safe(data: bytes) -> None:
    head = encode_record(FIELDS)[:8]
    same([(0, data)])
    same([(0, head + data)])


def test_bits_flipped_anywhere_in_a_record() -> None:
    files = forge_log([FIELDS] * 3, file_bytes=4096).files()
    random = Random(1)
    for offset in range(len(encode_record(FIELDS))):
        bits = range(8) if not INTERPRETED else [random.randrange(8)]
        for bit in bits:
            same(flip_bit(files, offset, bit))


@pytest.mark.parametrize("total_size", [-(2**31), -1, 0, 7, 8, 19, 20, 90, 91, 4096, 2**31 - 1])
def test_total_sizes_that_cannot_be(total_size: int) -> None:
    files = forge_log([FIELDS] * 3, file_bytes=4096).files()
    second = len(encode_record(FIELDS))
    same(set_total_size(files, second, total_size))
    same(set_total_size(files, second, total_size), Room(window_bytes=10))


@pytest.mark.parametrize("body_length", [-(2**31), -1, 0, 2000, 2**31 - 1])
def test_body_lengths_that_cannot_be(body_length: int) -> None:
    files = forge_log([FIELDS] * 3, file_bytes=4096).files()
    damaged = overwrite(files, 84, body_length.to_bytes(4, "big", signed=True))
    same(damaged)
    same(damaged, Room(window_bytes=10))


def test_a_blank_ends_a_file_wherever_it_stands() -> None:
    record = encode_record(FIELDS)
    forged = encode_record(replace(FIELDS, topic="never"))
    for declared in (-1, 0, 8, 2**31 - 1):
        same([(0, record + encode_blank(declared) + forged)])
    same([(0, encode_blank(BLANK_BYTES))])
    same([(0, encode_blank(BLANK_BYTES)[:7])])


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "3"},
        {"DELAY": "٣"},
        {"DELAY": "３"},
        {"DELAY": "+18"},
        {"DELAY": "0019"},
        {"DELAY": "-1"},
        {"DELAY": "2147483648"},
        {"DELAY": "9223372036854775808"},
        {"DELAY": "soon"},
        {"DELAY": "1 "},
        {"DELAY": "𝟗"},
        b"DELAY\x011\xff",
        b"DELAY\x01\xd9",
        b"DELAY\x01",
    ],
    ids=str,
)
@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXY", "other"])
def test_delays(topic: str, properties: dict[str, str] | bytes) -> None:
    delayed = replace(FIELDS, topic=topic, properties=properties)
    same(forge_log([FIELDS, delayed, FIELDS], file_bytes=4096).files())


@pytest.mark.parametrize(
    ("queues", "offsets"),
    [
        ("a,b", "1,2"),
        ("a,b", "1"),
        ("a,b,,", "1,2"),
        ("a,,b", "1,2,3"),
        (",a", "0,1"),
        (",,,", "1"),
        ("a,b,c", "1,x,3"),
        ("%LMQ%a,%LMQ%,%LMQ", "5,6,7"),
        ("a", "-9223372036854775808"),
        ("a", "9223372036854775807"),
        ("a", "9223372036854775808"),
        ("a,b", "٣,+4"),
        ("a", " "),
        (" ", "1"),
        ("\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f", "1"),
        ("\u3000\u2003\u1680\u2028", "1"),
        ("\u00a0", "1"),
        ("\u2007", "1"),
        (" a", "1"),
        ("a, ", "1,2"),
        ("a,a", "3,4"),
        ("topic", "8"),
    ],
)
@pytest.mark.parametrize("lmq", [True, False])
def test_further_queues_are_split_as_java_splits(queues: str, offsets: str, lmq: bool) -> None:
    properties = {"INNER_MULTI_DISPATCH": queues, "INNER_MULTI_QUEUE_OFFSET": offsets}
    fields = replace(FIELDS, queue_id=3, properties=properties)
    same(forge_log([fields, FIELDS], file_bytes=4096).files(), multi=True, lmq=lmq)


@pytest.mark.parametrize("key", [*KEYS, "polygenelubricants", "\x7f", "\x80", "\u07ff", "\uffff"])
@pytest.mark.parametrize("topic", ["t", "主", "😀" * 7])
def test_keys_of_every_kind_and_length_are_hashed(topic: str, key: str) -> None:
    spellings = [key * times for times in range(1, 20)]
    fields = [
        RecordFields(topic, properties={"UNIQ_KEY": spelling, "KEYS": f" {spelling}  x"})
        for spelling in (spellings[:3] if INTERPRETED else spellings)
    ]
    same(forge_log(fields, file_bytes=1 << 16).files())


def test_a_message_before_the_last_indexed_one_gets_no_keys() -> None:
    fields = [replace(FIELDS, physical_offset=offset) for offset in (500, 400, 500, 501, -1)]
    data = b"".join(map(encode_record, fields))
    walk = KernelWalk(Room())
    found = walk.walk([(0, data)])
    assert [len(row.key_hashes) for row in found.rows] == [3, 0, 3, 3, 0]
    assert found == oracle_walk([(0, data)])
    assert walk.state[kernel.END_OFFSET] == 501
    assert found.misplaced == 5


def test_topics_may_be_long_empty_or_the_same_in_part() -> None:
    topics = ["", "a", "aa", "a" * 8, "a" * 9, "a" * 127, "b", "a" * 8]
    fields = [RecordFields(topic, queue_id=number % 2) for number, topic in enumerate(topics * 3)]
    same(forge_log(fields, file_bytes=1 << 16).files())
    same(forge_log(fields, file_bytes=1 << 16).files(), Room(queues=1, name_bytes=1))
