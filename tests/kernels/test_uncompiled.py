"""Kernels without a compiler: they return the results of compiled kernels, also with Python's integers."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.kernels.integers import bits_of, wrapped_difference, wrapped_sum
from reput.kernels.java_hash import hash_unit
from reput.kernels.jit import new_rows
from reput.kernels.llvm import INTERPRETED
from reput.kernels.queue_table import new_queue_table, queue_number

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

Call = tuple[str, str, tuple[Any, ...]]
"""Module and name of a kernel, and its arguments."""
LEAST, MOST = -(2**63), 2**63 - 1
longs = st.integers(LEAST, MOST) | st.sampled_from((LEAST, -(2**31), -1, 0, 2**31, MOST))
ints = st.integers(-(2**31), 2**31 - 1)


def as_long(value: int) -> int:
    """Return the lower 64 bits as a Java long."""
    return (value - LEAST) % 2**64 + LEAST


@given(longs, longs)
@example(-1, 1)
@example(LEAST, MOST)
def test_sums_of_pythons_integers_wrap_around(left: int, right: int) -> None:
    assert wrapped_sum(left, right) == as_long(left + right)
    assert wrapped_difference(left, right) == as_long(left - right)
    assert bits_of(left) == left % 2**64


@given(longs, st.integers(0, 0xFFFF))
@example(-1, 35)
def test_a_hash_below_zero_takes_another_unit(value: int, unit: int) -> None:
    assert hash_unit(value, unit) == as_long(31 * value + unit)


@given(st.lists(st.tuples(st.sampled_from((b"", b"a", b"a" * 9)), ints, longs), max_size=4))
@example([(b"a", -1, -1), (b"a", -1, -1), (b"a", 1, -1)])
def test_queues_have_numbers_by_pythons_integers(queues: list[tuple[bytes, int, int]]) -> None:
    table, numbers = new_queue_table(4, 64), dict[tuple[bytes, int, int], int]()
    for name, queue_id, name_hash in queues:
        data = np.frombuffer(bytearray(name), np.uint8)
        number = queue_number(*table, data, 0, len(name), queue_id, name_hash)
        assert number == numbers.setdefault((name, queue_id, name_hash), len(numbers))


def serve() -> None:
    """Answer each pickled list of calls on standard input with what `answer` returns for each call."""
    while True:
        try:
            calls = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        sys.stdout.buffer.write(pickle.dumps([answer(call) for call in calls]))
        sys.stdout.buffer.flush()


def answer(call: Call) -> tuple[Any, list[Any]]:
    """Call a kernel; return its result, and the arrays that it may have changed."""
    module, name, arguments = call
    own = [_copy(value) if isinstance(value, np.ndarray) else value for value in arguments]
    with np.errstate(over="ignore"):
        result = getattr(import_module(f"reput.kernels.{module}"), name)(*own)
    return result, [value.tolist() for value in own if isinstance(value, np.ndarray)]


def _copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    rows = new_rows(len(array), array.dtype) if array.dtype.names else np.empty_like(array)
    rows[:] = array
    return rows


Ask = Callable[[Sequence[Call]], Any]


@pytest.fixture(scope="module")
def uncompiled() -> Iterator[Ask]:
    """Return a function that calls kernels in a process that does not compile them."""
    if INTERPRETED:
        pytest.skip("this process does not compile kernels either")
    with subprocess.Popen(
        [sys.executable, "-c", "from tests.kernels.test_uncompiled import serve; serve()"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip

        def ask(calls: Sequence[Call]) -> Any:
            written, read = _pipes(process)
            written.write(pickle.dumps(list(calls)))
            written.flush()
            return pickle.load(read)

        yield ask
        process.stdin.close()  # type: ignore[union-attr]


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


texts = st.binary(max_size=80) | st.text(max_size=30).map(str.encode)


def words(*values: int) -> Any:
    return np.array(values, np.int64).astype(np.uint32)


@given(st.data())
def test_answers_are_the_compiled_ones(uncompiled: Ask, data: st.DataObject) -> None:
    """Kernels that take integers, on any bytes. Kernels of columns are compared with oracles, in both forms."""
    text = data.draw(texts)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    value, other = data.draw(longs), data.draw(longs)
    queue_id = data.draw(ints)
    # Bytes before and after the text, which kernels may load but not use.
    array = np.frombuffer(bytearray(bytes(8) + text + bytes(64)), np.uint8)
    first, last = start + 8, stop + 8
    entries = np.frombuffer(bytearray((text + bytes(80))[:80]), np.uint32).reshape(4, 5)
    items = entries.copy()
    table = new_queue_table(2, 128)
    calls: list[Call] = [
        ("integers", "bits_of", (value,)),
        ("integers", "wrapped_sum", (value, other)),
        ("integers", "wrapped_difference", (value, other)),
        ("integers", "swap32", (value,)),
        ("java_hash", "hash_unit", (value, other)),
        ("java_hash", "positive_hash", (value,)),
        ("java_hash", "signed_hash", (value,)),
        ("java_hash", "java_hash", (array, first, last, value)),
        ("properties_scan", "find_index_properties", (array, first, last)),
        ("properties_scan", "find_value", (array, first, last, np.frombuffer(b"K", np.uint8))),
        ("properties_scan", "parse_i64", (array, first, last)),
        ("properties_scan", "is_blank", (array, first, last)),
        ("checksum", "crc32_after", (array, first, last, queue_id)),
        ("queue_table", "queue_number", (*table, array, first, last - first, queue_id, value)),
        ("entry_checks", "step", (value, other, np.uint64(7))),
        ("index_chains", "item_seconds", (value, other)),
        ("index_proof", "check_slots", (words(value, other, queue_id), np.uint64(7))),
        ("entry_checks", "check_items", (items, 4, words(0, 0, 0))),
        ("entry_checks", "written_entries", (entries, value)),
        ("entry_checks", "entries_follow", (entries, value)),
        (
            "index_chains", "follow_chain",
            (items, 0, 2, 3, MOST, LEAST, MOST, queue_id, np.uint32(31), np.zeros(4, np.int64)),
        ),
    ]  # fmt: skip
    compiled = [answer(call) for call in calls]
    for call, ours, theirs in zip(calls, compiled, uncompiled(calls), strict=True):
        assert theirs == ours, call
