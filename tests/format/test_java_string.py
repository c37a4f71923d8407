"""Java's strings: decoded, encoded, measured and hashed as the oracle does it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.format.java_string import decode_utf8, encode_utf8, hash_code
from reput.testing.strategies import java_text, nearly_utf8
from tests.oracle import java_text as oracle


@given(nearly_utf8)
@example(b"\xed\xa0\x80")  # an encoded surrogate
@example(b"\xe4\xb8")  # cut off after two bytes of three
@example(b"\xf0\x80\x80\x80")  # an overlong encoding
@example(b"\xf4\x90\x80\x80")  # beyond Unicode
@example(b"A\xc3A\x80")
def test_malformed_utf8_is_decoded_as_java_does(data: bytes) -> None:
    assert decode_utf8(data) == oracle.decode_utf8(data)


@given(java_text)
@example("\ud83d\ude00")  # a surrogate pair as two code points
@example("\ude00\ud83d")
def test_encoding_puts_question_marks_for_lone_surrogates(text: str) -> None:
    assert encode_utf8(text) == oracle.encode_utf8(text)


@given(java_text)
def test_a_hash_counts_utf16_units(text: str) -> None:
    assert hash_code(text) == oracle.hash_code(text)


@given(st.text(max_size=24))
def test_what_was_encoded_is_decoded(text: str) -> None:
    assert decode_utf8(encode_utf8(text)) == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("AaAa", 2031744),
        ("BBBB", 2031744),
        ("polygenelubricants", -(2**31)),
        ("😀", 1772899),
    ],
)
def test_hash_codes_that_java_prints(text: str, code: int) -> None:
    assert hash_code(text) == code


@pytest.mark.parametrize("length", [255, 256, 257, 512, 1000])
def test_the_hash_code_of_a_long_text(length: int) -> None:
    for text in ("z" * length, "\u20ac\U0001f600z" * length):
        assert hash_code(text) == oracle.hash_code(text)
