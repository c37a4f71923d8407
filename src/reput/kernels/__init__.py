"""Define all hot loops as numba kernels, functions from arrays to arrays.

Byte arrays are `uint8` and must be writable views, because numba compiles a separate variant for read-only ones. No
kernel reads outside its arrays; every length is checked before it is used. `compile_cache` decides where compiled
kernels are stored. With NUMBA_DISABLE_JIT=1, or without numba, the kernels are not compiled: they run as plain Python.
"""

from collections.abc import Callable

on_compile: list[Callable[[str], None]] = []
"""Functions that are called with each kernel's name before the kernel is compiled."""
