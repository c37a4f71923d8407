"""`njit` for the kernels: numba's, with the cache of `reput.kernels.compile_cache`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from threading import local
from typing import Any

import numba
import numpy as np
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)

from reput.kernels import on_compile
from reput.kernels.ahead import PLANNING_VARIABLE, Form, planned
from reput.kernels.compile_cache import KERNELS, folders, own_folder, shipped, sources


def njit(*, cache: bool = False, **options: Any) -> Callable[[Any], Any]:
    """`numba.njit` with these options; with `cache`, kernels are found and kept as `compile_cache` describes."""
    compiled = numba.njit(**options)

    def decorate(function: Any) -> Any:
        kernel = compiled(function)
        if cache and hasattr(kernel, "_cache"):
            kernel._cache = KernelCache(function)
        elif cache and PLANNING_VARIABLE in os.environ:  # with NUMBA_DISABLE_JIT=1
            return _noted(function)
        return kernel

    return decorate


_inside = local()


def _noted(function: Any) -> Any:
    """Return a kernel in plain Python that notes the types of its arguments, unless another kernel calls it."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if getattr(_inside, "kernel", None) is not None:
            return function(*arguments)
        types = tuple(numba.typeof(argument) for argument in arguments)
        planned[Form(function.__module__, function.__name__, types)] = None
        _inside.kernel = function
        try:
            return _as_compiled(function(*arguments))
        finally:
            _inside.kernel = None

    return call


def _as_compiled(result: Any) -> Any:
    """Return Python's own numbers, as a compiled kernel does."""
    if isinstance(result, tuple):
        return tuple(map(_as_compiled, result))
    return result.item() if isinstance(result, np.generic) else result


class _Locator(_CacheLocator):
    """Satisfies numba, which refuses to cache a kernel without a writable folder; `KernelCache` chooses the folders."""

    def __init__(self, function: Any, path: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = path  # numba names it in warnings

    def get_cache_path(self) -> str:
        return str(KERNELS)

    def get_source_stamp(self) -> str:
        return sources()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, path: str) -> _Locator:
        return cls(function, path)


class _Form(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 numba's own form


class KernelCache(FunctionCache):
    """numba's cache of one kernel, which reads from several folders and writes into one."""

    _impl_class = _Form

    def _load_overload(self, signature: Any, context: Any) -> Any:
        found = self._find(signature, context)
        if found is None and on_compile:
            for compiling in on_compile:
                compiling(self._py_func.__qualname__)
            found = self._find(signature, context)  # whoever was told may have compiled it
        return found

    def _find(self, signature: Any, context: Any) -> Any:
        codegen = context.codegen()
        triple, *_ = codegen.magic_tuple()
        _, _, code = key = self._index_key(signature, codegen)
        wanted = [(folder, key) for folder in folders()]
        if found := shipped():
            folder, level = found
            wanted.append((folder, (signature, (triple, level.name, level.compiled_with), code)))
        for folder, name in wanted:
            file = IndexDataCacheFile(str(folder), self._impl.filename_base, sources())
            with suppress(OSError):
                if (data := file.load(name)) is not None:
                    return self._impl.rebuild(context, data)
        return None

    def _save_overload(self, signature: Any, data: Any) -> None:
        if self._impl.check_cachable(data):
            key, form = self._index_key(signature, data.codegen), self._impl.reduce(data)
            with suppress(
                OSError
            ):  # such as a full disk: the kernel runs, and is compiled again next time
                IndexDataCacheFile(
                    str(own_folder(create=True)), self._impl.filename_base, sources()
                ).save(key, form)
