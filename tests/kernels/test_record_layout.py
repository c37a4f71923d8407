"""Records that are laid out in bulk, compared with records joined one by one."""

from zlib import crc32

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.format.commit_log import (
    BLANK_BYTES,
    HEADS,
    MESSAGE_MAGIC,
    SYS_FLAG_BORN_HOST_V6,
    join_record,
    record_bytes,
)
from reput.kernels.jit import new_rows
from reput.kernels.record_layout import PUT_DTYPE, joined_bytes, lay_out_records, write_unique_keys

STORE_HOST = bytes(range(8))


def texts(values: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    at = np.cumsum([0, *map(len, values)]).astype(np.int64)
    return np.frombuffer(bytearray(b"".join(values)), np.uint8), at


def properties_of(names: list[bytes], values: list[bytes]) -> bytes:
    pairs = zip(names, values, strict=True)
    return b"\x02".join(name + b"\x01" + value if name else value for name, value in pairs if value)


SMALL = st.binary(max_size=90)


@given(
    st.lists(st.tuples(SMALL, SMALL, SMALL, st.integers(0, 2)), max_size=6),
    st.sampled_from([[b"KEYS", b"TAGS"], [b"", b""]]),
    st.integers(0, 700),
)
def test_rows_are_records_as_long_as_a_blank_fits(
    messages: list[tuple[bytes, bytes, bytes, int]], names: list[bytes], room: int
) -> None:
    if names == [b"", b""]:
        messages = [(body, first, b"", host) for body, first, _, host in messages]
    hosts = [b"\x01" * 8, b"\x02" * 20, b"\x03" * 8]
    topics = [b"T", b"Topic"]
    rows = new_rows(len(messages), PUT_DTYPE)
    rows.view(np.uint8)[:] = 0
    expected = b""
    count = 0
    for number, (body, first, second, host) in enumerate(messages):
        rows[number]["topic"] = rows[number]["queue"] = number % 2
        rows[number]["born_host"], rows[number]["born_timestamp"] = host, number
        flags = SYS_FLAG_BORN_HOST_V6 if host == 1 else 0
        fields = (
            MESSAGE_MAGIC, crc32(body) & 0x7FFFFFFF, 0, 0, 40 + number // 2,
            1000 + len(expected), flags, number, hosts[host], 99, STORE_HOST,
            0, 0, len(body),
        )  # fmt: skip
        topic = topics[number % 2]
        topic = bytes([len(topic)]) + topic
        properties = properties_of(names, [first, second])
        head = HEADS[flags]
        size = record_bytes(head, len(body), len(topic), len(properties))
        record = join_record(head.struct.pack(size, *fields), body, topic, properties)
        if len(expected) + len(record) + BLANK_BYTES > room:
            break
        expected += record
        count += 1
    columns = [texts([m[1] for m in messages]), texts([m[2] for m in messages])]
    data = np.concatenate([*(column[0] for column in columns), np.zeros(1, np.uint8)])
    property_at = np.stack([columns[0][1], columns[1][1] + len(columns[0][0])])
    out = np.zeros(room, np.uint8)
    places = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    progress = np.array([0, 1000])
    lay_out_records(
        out, 1000, progress, rows, *texts([m[0] for m in messages]), data, property_at,
        *texts(names), *texts(topics), *texts(hosts), texts([STORE_HOST])[0], 99,
        np.full(2, 40, np.int64), *places, False, False,
    )  # fmt: skip
    assert progress.tolist() == [count, 1000 + len(expected)]
    assert out.tobytes() == expected.ljust(room, b"\0")
    lengths = np.zeros(len(rows), np.int64)
    joined_bytes(property_at, texts(names)[1], False, lengths)
    assert lengths.tolist() == [len(properties_of(names, [m[1], m[2]])) for m in messages]


def test_unique_keys_count_on() -> None:
    out = np.zeros(96, np.uint8)
    write_unique_keys(out, np.frombuffer(bytearray(b"P" * 20), np.uint8), 0x12ABCDEF, 0xFFFE)
    ends = (b"12ABCDEFFFFE", b"12ABCDEFFFFF", b"12ABCDF00000")
    assert out.tobytes() == b"".join(b"P" * 20 + end for end in ends)
