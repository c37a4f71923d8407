"""Values that kernels write as JSON, compared with Python's output."""

from base64 import b64encode

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from reput.base import INVISIBLE_RANGES, json_text
from reput.format.java_string import decode_utf8, hash_map_order
from reput.kernels import json_rows as kernel
from reput.kernels.json_rows import MISSING, PRESENT, SKIPPED
from reput.testing.strategies import int64, nearly_utf8

KINDS = st.sampled_from([MISSING, PRESENT, SKIPPED])
LABEL, NULL = np.frombuffer(b',"a":', np.uint8), np.frombuffer(b',"a":null', np.uint8)
INVISIBLE = np.zeros(0x110000, np.uint8)
for first, last in INVISIBLE_RANGES:
    INVISIBLE[first : last + 1] = 1
TEXTS = st.one_of(
    nearly_utf8,
    st.text('abcdefgh"\\\x7f\n\x01é\u200b\U0001f600\U000e0041\U0001d173', max_size=30).map(
        str.encode
    ),
)


def _runs(
    values: list[bytes],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Put the texts at the end of a buffer, to show that no kernel reads beyond it."""
    ends = np.cumsum([0, *map(len, values)])
    return np.frombuffer(b"".join(values) or b"-", np.uint8), ends[:-1], ends[1:]


def _expected(values: list[str], kinds: list[int]) -> bytes:
    shown = {MISSING: ',"a":null', SKIPPED: ""}
    return "".join(
        shown.get(kind, f',"a":{value}') for value, kind in zip(values, kinds, strict=True)
    ).encode()


def _room(sizes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return a buffer of exactly the measured size, and the beginning of each row."""
    ends = np.cumsum([0, *sizes])
    return np.full(ends[-1], 0xEE, np.uint8), ends[:-1].copy()


@given(st.lists(st.tuples(TEXTS, KINDS), max_size=6))
def test_texts(rows: list[tuple[bytes, int]]) -> None:
    values, kinds = [value for value, _ in rows], [kind for _, kind in rows]
    runs, codes = _runs(values), np.array(kinds, np.uint8)
    sizes = np.zeros(len(rows), np.int64)
    kernel.measure_texts(*runs, codes, len(LABEL), len(NULL), INVISIBLE, sizes)
    out, cursors = _room(sizes)
    kernel.put_texts(*runs, codes, LABEL, NULL, INVISIBLE, out, cursors)
    assert out.tobytes() == _expected([json_text(decode_utf8(value)) for value in values], kinds)
    assert cursors.tolist() == np.cumsum(sizes).tolist()
    valid = np.empty(len(rows), np.uint8)
    kernel.are_utf8(*runs, valid)
    for value, is_valid in zip(values, valid, strict=True):
        assert is_valid == (decode_utf8(value).encode() == value)


@given(st.lists(st.tuples(int64 | st.integers(-1000, 1000), KINDS), max_size=8))
def test_integers(rows: list[tuple[int, int]]) -> None:
    values, kinds = np.array([value for value, _ in rows], np.int64), [kind for _, kind in rows]
    codes, sizes = np.array(kinds, np.uint8), np.zeros(len(rows), np.int64)
    kernel.measure_integers(values, codes, len(LABEL), len(NULL), sizes)
    out, cursors = _room(sizes)
    kernel.put_integers(values, codes, LABEL, NULL, out, cursors)
    assert out.tobytes() == _expected(list(map(str, values.tolist())), kinds)


@given(st.lists(st.tuples(st.binary(max_size=9), KINDS), max_size=6))
def test_runs_and_base64(rows: list[tuple[bytes, int]]) -> None:
    values, kinds = [value for value, _ in rows], [kind for _, kind in rows]
    runs, codes = _runs(values), np.array(kinds, np.uint8)
    as_base64 = [f'"{b64encode(value).decode()}"' for value in values]
    expected = _expected(as_base64, kinds)
    out, cursors = np.empty(len(expected), np.uint8), np.zeros(len(rows), np.int64)
    sizes = [len(_expected([text], [kind])) for text, kind in zip(as_base64, kinds, strict=True)]
    cursors[1:] = np.cumsum(sizes)[:-1]
    kernel.put_base64(*runs, codes, LABEL, NULL, out, cursors)
    assert out.tobytes() == expected
    plain = _expected([f"{value.hex()}]" for value in values], kinds)
    hexes = [value.hex().encode() for value in values]
    out = np.empty(len(plain), np.uint8)
    sizes = [len(_expected([f"{value.hex()}]"], [kind])) for value, kind in rows]
    cursors = np.cumsum([0, *sizes])[:-1].copy()
    kernel.put_runs(*_runs(hexes), codes, LABEL, np.frombuffer(b"]", np.uint8), NULL, out, cursors)
    assert out.tobytes() == plain


@given(st.lists(st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=30), max_size=4))
def test_the_order_of_a_hash_map(rows: list[list[str]]) -> None:
    rows += [list(hash_map_order(tuple(row))) for row in rows]
    names = [name.encode() for row in rows for name in row]
    maps = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    ordered = np.full(len(rows), 7, np.uint8)
    kernel.are_in_hash_map_order(*_runs(names), maps, ordered)
    assert ordered.tolist() == [list(hash_map_order(tuple(row))) == row for row in rows]
