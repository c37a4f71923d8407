"""Prove that ConsumeQueue entries cover a range of the CommitLog without gaps, each record once."""

from __future__ import annotations

import numpy as np

from reput.format.consume_queue import ENTRY, ENTRY_BYTES
from reput.kernels.integers import read_i32, read_i64
from reput.kernels.jit import njit

_SIZE_POSITION = ENTRY.positions["size"]
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(inline="always")
def _mark(position, seed):
    """Return the mark of a position: a number that depends on position and seed, and looks random."""
    value = np.uint64(position) ^ seed
    value = (value ^ (value >> _30)) * _MIX_1
    value = (value ^ (value >> _27)) * _MIX_2
    return value ^ (value >> _31)


@njit(cache=True, nogil=True)
def sum_of_steps(entries, count, seed):
    """Return a sum over `count` entries, and the highest physical offset at which one of their messages ends.

    A mark is a hash of an offset and the seed. The sum adds the mark of the offset at which each message ends, and
    subtracts the mark of the offset at which it begins.

    entries  uint8, entries as stored
    seed     uint64, secret

    If the entries cover the range from a to b, in any order, the sum is mark(b) - mark(a). A gap, an overlap or a
    repetition leaves marks that do not cancel.
    """
    total = np.uint64(0)
    furthest = np.int64(-1)
    for entry in range(count):
        begin = read_i64(entries, entry * ENTRY_BYTES)
        end = begin + read_i32(entries, entry * ENTRY_BYTES + _SIZE_POSITION)
        total += _mark(end, seed) - _mark(begin, seed)
        furthest = max(furthest, end)
    return total, furthest


@njit(cache=True, nogil=True)
def step(begin, end, seed):
    """Return mark(end) - mark(begin), where mark(x) is a hash of the offset x and the seed.

    If the sum that `sum_of_steps` computes from some entries equals this number, the entries cover the range from
    `begin` to `end` exactly.
    """
    return _mark(end, seed) - _mark(begin, seed)
