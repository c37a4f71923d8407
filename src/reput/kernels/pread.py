"""Call `pread` from a kernel, without the Python interpreter."""

from __future__ import annotations

import os
from typing import Any

from reput.kernels.integers import Bytes
from reput.kernels.llvm import (
    INTERPRETED,
    cgutils,
    impl_ret_untracked,
    intrinsic,
    ir,
    make_array,
    types,
)


def _interpreted_pread(file: int, data: Bytes, at: int, length: int, position: int) -> int:
    first, last = int(at), int(at + length)
    if first < 0 or last > len(data):
        raise IndexError(f"bytes {first} to {last} are outside of {len(data)} bytes")
    try:
        return os.preadv(int(file), [data[first:last].data], int(position))
    except OSError:
        return -1


@intrinsic
def _compiled_pread(
    typing_context: Any, file: Any, data: Any, at: Any, length: Any, position: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        array = make_array(signature.args[1])(context, builder, args[1])
        place = builder.bitcast(builder.gep(array.data, [args[2]]), pointer)
        kind = ir.FunctionType(word, [ir.IntType(32), pointer, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "pread")
        descriptor = builder.trunc(args[0], ir.IntType(32))
        count = builder.call(function, [descriptor, place, args[3], args[4]])
        return impl_ret_untracked(context, builder, types.int64, count)

    return types.int64(types.int64, data, types.int64, types.int64, types.int64), generate


# pread(file, data, at, length, position): read from byte `position` of the open file `file` into data[at:at + length].
# It returns the number of bytes read: fewer at the file's end, -1 for an error. The caller has checked that the bytes
# lie inside `data`.
pread = _interpreted_pread if INTERPRETED else _compiled_pread
