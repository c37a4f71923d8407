"""Store compiled kernels through numba's cache, in the folders that `reput.kernels.compile_cache` finds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)

from reput.kernels import on_compile
from reput.kernels.compile_cache import KERNELS, folders, own_folder, shipped, sources


class _Locator(_CacheLocator):
    """A locator that numba demands for caching. `KernelCache` chooses the actual folders."""

    def __init__(self, function: Any, path: str) -> None:
        self._line = function.__code__.co_firstlineno
        # numba prints this name in warnings.
        self._py_file = path

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
    """A numba cache for one kernel. The compiled kernel is searched for in several folders, and saved in one folder."""

    _impl_class = _Form

    def _load_overload(self, signature: Any, context: Any) -> Any:
        found = self._find(signature, context)
        if found is None and on_compile:
            for compiling in on_compile:
                compiling(self._py_func.__qualname__)
            # A function in `on_compile` may have compiled the kernel, so look again.
            found = self._find(signature, context)
        return found

    def _find(self, signature: Any, context: Any) -> Any:
        codegen = context.codegen()
        triple, *_ = codegen.magic_tuple()
        # Shipped kernels are stored under the name of a processor level (x86-64-v3), not of this processor.
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
            # If the compiled kernel cannot be saved, for example on a full disk, it still runs. The next process
            # compiles the kernel again.
            with suppress(OSError):
                IndexDataCacheFile(
                    str(own_folder(create=True)), self._impl.filename_base, sources()
                ).save(key, form)
