"""Simulate files on a network, whose system calls sometimes fail or are slow. Written data is never lost."""

from __future__ import annotations

import errno
import os
import random
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from reput.errors import StoreUnreachableError
from reput.io import DISK

_CODES = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT)
_ODD = 0.02


class FaultyFiles:
    """Replaces the module `os` in reput's file modules, with system calls that sometimes fail or are slow.

    The average number of calls between two failures doubles each time, so repeated work succeeds in the end. One call
    in 50 is slow, and one in 50 reads or writes fewer bytes than requested.

    Args:
        seed: Determines the failures and their times.
        calls: Approximate number of calls before the first failure.
        slowest_s: Longest duration of a slow call, in seconds.
    """

    def __init__(self, seed: int, calls: int = 50, slowest_s: float = 0.05) -> None:
        self._random, self._slowest_s = random.Random(seed), slowest_s
        self._calls = calls
        self._countdown = self._random.randrange(2 * calls)
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def installed(self) -> AbstractContextManager[None]:
        """Let reput's files use this object as their module `os` during the `with` block."""
        return DISK.calling(self)

    def _disturb(self) -> None:
        self._countdown -= 1
        if self._countdown < 0:
            self.failed += 1
            self._calls *= 2
            self._countdown = self._random.randrange(2 * self._calls)
            code = self._random.choice((*_CODES, 503))
            if code == 503:
                raise StoreUnreachableError("HTTP status 503")
            raise OSError(code, os.strerror(code))
        if self._random.random() < _ODD:
            time.sleep(self._random.uniform(0.001, self._slowest_s))

    def _cut(self, view: memoryview) -> memoryview:
        is_short = self._random.random() < _ODD and len(view) > 1
        return view[: self._random.randrange(1, len(view))] if is_short else view

    def open(self, *arguments: Any, **options: Any) -> int:
        self._disturb()
        return os.open(*arguments, **options)

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        self._disturb()
        return os.pread(descriptor, length, position)

    def preadv(self, descriptor: int, buffers: Sequence[memoryview], position: int) -> int:
        self._disturb()
        return os.preadv(descriptor, [self._cut(buffers[0])], position)

    def pwrite(self, descriptor: int, data: memoryview, position: int) -> int:
        self._disturb()
        return os.pwrite(descriptor, self._cut(data), position)

    def fdatasync(self, descriptor: int) -> None:
        self._disturb()
        os.fdatasync(descriptor)

    def replace(self, *arguments: Any, **options: Any) -> None:
        self._disturb()
        os.replace(*arguments, **options)


def faulty(seed: int, function: Callable[[Any], Any], task: Any) -> Any:
    """Run a task with failing files. Later attempts of the same task fail less often."""
    with _files_of(seed, repr(task)).installed():
        return function(task)


@lru_cache(maxsize=16)
def _files_of(seed: int, task: str) -> FaultyFiles:
    return FaultyFiles(seed ^ zlib.crc32(task.encode()))
