"""Lines of many messages: identical to the lines of single messages."""

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.engine.messages.codec import message_line
from reput.engine.messages.message_lines import log_lines, record_lines
from reput.format.commit_log import BODY_CRC_POSITION, MessageExt, decode, encode, locate
from reput.format.host import Host
from reput.format.java_string import encode_utf8, hash_map_order
from reput.testing.builders import MESSAGE
from reput.testing.strategies import hosts, messages, nearly_utf8, property_names, property_values
from tests.golden.stores import GoldenStore

ODD = 'a"\\/ \b\t\n\f\r\x00\x1f\x7f\x80é中\u200b\u202e\u2028\ufeff\ufffd\U0001f600\U000e0041\U0001d173'
BODIES = st.one_of(
    st.text(st.sampled_from(ODD), max_size=40).map(str.encode), nearly_utf8, st.binary(max_size=40)
)
MAPS = st.dictionaries(property_names | st.sampled_from(["KEYS", "TAGS", "WAIT"]), property_values)
RAW_CHUNKS = st.lists(
    st.one_of(
        st.builds(lambda name, value: name + b"\x01" + value, nearly_utf8, nearly_utf8),
        st.sampled_from(
            [b"", b"UNIQ_KEY\x01u", b"KEYS\x01a b  c", b"TAGS\x01t", b"\x01", b"x\x01"]
        ),
    ),
    max_size=8,
).map(b"\x02".join)


def _stored(names: dict[str, str], unique_key: str | None) -> bytes:
    """Return the properties as a put stores them, if they have a unique key."""
    names = {**names, **({} if unique_key is None else {"UNIQ_KEY": unique_key})}
    return encode_utf8(
        "\x02".join(f"{name}\x01{names[name]}" for name in hash_map_order(tuple(names)))
    )


PROPERTIES = RAW_CHUNKS | st.builds(_stored, MAPS, st.none() | st.text("ab", min_size=1))


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Records of all forms: odd properties, wrong CRCs, compressed bodies and false flags of compression."""
    message = draw(messages())
    body = draw(BODIES)
    kind = draw(st.sampled_from(["plain", "zlib", "damaged", "unknown"]))
    flags = message.sys_flag & ~0x701
    if kind == "zlib":
        body, flags = zlib.compress(body), flags | 1
    elif kind != "plain":
        flags |= 1 | (0x700 if kind == "unknown" else draw(st.sampled_from([0, 0x100, 0x200])))
    record = bytearray(
        encode(replace(message, body=body, sys_flag=flags, properties_bytes=draw(PROPERTIES)))
    )
    if draw(st.booleans()):
        record[BODY_CRC_POSITION + 3] ^= 1
    layout = locate(bytes(record), 0, len(record))
    if layout.topic_bytes and draw(st.booleans()):  # invalid text
        record[layout.topic_position] = draw(st.sampled_from([0x80, 0xED, 0xFF, 0x22, 0x5C, 0x01]))
    return bytes(record)


def _lines(parts: list[bytes], offsets: list[int] | None) -> bytes:
    positions = np.cumsum([0, *map(len, parts)])[:-1]
    data = np.frombuffer(b"".join(parts), np.uint8)
    given = None if offsets is None else np.array(offsets, np.int64)
    return b"".join(log_lines(data, positions, given))


def _expected(message: MessageExt) -> bytes:
    return message_line(message) + b"\n"


@given(st.lists(records(), min_size=1, max_size=6))
def test_lines_are_those_of_single_messages(parts: list[bytes]) -> None:
    assert _lines(parts, None) == b"".join(_expected(decode(part)) for part in parts)


@given(st.lists(records(), min_size=1, max_size=3), st.integers(0, 1 << 62))
def test_an_offset_that_is_given_counts(parts: list[bytes], first: int) -> None:
    places = [first + number for number in range(len(parts))]
    moved = [replace(decode(p), physical_offset=at) for p, at in zip(parts, places, strict=True)]
    expected = b"".join(map(_expected, moved))
    assert _lines(parts, places) == expected
    located = [
        LocatedRecord(at, b"???" + part + b"!", locate(b"???" + part, 3, len(part) + 3))
        for part, at in zip(parts, places, strict=True)
    ]
    assert b"".join(record_lines(located)) == expected


@given(st.none() | hosts, MAPS, st.text(max_size=30), st.text(st.sampled_from(ODD), max_size=30))
@example(None, {f"n{number}": "v" for number in range(200)}, "", ODD)
def test_properties_as_a_broker_stores_them(
    host: Host | None, names: dict[str, str], unique_key: str, text: str
) -> None:
    """Properties that a put would store identically have no `properties_string`."""
    stored = _stored(
        {**names, "x": text.replace("\x02", "") or "-"}, unique_key.replace("\x02", "") or "u"
    )
    message = replace(MESSAGE, properties_bytes=stored[:32767], body=text.encode())
    if host is not None:
        message = replace(message, born_host=host)
    record = encode(message)
    found = _lines([record], None)
    assert found == _expected(decode(record))
    if b"\x02" not in text.encode() and len(stored) < 32767:
        assert b'"properties_string"' not in found


def test_a_body_that_is_too_large_is_as_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies above the limit stay compressed in their lines, also if the lines are written in several batches."""
    monkeypatch.setattr("reput.format.bodies.MAX_BODY_BYTES", 3000)
    monkeypatch.setattr("reput.engine.messages.message_lines.BATCH_BYTES", 2000)
    monkeypatch.setattr("reput.engine.messages.message_lines._AT_ONCE", 5)
    sizes = [10, 1500, 1500, 4000, 0, 700, 2999, 3001, 5, 6, 7]
    parts = [
        encode(
            replace(
                MESSAGE,
                body=zlib.compress(bytes([65 + n]) * size) if n % 4 else b"plain",
                sys_flag=n % 4 and 1,
            )
        )
        for n, size in enumerate(sizes)
    ]
    assert _lines(parts, None) == b"".join(_expected(decode(part)) for part in parts)


@pytest.mark.parametrize("name", ["basic", "orders", "timed", "tricky", "extremes", "lmq"])
def test_what_a_broker_wrote(name: str, golden: Callable[[str], GoldenStore]) -> None:
    log = CommitLogReader(StoreLog(golden(name).path))
    found = list(LogWalk(log, log.min_offset))
    expected = b"".join(_expected(record.message()) for record in found)
    assert b"".join(record_lines(found)) == expected
