"""Java's numbers: valid and invalid ones, and the remainder of numbers that are too large."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.format.java_string import (
    DIGIT_ZEROS,
    decimal_number,
    parse_int32,
    parse_int64,
    wrap_int64,
)
from tests.oracle.java_text import parse_number, to_long

number_text = st.one_of(
    st.text(st.sampled_from("+-0123456789 _.x٣９𝟗"), max_size=6),
    st.integers(-(2**33), 2**33).map(str),
    st.integers(-(2**64), 2**64).map(str),
)


def oracle(text: str, bits: int) -> int | None:
    try:
        return parse_number(text, bits)
    except ValueError:
        return None


@given(number_text)
@example("")
@example("-")
@example("+-1")
@example("-2147483648")
@example("2147483648")
@example("٣")
@example("0" * 30 + "7")
@example("9" * 5000)
def test_numbers_parse_where_java_parses_them(text: str) -> None:
    for parse, bits in ((parse_int32, 32), (parse_int64, 64)):
        expected = oracle(text, bits)
        if expected is None:
            with pytest.raises(ValueError, match=f"is not an int{bits}"):
                parse(text)
        else:
            assert parse(text) == expected


def test_every_decimal_digit_of_the_bmp_is_one() -> None:
    zeros = [code for code in range(0x10000) if unicodedata.decimal(chr(code), None) == 0]
    assert list(DIGIT_ZEROS) == zeros


@given(st.integers(-(2**70), 2**70))
def test_a_long_wraps_around(value: int) -> None:
    assert wrap_int64(value) == to_long(value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("007", 7), ("999", 999), ("1000", None), ("", None), ("-1", None), ("+1", None),
        (" 1", None), ("²", None), ("٣", None), ("9" * 5000, None), (b"12", 12), (b"1x", None),
    ],
)  # fmt: skip
def test_a_decimal_number_has_few_digits_and_nothing_else(
    text: str | bytes, number: int | None
) -> None:
    assert decimal_number(text, 3) == number
