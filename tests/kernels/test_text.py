"""Hashes, properties, numbers and white space over bytes: as the oracle has them over strings."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.kernels.java_hash import character_at, hash_unit, java_hash, positive_hash, signed_hash
from reput.kernels.properties_scan import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEYS,
    PROPERTY_SLOTS,
    TAGS,
    UNIQ_KEY,
    find_properties,
    is_blank,
    parse_i64,
)
from reput.testing.strategies import nearly_utf8
from tests.format.test_java_integer import number_text
from tests.oracle import java_text
from tests.oracle.index_file import key_hash
from tests.oracle.records import parse_properties

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

SLOTS = {
    "UNIQ_KEY": UNIQ_KEY,
    "KEYS": KEYS,
    "TAGS": TAGS,
    "DELAY": DELAY,
    "INNER_MULTI_DISPATCH": INNER_MULTI_DISPATCH,
    "INNER_MULTI_QUEUE_OFFSET": INNER_MULTI_QUEUE_OFFSET,
}
SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + "\u180e\u200b\x1f"


def array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8)


@given(nearly_utf8 | st.binary(max_size=60), nearly_utf8)
@example(b"12345678", b"123456789")
@example("1234567é12345678".encode(), b"")
@example(b"1234567\xe4", b"\xb8\xad")  # the topic ends where a character is cut off
def test_hashes_are_javas(topic: bytes, key: bytes) -> None:
    data = array(topic + key)
    topic_hash = java_hash(data, 0, len(topic), 0)
    decoded = java_text.decode_utf8(topic)
    assert signed_hash(topic_hash) == java_text.hash_code(decoded)
    hashed = java_hash(data, len(topic), len(data), hash_unit(topic_hash, 35))
    assert positive_hash(hashed) == key_hash(decoded, java_text.decode_utf8(key))


@pytest.mark.parametrize(
    "text", ["polygenelubricants", "", "a" * 100, "😀" * 9, "\x7f\x80\u07ff\u0800"]
)
def test_hashes_of_special_strings(text: str) -> None:
    data = array(text.encode())
    code = java_text.hash_code(text)
    assert signed_hash(java_hash(data, 0, len(data), 0)) == code
    assert positive_hash(java_hash(data, 0, len(data), 0)) == (0 if code == -(2**31) else abs(code))


@given(nearly_utf8)
def test_characters_are_javas(data: bytes) -> None:
    position, text = 0, []
    while position < len(data):
        point, length = character_at(array(data), position, len(data))
        whole = data[position : position + int(length)]
        text.append(chr(point) if point >= 0 else whole.decode())
        position += int(length)
    assert "".join(text) == java_text.decode_utf8(data)


names = st.sampled_from(
    [*SLOTS, "KEY", "KEYSS", "keys", "TAGs", "UNIQ_KEX", "", "X" * 20, "Y" * 24]
)
chunks = st.lists(
    st.one_of(
        st.tuples(names, st.sampled_from(("", "v", "a\x01b", "\x01", "é", "12345678"))).map(
            "\x01".join
        ),
        names,
        st.text(st.sampled_from("\x01\x02KEYS"), max_size=9),
    ),
    max_size=8,
).map("\x02".join)


@given(chunks, st.binary(max_size=9), st.binary(max_size=9))
@example("KEYS\x01a\x02KEYS\x01\x02KEYS\x02\x01KEYS\x01b", b"", b"\x01c")
def test_properties_are_the_ones_that_the_oracle_finds(
    text: str, before: bytes, after: bytes
) -> None:
    data = array(before + text.encode() + after)
    stop = len(data) - len(after)
    spans = np.full(2 * PROPERTY_SLOTS, 77, np.int64)
    find_properties(data, len(before), stop, spans)
    found = {}
    for name, slot in SLOTS.items():
        start, end = spans[2 * slot : 2 * slot + 2].tolist()
        if start != end:
            assert len(before) < start < end <= stop
            found[name] = data[start:end].tobytes().decode()
    expected = parse_properties(text)
    assert found == {name: expected[name] for name in SLOTS if name in expected}


@given(number_text | nearly_utf8, st.binary(max_size=3))
@example("-9223372036854775808", b"")
@example("9223372036854775807", b"0")
@example("9223372036854775808", b"")
@example("-92233720368547758080", b"")
@example("", b"7")
@example("-", b"7")
@example(b"\xd9", b"\xa3")  # half of a digit
def test_numbers_parse_where_java_parses_them(text: str | bytes, after: bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    valid, value = parse_i64(array(data + after), 0, len(data))
    try:
        expected = java_text.parse_number(java_text.decode_utf8(data), 64)
    except ValueError:
        assert not valid
    else:
        assert valid
        assert value == expected


@given(st.text(st.sampled_from(SPACES + "a\u00a0"), max_size=3) | nearly_utf8, nearly_utf8)
@example("", b"a")
def test_blank_is_what_java_calls_blank(text: str | bytes, after: bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    expected = java_text.is_blank(java_text.decode_utf8(data))
    assert bool(is_blank(array(data + after), 0, len(data))) == expected


def test_every_space_of_java_and_no_other() -> None:
    for code in range(0x10000):
        if not 0xD800 <= code < 0xE000:
            data = chr(code).encode()
            assert bool(is_blank(array(data), 0, len(data))) == java_text.is_blank(chr(code)), code
