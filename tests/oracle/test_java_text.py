"""Java's strings. Every expected value here was printed by Java (OpenJDK 17.0.15)."""

import zlib
from collections.abc import Iterable
from itertools import product

import pytest

from tests.oracle.java_text import (
    decode_utf8,
    encode_utf8,
    hash_code,
    is_blank,
    parse_number,
    split,
    utf16_units,
)

# The bytes next to the limits of lead and continuation bytes.
BORDERS = bytes.fromhex("41808f909fa0bfc1c2c3dfe0e1edeef0f1f4f5f8ff")


def checksum(strings: Iterable[bytes]) -> str:
    """Return the CRC-32 of all decoded strings: UTF-16-LE units, a unit D800 after each string."""
    units = b"".join(decode_utf8(data).encode("utf-16-le") + b"\x00\xd8" for data in strings)
    return f"{zlib.crc32(units):x}"


@pytest.mark.parametrize(
    ("alphabet", "length", "expected"),
    [
        (bytes(range(256)), 1, "7c26c516"),
        (bytes(range(256)), 2, "74e2abc0"),
        (BORDERS, 3, "daf76242"),
        (BORDERS, 4, "94312db9"),
    ],
)
def test_every_short_byte_string_decodes_as_in_java(
    alphabet: bytes, length: int, expected: str
) -> None:
    assert checksum(map(bytes, product(alphabet, repeat=length))) == expected


@pytest.mark.parametrize(
    ("data", "units"),
    [
        ("eda080", "fffd"),
        ("edafbfedb080", "fffd fffd"),
        ("eda0", "fffd"),
        ("ed9fbf", "d7ff"),
        ("e080", "fffd fffd"),
        ("e4b8", "fffd"),
        ("e4b841", "fffd 41"),
        ("f09f98", "fffd"),
        ("f09f9880", "d83d de00"),
        ("f08fbfbf", "fffd fffd fffd fffd"),
        ("f4908080", "fffd fffd fffd fffd"),
        ("f48fbfbf", "dbff dfff"),
        ("c0af", "fffd fffd"),
        ("c328", "fffd 28"),
    ],
)
def test_malformed_utf8(data: str, units: str) -> None:
    assert utf16_units(decode_utf8(bytes.fromhex(data))) == [int(u, 16) for u in units.split()]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("Aa", 2112),
        ("BB", 2112),
        ("order#K1", 1234246299),
        ("emoji-😀#😀", 1507273788),
        ("主题", 659901),
        ("\ud83d", 55357),
        ("\udc00x", 1746040),
        ("polygenelubricants", -2147483648),
        ("zzzzzzzzzzzzz", -337951494),
    ],
)
def test_hash_code(text: str, code: int) -> None:
    assert hash_code(text) == code


def test_a_lone_surrogate_is_encoded_as_a_question_mark() -> None:
    assert encode_utf8("a\ud83db") == b"a?b"
    assert encode_utf8("\ud83d\ude00") == "😀".encode()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        (" ", []),
        ("  ", []),
        (" a", ["", "a"]),
        ("a ", ["a"]),
        ("a  b", ["a", "", "b"]),
        (" a  ", ["", "a"]),
    ],
)
def test_split(text: str, parts: list[str]) -> None:
    assert split(text, " ") == parts


@pytest.mark.parametrize(
    ("text", "number"), [("+1", 1), ("-1", -1), ("٣", 3), ("-2147483648", -(2**31))]
)
def test_parse_number(text: str, number: int) -> None:
    assert parse_number(text, 32) == number


@pytest.mark.parametrize("text", ["", "+", "-", "+-1", " 1", "1_0", "𝟏", "2147483648"])
def test_parse_number_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|range"):
        parse_number(text, 32)


def test_whitespace_without_the_no_break_spaces_is_blank() -> None:
    assert is_blank(" \t\n\x1f\u2003\u3000")
    assert not is_blank("\u00a0")
    assert not is_blank("\x85")
