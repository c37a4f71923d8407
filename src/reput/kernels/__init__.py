"""Every hot loop: numba kernels, arrays in and arrays out.

Byte arrays are `uint8` and must be writable views (numba compiles another variant for read-only ones). No kernel reads
outside the arrays it is given; every length is checked before it is used. `compile_cache` decides where compiled
kernels are stored. With NUMBA_DISABLE_JIT=1, or without numba, they run as plain Python.
"""

from collections.abc import Callable

on_compile: list[Callable[[str], None]] = []
"""Called with the name of each kernel that is about to be compiled."""
