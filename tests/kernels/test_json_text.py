"""Bodies that are one JSON object, compared with Python's parser."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.kernels.json_text import MAX_DEPTH, are_objects, join_lines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('{}[]"\\ab,:', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{}"\\', max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def judged(bodies: list[bytes]) -> list[bool]:
    offsets = np.cumsum([0, *map(len, bodies)]).astype(np.int32)
    valid = np.full(len(bodies), 7, np.uint8)
    are_objects(np.frombuffer(b"".join(bodies), np.uint8), offsets, valid)
    return [bool(value) for value in valid]


@given(st.lists(JSON, max_size=5))
def test_objects_are_objects_and_nothing_else_is(values: list[object]) -> None:
    bodies = [json.dumps(value, indent=1).encode() for value in values]
    assert judged(bodies) == [isinstance(value, dict) for value in values]


@given(st.lists(st.text('{}[]"\\ ,:1', max_size=12), max_size=5))
def test_what_is_taken_for_an_object_cannot_reach_beyond_itself(texts: list[str]) -> None:
    """Each text that Python parses to an object is accepted. An accepted text cannot merge with the text beside it."""
    for text, taken in zip(texts, judged([text.encode() for text in texts]), strict=True):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict):
            assert taken
        if taken:
            assert text.strip()[0] == "{"
            assert text.strip()[-1] == "}"
            assert not judged([text.encode() + b"{}"])[0]
            assert not judged([b"{" + text.encode()])[0]


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"}", b'{"a', b'{"a":"\\', b"{}{}", b"{} x", b"[{}]", b"{]", b"{[}"]
)
def test_these_are_none(body: bytes) -> None:
    assert judged([b"{}", body, b"{}"]) == [True, False, True]


def test_an_object_that_is_nested_too_deeply_is_none() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    assert judged([nested(MAX_DEPTH), nested(MAX_DEPTH + 1), b"{" * 100_000]) == [
        True,
        False,
        False,
    ]


def test_rows_become_lines() -> None:
    data = np.frombuffer(b"aabbbc", np.uint8)
    offsets, out = np.array([0, 2, 5, 5, 6], np.int32), np.zeros(16, np.uint8)
    used = join_lines(data, offsets, np.array([0, 2, 3]), out)
    assert out[:used].tobytes() == b"aa\n\nc\n"
