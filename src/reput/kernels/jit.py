"""`njit` for the kernels: numba's, with a cache that knows what a kernel is made of.

numba compiles into a kernel whatever functions it calls, inlined or not, but takes the cached machine code for current
while the kernel's own file is unchanged: after an upgrade of reput, kernels would keep the old form of what they call.
So the cache of every kernel is stamped with the sources of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import numba


def njit(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` with these options; with `cache=True` the cache is good for these very sources."""
    compiled = numba.njit(**options)

    def decorate(function: Any) -> Any:
        kernel = compiled(function)
        file = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
        if file is not None:  # there is none with NUMBA_DISABLE_JIT=1
            file._source_stamp = sources()
        return kernel

    return decorate


@cache
def sources() -> str:
    """A digest of the source of all kernels, the same wherever the package lies, in an archive for instance."""
    digest = sha256()
    modules = (file for file in files(__package__).iterdir() if file.name.endswith(".py"))
    for file in sorted(modules, key=lambda file: file.name):
        digest.update(f"{file.name}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
