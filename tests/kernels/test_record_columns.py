"""The kernels that make columns, on random records: compiled, and in plain Python, which sees every wild read."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.engine.messages.decode import decode_batch
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.java_string import decode_utf8
from reput.format.properties import decode_properties
from reput.kernels.entry_checks import step, sum_of_steps
from reput.kernels.java_utf8 import WORST_GROWTH, put_text, same_text
from reput.kernels.llvm import INTERPRETED
from reput.kernels.properties_scan import next_separator
from tests.oracle import table
from tests.oracle.forge import RecordFields, encode_record
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.records import Record, decode
from tests.slow import examples
from tests.tables.reading import rows_of

TEXTS = (
    *(b"", b"a", b"KEYS", b"exactly8", b"nine byte", b"\xff", b"a\xffb", "中文".encode()),
    *("😀".encode(), b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xe4\xb8 \xad", b"x" * 40 + b"\xc3"),
    *(b"\xef\xbf\xbd", b"\xc0\x80", b"plain then \xf4\x90\x80\x80 more", b"\x00\x01\x02"),
)


@pytest.mark.parametrize("seed", range(4))
def test_columns_of_random_records_are_the_oracles(seed: int) -> None:
    log = random_log(seed, LogOptions(records=40, irregular=True))
    (_, data), offset = log.files[0], log.offsets[0]
    positions = [at for at in log.offsets if at < len(data)]
    records = [decode(data, at) for at in positions]
    expected = [
        table.row_of(at, record, "s", decompressed=False)
        for at, record in zip(positions, records, strict=True)
        if isinstance(record, Record)
    ]
    batch, bad = decode_batch(
        np.frombuffer(bytearray(data), np.uint8),
        np.array(positions, np.int64),
        store="s",
        base=offset,
        decompressed=False,
    )
    batch.validate(full=True)
    assert bad == []
    assert rows_of(pa.Table.from_batches([batch])) == expected


def test_a_record_at_the_very_end_of_the_buffer_is_decoded() -> None:
    record = encode_record(RecordFields(topic="t", properties=b"TAGS\x01x\x02K\x01v"))
    data = np.frombuffer(bytearray(record), np.uint8)
    batch, _ = decode_batch(data, np.zeros(1, np.int64), ["tags", "properties", "keys"])
    assert batch.to_pylist() == [
        {"tags": "x", "properties": [("TAGS", "x"), ("K", "v")], "keys": []}
    ]


NAMES = (
    *(b"KEYS", b"TAGS", b"UNIQ_KEY", b"UNIQ_KEX", b"K", b"K\x00", b"KEYS\x00\x00", b"12345678"),
    *(b"12345678-x-12345678", b"12345678-y-12345678", b"\xe4\xb8\xad", b"a\xff", b""),
)
CHUNKS = st.one_of(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(
            [b"", b"v", b"seven77", b"exactly8", b"a\x01b", b"\x00", b"x" * 33, b"\xff"]
        ),
    ).map(b"\x01".join),
    st.binary(max_size=12),
    st.integers(0, 40).map(lambda number: b"name%d\x01%d" % (number, number)),
)


@given(st.lists(st.lists(CHUNKS, max_size=30), min_size=1, max_size=4), st.booleans())
@settings(max_examples=examples(15 if INTERPRETED else 100))
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_properties_are_those_of_the_slow_parser(rows: list[list[bytes]], is_ended: bool) -> None:
    strings = [b"\x02".join(row) + b"\x02" * is_ended for row in rows]
    data, positions = b"", []
    for text in strings:
        positions.append(len(data))
        data += encode_record(RecordFields(topic="t", properties=text))
    names = ["unique_key", "tags", "keys", "properties"]
    for wanted in (names, names[:3]):  # with and without the column of all properties
        batch, _ = decode_batch(
            np.frombuffer(bytearray(data), np.uint8), np.array(positions, np.int64), wanted
        )
        for text, row in zip(strings, batch.to_pylist(), strict=True):
            expected = decode_properties(decode_utf8(text))
            if "properties" in row:
                assert row["properties"] == list(expected.items())
            assert row["unique_key"] == expected.get("UNIQ_KEY")
            assert row["tags"] == expected.get("TAGS")
            assert row["keys"] == [key for key in expected.get("KEYS", "").split(" ") if key]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_are_written_as_java_decodes_them(text: bytes) -> None:
    expected = decode_utf8(text).encode()
    assert len(expected) <= WORST_GROWTH * len(text)
    for before, behind in ((0, 0), (3, 0), (0, 9), (5, 20)):
        data = np.frombuffer(bytearray(b"\xff" * before + text + b"\xfe" * behind + b"."), np.uint8)
        for spare in (0, 8):
            out = np.zeros(len(expected) + 2 + spare, np.uint8)
            end = put_text(out, 2, data, before, before + len(text))
            assert out[2:end].tobytes() == expected


def test_texts_are_the_same_where_java_decodes_them_to_the_same() -> None:
    for one in filter(None, TEXTS):
        for other in filter(None, TEXTS):
            data = np.frombuffer(bytearray(one + other), np.uint8)
            found = same_text(data, 0, len(one), len(one), len(one) + len(other))
            assert bool(found) == (decode_utf8(one) == decode_utf8(other))


def test_the_next_separator_is_the_first_byte_1_or_2() -> None:
    random = Random(7)
    for _ in range(60):
        text = bytes(random.choices((0, 1, 2, 3, 0x41, 0x80, 0xFF), (2, 1, 1, 9, 40, 9, 9), k=40))
        data = np.frombuffer(bytearray(text), np.uint8)
        for start in range(0, 40, 3):
            for stop in (start, 29, 40):
                places = [at for at in range(start, stop) if text[at] in (1, 2)]
                expected = places[0] if places else max(stop, start)
                assert next_separator(data, start, max(stop, start)) == expected


def test_entries_that_tile_a_range_add_up_to_its_ends_and_no_others_do() -> None:
    random = Random(3)
    sizes = [random.randint(91, 400) for _ in range(60)]
    begins = np.cumsum([1000, *sizes])
    entries = np.zeros(60, ENTRY_DTYPE)
    entries["physical_offset"], entries["size"] = begins[:-1], sizes
    np.random.default_rng(3).shuffle(entries)
    seed = np.uint64(0x1234_5678_9ABC_DEF1)

    def total(of: np.ndarray[tuple[int], np.dtype[np.void]]) -> tuple[int, int]:
        data = np.frombuffer(bytearray(of.tobytes()), np.uint8)
        found, end = sum_of_steps(data, len(of), seed)
        return int(found), int(end)

    with np.errstate(over="ignore"):
        whole = (int(step(1000, int(begins[-1]), seed)), int(begins[-1]))
        assert total(entries) == whole
        for place in range(60):
            assert total(np.delete(entries, place)) != whole
            assert total(np.append(entries, entries[place])) != whole
            moved = entries.copy()
            moved["size"][place] += 1
            assert total(moved) != whole
