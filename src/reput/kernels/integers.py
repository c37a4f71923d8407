"""Read integers from byte arrays and arrays of 32-bit words, with one load and one byte swap each.

numba has no big-endian types, tests whether signed indexes are negative, and does not always combine loads of bytes
into one. So the compiled forms consist of a few LLVM instructions, without bounds checks. With NUMBA_DISABLE_JIT=1 the
same names are plain Python, which raises IndexError where the compiled form would read outside the array. The tests use
this to show that no kernel reads outside its arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.kernels.jit import njit
from reput.kernels.llvm import (
    INTERPRETED,
    cgutils,
    impl_ret_untracked,
    intrinsic,
    ir,
    make_array,
    types,
)

Bytes = npt.NDArray[np.uint8]
WORD_BYTES = 8
"""Number of bytes that `word_at` reads."""
BLOCK_BYTES = 64
"""Number of bytes that `equal_bytes` and `bytes_above_127` compare at once."""


def _interpreted(width: int, order: str, signed: bool) -> Any:
    kind = np.uint64 if width == 8 and not signed else np.int64

    def load(data: Bytes, position: int) -> Any:
        first, last = int(position), int(position) + width
        if first < 0 or last > len(data):
            raise IndexError(f"bytes {first} to {last} are outside of {len(data)} bytes")
        return kind(int.from_bytes(data[first:last].tobytes(), order, signed=signed))  # type: ignore[arg-type]

    return load


def _compiled(width: int, big_endian: bool, signed: bool) -> Any:
    result = types.uint64 if width == 8 and not signed else types.int64

    @intrinsic
    def load(typing_context: Any, data: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, args[0])
            place = builder.gep(array.data, [args[1]])
            word = builder.load(builder.bitcast(place, ir.IntType(8 * width).as_pointer()), align=1)
            if big_endian:
                word = builder.bswap(word)
            if width < 8:
                extend = builder.sext if signed else builder.zext
                word = extend(word, ir.IntType(64))
            return impl_ret_untracked(context, builder, result, word)

        return result(data, types.int64), generate

    return load


def _loader(width: int, big_endian: bool, signed: bool) -> Any:
    if INTERPRETED:
        return _interpreted(width, "big" if big_endian else "little", signed)
    return _compiled(width, big_endian, signed)


def _interpreted_prefetch(array: Any, index: Any) -> None:
    """Do nothing: a prefetch does not help plain Python."""


@intrinsic
def _compiled_prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = make_array(signature.args[0])(context, builder, args[0])
        stride = builder.extract_value(value.strides, 0)
        base = builder.ptrtoint(value.data, stride.type)
        address = builder.add(base, builder.mul(args[1], stride))
        pointer = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(flag, number) for number in (0, 3, 1))
        builder.call(function, [builder.inttoptr(address, pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


# prefetch(array, index): start loading array[index] into the cache. Any index is harmless.
prefetch = _interpreted_prefetch if INTERPRETED else _compiled_prefetch


def _interpreted_trailing_zeros(word: Any) -> Any:
    value = int(word)
    return np.int64((value & -value).bit_length() - 1)


@intrinsic
def _compiled_trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


# trailing_zeros(word): number of zero bits below the lowest set bit of a uint64 other than 0.
trailing_zeros = _interpreted_trailing_zeros if INTERPRETED else _compiled_trailing_zeros


def _interpreted_mask(data: Any, position: Any, holds: Callable[[Bytes], Any]) -> Any:
    first = int(position)
    if first < 0 or first + BLOCK_BYTES > len(data):
        raise IndexError(f"bytes {first} to {first + BLOCK_BYTES} are outside of {len(data)} bytes")
    return np.packbits(holds(data[first : first + BLOCK_BYTES]), bitorder="little").view(np.uint64)[
        0
    ]


def _interpreted_equal_bytes(data: Any, position: Any, byte: Any) -> Any:
    return _interpreted_mask(data, position, lambda block: block == byte)


def _interpreted_bytes_above_127(data: Any, position: Any) -> Any:
    return _interpreted_mask(data, position, lambda block: block > 127)


def _block() -> Any:
    return ir.VectorType(ir.IntType(8), BLOCK_BYTES)


def _load_block(context: Any, builder: Any, kind: Any, array: Any, position: Any) -> Any:
    place = builder.gep(make_array(kind)(context, builder, array).data, [position])
    return builder.load(builder.bitcast(place, _block().as_pointer()), align=1)


@intrinsic
def _compiled_equal_bytes(typing_context: Any, data: Any, position: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = _load_block(context, builder, signature.args[0], args[0], args[1])
        one = builder.insert_element(
            ir.Constant(_block(), ir.Undefined),
            builder.trunc(args[2], ir.IntType(8)),
            ir.Constant(ir.IntType(32), 0),
        )
        mask = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK_BYTES), [0] * BLOCK_BYTES)
        wanted = builder.shuffle_vector(one, ir.Constant(_block(), ir.Undefined), mask)
        return builder.bitcast(builder.icmp_unsigned("==", block, wanted), ir.IntType(BLOCK_BYTES))

    return types.uint64(data, types.int64, types.int64), generate


@intrinsic
def _compiled_bytes_above_127(typing_context: Any, data: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = _load_block(context, builder, signature.args[0], args[0], args[1])
        zeros = ir.Constant(_block(), [0] * BLOCK_BYTES)
        return builder.bitcast(builder.icmp_signed("<", block, zeros), ir.IntType(BLOCK_BYTES))

    return types.uint64(data, types.int64), generate


# equal_bytes(data, position, byte): a mask with one bit for each of the BLOCK_BYTES from `position` on, set if the byte
# equals `byte`.
equal_bytes = _interpreted_equal_bytes if INTERPRETED else _compiled_equal_bytes
# bytes_above_127(data, position): the same, with the bits set for bytes that are not ASCII.
bytes_above_127 = _interpreted_bytes_above_127 if INTERPRETED else _compiled_bytes_above_127

# Arguments of these functions: uint8 array, position. The caller has checked that the bytes lie inside.
byte_at = _loader(1, False, False)
read_i16 = _loader(2, True, True)
read_i32 = _loader(4, True, True)
read_i64 = _loader(8, True, True)
word_at = _loader(WORD_BYTES, False, False)


@njit(inline="always")
def same_bytes(left, left_start, right, right_start, count):
    """Return whether two runs of bytes are equal. Both lie within their arrays."""
    index = 0
    while index + WORD_BYTES <= count:
        if word_at(left, left_start + index) != word_at(right, right_start + index):
            return False
        index += WORD_BYTES
    # Compare the last few bytes as one full word, which begins with bytes that were compared before.
    if index < count and count >= WORD_BYTES:
        index = count - WORD_BYTES
        return word_at(left, left_start + index) == word_at(right, right_start + index)
    while index < count:
        if byte_at(left, left_start + index) != byte_at(right, right_start + index):
            return False
        index += 1
    return True


@njit(inline="always")
def bits_of(value):
    """Return the 64 bits of an integer as a uint64. In plain Python, np.uint64 refuses Python's negative integers."""
    return np.uint64(np.int64(value))


@njit(inline="always")
def wrapped_sum(left, right):
    """Return left + right as a Java long, which wraps around. The compiler assumes that int64 sums do not overflow."""
    return np.int64(bits_of(left) + bits_of(right))


@njit(inline="always")
def wrapped_difference(left, right):
    """Return left - right as a Java long."""
    return np.int64(bits_of(left) - bits_of(right))


@njit(inline="always")
def swap32(word):
    """Swap the bytes of a word.

    On a little-endian machine, the swap converts a big-endian word to its value, and a value to a big-endian word.
    """
    word = np.int64(word)
    return (
        ((word & 0xFF) << 24)
        | ((word & 0xFF00) << 8)
        | ((word >> 8) & 0xFF00)
        | ((word >> 24) & 0xFF)
    )
