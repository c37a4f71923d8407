"""Compute the CRC-32 of many bodies, as `reput.format.commit_log.body_crc` does.

Lookup tables process eight bytes of a body per step. If the CPU has carry-less multiplication, bodies of 64 bytes or
more are first shortened without a change of the CRC: each step folds 64 bytes into the next 64 bytes. In the end, at
most 31 bytes remain. Only these bytes are processed with the tables.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.format.commit_log import BODY_CRC_POSITION
from reput.kernels.integers import WORD_BYTES, byte_at, read_i32, word_at
from reput.kernels.jit import njit
from reput.kernels.llvm import HAS_NUMBA, INTERPRETED, binding, cgutils, intrinsic, ir, types
from reput.kernels.record_walk import body_bytes_before, body_of

_STRIDE = 8

# Constants that fold 16 bytes into the 16 bytes that lie 64 or 16 bytes later.
FOLD_64_LOW, FOLD_64_HIGH = 0x0154442BD4, 0x01C6E41596
FOLD_16_LOW, FOLD_16_HIGH = 0x01751997D0, 0x00CCAA009E
# PCLMULQDQ multiplies one half of a vector by one half of another vector. These operands select the halves.
_LOW_BY_LOW, _HIGH_BY_HIGH = 0x00, 0x11


def _has_pclmul() -> bool:
    x86 = binding.get_default_triple().startswith(("x86_64", "amd64"))
    return x86 and bool(binding.get_host_cpu_features().get("pclmul", False))


FOLDS = not INTERPRETED and _has_pclmul()
"""Whether compiled kernels may use the instruction PCLMULQDQ of this CPU, which multiplies without carries."""


@intrinsic
def fold(typing_context: Any, low: Any, high: Any, k_low: Any, k_high: Any) -> Any:
    """Return low * k_low ^ high * k_high, multiplied without carries: 128 bits, as a pair of uint64.

    The constants are x**n modulo the CRC's polynomial, bit-reversed (Gopal and others, "Fast CRC Computation for
    Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). Call it only if FOLDS is true.
    """
    pair = types.UniTuple(types.uint64, 2)
    word, byte = ir.IntType(64), ir.IntType(8)
    vector = ir.VectorType(word, 2)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def packed(first: Any, second: Any) -> Any:
            half = builder.insert_element(ir.Constant(vector, None), first, ir.IntType(32)(0))
            return builder.insert_element(half, second, ir.IntType(32)(1))

        kind = ir.FunctionType(vector, [vector, vector, byte])
        name = "llvm.x86.pclmulqdq"
        multiply = cgutils.get_or_insert_function(builder.module, kind, name)
        value, constants = packed(args[0], args[1]), packed(args[2], args[3])
        product = builder.xor(
            builder.call(multiply, [value, constants, byte(_LOW_BY_LOW)]),
            builder.call(multiply, [value, constants, byte(_HIGH_BY_HIGH)]),
        )
        parts = [builder.extract_element(product, ir.IntType(32)(lane)) for lane in (0, 1)]
        return context.make_tuple(builder, signature.return_type, parts)

    return pair(types.uint64, types.uint64, types.uint64, types.uint64), generate


def _make_tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((_STRIDE, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, byte] = value
    for step in range(1, _STRIDE):
        tables[step] = tables[0, tables[step - 1] & 0xFF] ^ tables[step - 1] >> np.uint32(8)
    return tables


_TABLES = _make_tables()
"""Lookup tables.

A kernel must read this name only once, because numba compiles a copy of the tables for each use of the name.
"""


@njit(inline="always")
def _eight_bytes(tables, value, word):
    """Return the CRC's state after eight more bytes. The lowest bits of `word` are the first byte."""
    low = value ^ np.int64(word & np.uint64(0xFFFFFFFF))
    high = np.int64(word >> np.uint64(32))
    return np.int64(
        tables[7, low & 0xFF]
        ^ tables[6, (low >> 8) & 0xFF]
        ^ tables[5, (low >> 16) & 0xFF]
        ^ tables[4, (low >> 24) & 0xFF]
        ^ tables[3, high & 0xFF]
        ^ tables[2, (high >> 8) & 0xFF]
        ^ tables[1, (high >> 16) & 0xFF]
        ^ tables[0, (high >> 24) & 0xFF]
    )


@njit(inline="always")
def _by_tables(tables, data, start, stop, value):
    while start + WORD_BYTES <= stop:
        value = _eight_bytes(tables, value, word_at(data, start))
        start += WORD_BYTES
    while start < stop:
        value = np.int64(tables[0, (value ^ byte_at(data, start)) & 0xFF]) ^ (value >> 8)
        start += 1
    return value


@njit(cache=True, nogil=True)
def crc32_after(data, start, stop, crc):
    """Return the crc32 of a text that begins with bytes whose crc32 is `crc`, and ends with data[start:stop].

    The result is an int64.
    """
    tables = _TABLES
    return _by_tables(tables, data, start, stop, np.int64(crc) ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


if FOLDS:

    @njit(cache=True, nogil=True)
    def crc32(data, start, stop):
        """Return zlib's crc32 of data[start:stop], as an int64. The range must be inside `data`."""
        tables = _TABLES
        if stop - start < 64:
            return _by_tables(tables, data, start, stop, np.int64(0xFFFFFFFF)) ^ 0xFFFFFFFF
        k64_low, k64_high = np.uint64(FOLD_64_LOW), np.uint64(FOLD_64_HIGH)
        k16_low, k16_high = np.uint64(FOLD_16_LOW), np.uint64(FOLD_16_HIGH)
        # A multiplication takes several cycles. Four independent sums (a to d) keep the multiplier busy.
        a_low, a_high = word_at(data, start), word_at(data, start + 8)
        b_low, b_high = word_at(data, start + 16), word_at(data, start + 24)
        c_low, c_high = word_at(data, start + 32), word_at(data, start + 40)
        d_low, d_high = word_at(data, start + 48), word_at(data, start + 56)
        a_low ^= np.uint64(0xFFFFFFFF)
        start += 64
        while start + 64 <= stop:
            a_low, a_high = fold(a_low, a_high, k64_low, k64_high)
            b_low, b_high = fold(b_low, b_high, k64_low, k64_high)
            c_low, c_high = fold(c_low, c_high, k64_low, k64_high)
            d_low, d_high = fold(d_low, d_high, k64_low, k64_high)
            a_low, a_high = a_low ^ word_at(data, start), a_high ^ word_at(data, start + 8)
            b_low, b_high = b_low ^ word_at(data, start + 16), b_high ^ word_at(data, start + 24)
            c_low, c_high = c_low ^ word_at(data, start + 32), c_high ^ word_at(data, start + 40)
            d_low, d_high = d_low ^ word_at(data, start + 48), d_high ^ word_at(data, start + 56)
            start += 64
        a_low, a_high = fold(a_low, a_high, k16_low, k16_high)
        a_low, a_high = fold(a_low ^ b_low, a_high ^ b_high, k16_low, k16_high)
        a_low, a_high = fold(a_low ^ c_low, a_high ^ c_high, k16_low, k16_high)
        a_low, a_high = a_low ^ d_low, a_high ^ d_high
        while start + 16 <= stop:
            a_low, a_high = fold(a_low, a_high, k16_low, k16_high)
            a_low, a_high = a_low ^ word_at(data, start), a_high ^ word_at(data, start + 8)
            start += 16
        # All bytes so far have been folded into 16 bytes with the same remainder. So compute the CRC of these 16 bytes.
        value = _eight_bytes(tables, np.int64(0), a_low)
        value = _eight_bytes(tables, value, a_high)
        return _by_tables(tables, data, start, stop, value) ^ 0xFFFFFFFF

elif not HAS_NUMBA:

    def crc32(data, start, stop):
        """Return zlib's crc32 of data[start:stop]. Without numba, zlib is faster than this module's table kernels."""
        return zlib.crc32(data[start:stop])

else:

    @njit(cache=True, nogil=True)
    def crc32(data, start, stop):
        """Return zlib's crc32 of data[start:stop], as an int64. The range must be inside `data`."""
        tables = _TABLES
        return _by_tables(tables, data, start, stop, np.int64(0xFFFFFFFF)) ^ 0xFFFFFFFF


@njit(cache=True, nogil=True)
def body_crcs(data, position, length, crc):
    """Write the CRC of each body data[position[i]:position[i]+length[i]] to crc[i] (int32); 0 for an empty body.

    A body that is not wholly inside `data` gets -1, which is never a stored CRC.
    """
    for body in range(len(position)):
        start, count = position[body], length[body]
        crc[body] = -1
        # Check `start` and `count` separately: their sum could overflow, and compiled code assumes that no sum does.
        if 0 <= start <= len(data) and 0 <= count <= len(data) - start:
            crc[body] = crc32(data, start, start + count) & 0x7FFFFFFF


@njit(cache=True, nogil=True)
def find_wrong_bodies(data, position, sys_flag, wrong):
    """Find the records whose body does not match its CRC. Write their indexes to `wrong`, and return their number.

    position, sys_flag  int64 and int32 per record; each record is wholly inside `data`. Empty bodies are not compared.
    """
    found = 0
    for record in range(len(position)):
        body = body_of(position[record], sys_flag[record])
        length = body_bytes_before(data, body)
        if length == 0:
            continue
        stated = read_i32(data, position[record] + BODY_CRC_POSITION)
        if length > len(data) - body or crc32(data, body, body + length) & 0x7FFFFFFF != stated:
            wrong[found] = record
            found += 1
    return found
