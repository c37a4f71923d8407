"""The search for many byte strings, compared with Python's."""

import base64
import json
import re
import urllib.parse
from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from reput.wings.erase.mentions import _marked, _patterns, spellings
from tests.slow import examples


def _expected(text: bytes, words: set[bytes], bodies: set[bytes]) -> bool:
    is_word = any(
        re.search(
            rb"((?<![A-Za-z0-9])|(?<=\\.)|(?<=%..)|(?<=\\u....))"
            + re.escape(word)
            + rb"(?![A-Za-z0-9])",
            text,
            re.S,
        )
        for word in words
    )
    return is_word or any(body in text for body in bodies)


def test_texts_that_hold_a_pattern_are_found_as_by_python() -> None:
    random = Random(7)
    for _ in range(examples(40)):
        letters = random.choice([b"ab", b"ab-", b"ab-\\%u", b"abcdefgh -", bytes(range(256))])

        def text(least: int, most: int, letters: bytes = letters) -> bytes:
            return bytes(random.choices(letters, k=random.randint(least, most)))

        words = {text(4, 8) for _ in range(random.randint(0, 12))}
        bodies = {text(4, 12) for _ in range(random.randint(1, 12))} - words
        texts = [text(0, 40) for _ in range(50)]
        patterns = _patterns(words, bodies)
        assert patterns is not None
        found = _marked(pa.array(texts, pa.binary()), patterns)
        assert found.tolist() == [_expected(one, words, bodies) for one in texts]
        sliced = pa.array([b"abcd" * 3, *texts], pa.binary())[1:]
        assert np.array_equal(_marked(sliced, patterns), found)
    assert _patterns(set(), set()) is None


_KEYS = ["customer-4711", "Müller & Söhne", 'say "yes"/no', "kunde=17", "a+b~c d", "顧客-42"]


@pytest.mark.parametrize(
    "encoded",
    [
        lambda data: base64.b64encode(data), lambda data: base64.urlsafe_b64encode(data),
        lambda data: data.hex().encode(), lambda data: data.hex().upper().encode(),
        lambda data: data.decode().encode("utf-16-le"), lambda data: data.decode().encode("utf-16-be"),
        lambda data: json.dumps({"text": data.decode()}).encode(),
        lambda data: json.dumps({"text": data.decode()}, ensure_ascii=False).encode(),
        lambda data: json.dumps(json.dumps(["\n" + data.decode()], ensure_ascii=False), ensure_ascii=False).encode(),
        lambda data: urllib.parse.quote(data).encode(), lambda data: urllib.parse.quote_plus(data).encode(),
        lambda data: urllib.parse.quote(data, safe="").encode(),
        lambda data: re.sub(rb"%..", lambda one: one[0].lower(), urllib.parse.quote(data, safe="").encode()),
    ],
)  # fmt: skip
def test_encoded_texts_are_found(encoded: Callable[[bytes], bytes]) -> None:
    """The key is found wherever it begins in the encoded text; Base64, for example, encodes it in three ways."""
    for key in _KEYS:
        data = key.encode()
        patterns = _patterns({data}, spellings(data) - {data})
        assert patterns is not None
        for before in range(4):
            text = encoded(b"=" * before + data + b"; more")
            other = encoded(b"=" * before + b"another text; more")
            found = _marked(pa.array([text, other], pa.binary()), patterns)
            assert found.tolist() == [True, False], (key, before, text)
