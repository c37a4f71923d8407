"""Hashes, properties, numbers and white space over bytes, compared with the oracle's over strings."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.kernels.integers import equal_bytes, same_bytes
from reput.kernels.java_hash import character_at, hash_unit, java_hash, positive_hash, signed_hash
from reput.kernels.jit import njit
from reput.kernels.properties_scan import (
    find_index_properties,
    find_value,
    is_blank,
    next_space,
    parse_i64,
)
from reput.testing.strategies import nearly_utf8
from tests.format.test_java_integer import number_text
from tests.oracle import java_text
from tests.oracle.index_file import key_hash
from tests.oracle.records import parse_properties

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

NAMES = ("UNIQ_KEY", "KEYS", "TAGS", "DELAY", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")
SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + "\u180e\u200b\x1f"


def array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8)


@given(nearly_utf8 | st.binary(max_size=60), nearly_utf8)
@example(b"12345678", b"123456789")
@example("1234567é12345678".encode(), b"")
# The topic ends inside a character, whose other bytes begin the key.
@example(b"1234567\xe4", b"\xb8\xad")
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
    [*NAMES, "KEY", "KEYSS", "keys", "TAGs", "UNIQ_KEX", "", "X" * 20, "Y" * 24]
)
chunks = st.lists(
    st.one_of(
        st.tuples(
            names,
            st.sampled_from(("", "v", "a\x01b", "\x01", "é", "12345678", "w" * 70, "x" * 150)),
        ).map("\x01".join),
        names,
        st.text(st.sampled_from("\x01\x02KEYS"), max_size=9),
    ),
    max_size=8,
).map("\x02".join)


@given(chunks, st.binary(min_size=8, max_size=90), st.binary(max_size=90))
@example("KEYS\x01a\x02KEYS\x01\x02KEYS\x02\x01KEYS\x01b", b"UNIQ_KEY", b"\x01c")
@example("UNIQ_KEY\x01" + "x" * 55, b"\x02" * 8, b"")  # the text ends with a block of 64 bytes
@example("UNIQ_KEY\x01" + "x" * 54 + "\x02TAGS\x01a", b"\x02" * 8, b"\x02" * 64)
@example("x" * 63 + "\x01v\x02KEYS\x01k", b"\x01" * 8, b"")
def test_properties_are_the_ones_that_the_oracle_finds(
    text: str, before: bytes, after: bytes
) -> None:
    data = array(before + text.encode() + after)
    start, stop = len(before), len(data) - len(after)
    *common, longest = find_index_properties(data, start, stop)
    spans = dict(zip(NAMES, zip(common[::2], common[1::2], strict=True), strict=False))
    spans |= {name: find_value(data, start, stop, array(name.encode())) for name in NAMES[3:]}
    found = {
        name: data[first:last].tobytes().decode()
        for name, (first, last) in spans.items()
        if first != last
    }
    expected = parse_properties(text)
    assert found == {name: expected[name] for name in NAMES if name in expected}
    assert longest == max((len(name.encode()) for name in expected), default=0)


@njit()
def bits(data, position, byte):  # type: ignore[no-untyped-def]
    """Compiled, because only compiled code can call an intrinsic."""
    return equal_bytes(data, position, byte)  # type: ignore[call-arg]


@given(st.binary(min_size=64, max_size=130), st.integers(0, 255))
def test_each_bit_is_an_equal_byte(data: bytes, byte: int) -> None:
    for start in (0, len(data) - 64):
        found = int(bits(array(data), start, byte))
        assert [found >> bit & 1 for bit in range(64)] == [
            data[start + bit] == byte for bit in range(64)
        ]


@given(st.text(st.sampled_from(" !\x00a\u0120"), max_size=40), st.integers(0, 20))
def test_the_next_space_is_the_first_one(text: str, start: int) -> None:
    data = text.encode() + b" "
    stop = max(start, len(data) - 1)
    found = data.find(b" ", start, stop)
    assert next_space(array(data), start, stop) == (found if found >= 0 else stop)


def test_hashes_take_the_bytes_from_start_to_end_and_no_others() -> None:
    for length in range(20):
        for before in range(10):
            data = array(b"\xe9" * before + bytes(range(65, 65 + length)) + b"\xff" * 9)
            text = data[before : before + length].tobytes().decode()
            found = java_hash(data, before, before + length, 0)
            assert signed_hash(found) == java_text.hash_code(text)


def test_bytes_are_the_same_where_each_one_is() -> None:
    one = array(b"." + bytes(range(40)))
    for count in range(30):
        other = one.copy()
        other[1 + count] ^= 1
        assert same_bytes(one, 1, other, 1, count)
        for place in range(count):
            other = one.copy()
            other[1 + place] ^= 1
            assert not same_bytes(one, 1, other, 1, count)


@given(number_text | nearly_utf8, st.binary(max_size=3))
@example("-9223372036854775808", b"")
@example("9223372036854775807", b"0")
@example("9223372036854775808", b"")
@example("-92233720368547758080", b"")
@example("", b"7")
@example("-", b"7")
@example(b"\xd9", b"\xa3")  # the first byte of a digit
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
