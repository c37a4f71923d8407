"""Every hot loop: numba kernels, arrays in and arrays out.

Byte arrays are `uint8` and must be writable views (numba compiles another variant for read-only ones).
No kernel reads outside the arrays it is given; every length is checked before it is used. All are compiled once
and cached beside the package, or in NUMBA_CACHE_DIR; with NUMBA_DISABLE_JIT=1 they run as plain Python.
"""

from pathlib import Path

from reput.kernels.compile_cache import ensure_cache

ensure_cache(Path(__file__).parent)
