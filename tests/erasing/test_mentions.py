"""The search for many byte strings, compared with Python's."""

import re
from random import Random

import numpy as np
import pyarrow as pa

from reput.erasing.mentions import _marked, _patterns
from tests.slow import examples


def _expected(text: bytes, words: set[bytes], bodies: set[bytes]) -> bool:
    is_word = any(
        re.search(rb"(?<![A-Za-z0-9])" + re.escape(word) + rb"(?![A-Za-z0-9])", text)
        for word in words
    )
    return is_word or any(body in text for body in bodies)


def test_texts_that_hold_a_pattern_are_found_as_by_python() -> None:
    random = Random(7)
    for _ in range(examples(40)):
        letters = random.choice([b"ab", b"ab-", b"abcdefgh -", bytes(range(256))])

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
