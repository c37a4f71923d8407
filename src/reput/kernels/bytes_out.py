"""Write integers and runs of bytes into byte arrays. The module `integers` reads integers from byte arrays.

Compiled kernels write each integer in one step, not byte by byte.
"""

from __future__ import annotations

from typing import Any, Literal

from reput.kernels.integers import Bytes
from reput.kernels.llvm import INTERPRETED, cgutils, intrinsic, ir, make_array, types


def _check(data: Bytes, first: int, last: int) -> None:
    if first < 0 or last > len(data):
        raise IndexError(f"bytes {first} to {last} are outside of {len(data)} bytes")


def _interpreted_store(width: int, order: Literal["big", "little"] = "big") -> Any:
    def store(data: Bytes, position: int, value: int) -> None:
        first, last = int(position), int(position) + width
        _check(data, first, last)
        wrapped = int(value) & ((1 << (8 * width)) - 1)
        data[first:last] = list(wrapped.to_bytes(width, order))

    return store


def _compiled_store(width: int, big_endian: bool = True) -> Any:
    @intrinsic
    def store(typing_context: Any, data: Any, position: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, args[0])
            place = builder.gep(array.data, [args[1]])
            kind = ir.IntType(8 * width)
            word = builder.trunc(args[2], kind) if width < 8 else args[2]
            if width > 1 and big_endian:
                word = builder.bswap(word)
            builder.store(word, builder.bitcast(place, kind.as_pointer()), align=1)
            return context.get_dummy_value()

        kind = types.int64 if big_endian else types.uint64
        return types.void(data, types.int64, kind), generate

    return store


def _interpreted_copy(target: Bytes, at: int, source: Bytes, start: int, count: int) -> None:
    _check(target, int(at), int(at + count))
    _check(source, int(start), int(start + count))
    target[at : at + count] = source[start : start + count]


@intrinsic
def _compiled_copy(
    typing_context: Any, target: Any, at: Any, source: Any, start: Any, count: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into = make_array(signature.args[0])(context, builder, args[0])
        of = make_array(signature.args[2])(context, builder, args[2])
        cgutils.raw_memcpy(
            builder,
            builder.gep(into.data, [args[1]]),
            builder.gep(of.data, [args[3]]),
            args[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _interpreted_release() -> None:
    """Do nothing: plain Python writes in program order."""


@intrinsic
def _compiled_release(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("release")
        return context.get_dummy_value()

    return types.void(), generate


# release(): a process that sees a write made after this call, for example in mapped memory, also sees all writes made
# before the call.
release = _interpreted_release if INTERPRETED else _compiled_release
# Arguments of these functions: uint8 array, position, value. The caller has checked that the bytes lie inside.
put_byte = _interpreted_store(1) if INTERPRETED else _compiled_store(1)
put_i16 = _interpreted_store(2) if INTERPRETED else _compiled_store(2)
put_i32 = _interpreted_store(4) if INTERPRETED else _compiled_store(4)
put_i64 = _interpreted_store(8) if INTERPRETED else _compiled_store(8)
# put_word is the counterpart of `integers.word_at`.
put_word = _interpreted_store(8, "little") if INTERPRETED else _compiled_store(8, False)
# copy_bytes(target, at, source, start, count). The arrays must not overlap.
copy_bytes = _interpreted_copy if INTERPRETED else _compiled_copy
