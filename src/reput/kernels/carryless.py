"""Provide carry-less multiplication of 64-bit numbers, if the CPU has an instruction for it (PCLMULQDQ).

With it, the computation of a CRC folds 16 bytes into the next 16 bytes: the CRC of the shorter data is the same.
`fold(low, high, k_low, k_high)` returns low * k_low ^ high * k_high, computed without carries: 128 bits, as a pair of
uint64. The constants are x**n modulo the CRC's polynomial, bit-reversed (Gopal and others, "Fast CRC Computation for
Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). FOLDS states whether compiled kernels may use it.
"""

from __future__ import annotations

from typing import Any

from reput.kernels.llvm import INTERPRETED, binding, cgutils, intrinsic, ir, types

# Constants that fold 16 bytes into the 16 bytes that lie 64 or 16 bytes later.
FOLD_64_LOW, FOLD_64_HIGH = 0x0154442BD4, 0x01C6E41596
FOLD_16_LOW, FOLD_16_HIGH = 0x01751997D0, 0x00CCAA009E
# PCLMULQDQ multiplies one half of a vector by one half of another vector. These operands select the halves.
_LOW_BY_LOW, _HIGH_BY_HIGH = 0x00, 0x11


def _is_there() -> bool:
    x86 = binding.get_default_triple().startswith(("x86_64", "amd64"))
    return x86 and bool(binding.get_host_cpu_features().get("pclmul", False))


FOLDS = not INTERPRETED and _is_there()


@intrinsic
def fold(typing_context: Any, low: Any, high: Any, k_low: Any, k_high: Any) -> Any:
    """Fold as the module's docstring describes. Call it only if FOLDS is true."""
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
