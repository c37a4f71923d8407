"""Define `njit` for kernels, and create arrays of rows in their layout.

`njit` is numba's, with the cache of `reput.kernels.compile_cache`. Without numba, it returns functions unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from threading import local
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.kernels.ahead import PLANNING_VARIABLE, Form, planned
from reput.kernels.llvm import HAS_NUMBA, INTERPRETED


def njit(*, cache: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Apply `numba.njit` with these options. With `cache`, compiled kernels are stored as `compile_cache` describes."""
    if INTERPRETED:
        # Code outside the kernels calls functions with `cache`, so functions with `cache` get the wrapper
        # `_interpreted`. Functions without `cache` are called only by kernels, and need no wrapper.
        return _interpreted if cache else lambda function: function
    from numba import njit as numba_njit

    from reput.kernels.kernel_cache import KernelCache

    compiled = numba_njit(**options)

    def decorate(function: Any) -> Any:
        kernel = compiled(function)
        if cache:
            kernel._cache = KernelCache(function)
        return kernel

    return decorate


_inside = local()
_INT64_MAX = 2**63 - 1


def _interpreted(function: Any) -> Any:
    """Return a kernel in plain Python that behaves like a compiled one.

    When code other than a kernel calls it, Python's integers become NumPy's, integer overflows cause no warnings, and
    the result consists of Python's own numbers.
    """
    is_planning = HAS_NUMBA and PLANNING_VARIABLE in os.environ

    @wraps(function)
    def call(*arguments: Any) -> Any:
        # NumPy's integers wrap around like the integers of compiled code, but Python's integers do not. So kernels that
        # call this function receive NumPy's integers. Other callers receive Python's integers.
        if getattr(_inside, "kernel", None) is not None:
            return function(*arguments)
        if is_planning:
            from numba import typeof

            types = tuple(map(typeof, arguments))
            planned[Form(function.__module__, function.__name__, types)] = None
        _inside.kernel = function
        try:
            # Compiled code lets integers wrap around silently, whereas NumPy's integers would cause warnings.
            with np.errstate(all="ignore"):
                return _as_compiled(function(*map(_as_argument, arguments)))
        finally:
            _inside.kernel = None

    return call


def _as_argument(value: Any) -> Any:
    """Return an argument with the type that numba gives it: 64 bits for an integer of Python, which wrap around."""
    if type(value) is int:
        return np.int64(value) if value <= _INT64_MAX else np.uint64(value)
    return value


def _as_compiled(result: Any) -> Any:
    """Return the result with Python's own numbers, as a compiled kernel does."""
    if isinstance(result, tuple):
        return tuple(map(_as_compiled, result))
    return result.item() if isinstance(result, np.generic) else result


def new_rows(count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Create `count` uninitialised rows of a structured dtype.

    Kernels access the fields of a row as attributes. With NUMBA_DISABLE_JIT=1, this requires a record array.
    """
    array = np.empty(count, dtype)
    return array.view(np.recarray) if INTERPRETED else array
