"""Count what an operation does: lines of Python, calls, system calls, bytes, memory.

A line of Python counts each time it runs, so that a loop or a comprehension costs as much as it repeats. Loops inside C
code (`x in a_list`, pickle) are not counted; bytes and memory show most of them.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

from benchmarks.simulated import slope

MOST = 1.1
"""The largest exponent with which a cost may grow."""
_SIZED = ("read", "pread", "write", "pwrite", "readv", "preadv", "writev", "pwritev")
_OTHERS = (
    *("open", "close", "stat", "lstat", "fstat", "scandir", "listdir", "lseek", "posix_fadvise"),
    *("fsync", "fdatasync", "rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir"),
)


@dataclass
class Counts:
    """The cost of an operation.

    Attributes:
        lines: Lines of Python that ran, each as often as it ran.
        calls: Calls of functions of `os`, each of which is a system call.
        moved: Bytes that these calls read and wrote.
        sent: Bytes of pickled tasks and results.
        memory: Peak of allocated bytes; 0 unless measured.
    """

    lines: int = 0
    calls: int = 0
    moved: int = 0
    sent: int = 0
    memory: int = 0
    of_each: dict[str, int] = field(default_factory=dict)


class PicklingRunner:
    """Runs tasks one after the other, and counts the bytes that other processes would receive and return."""

    def __init__(self, counts: Counts, parallelism: int = 4) -> None:
        self.counts, self.parallelism = counts, parallelism

    def run(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Any]:
        """See Runner."""
        # Each process receives the function once, and each task by itself.
        self.counts.sent += len(pickle.dumps(function))
        results = []
        for task in tasks:
            data = pickle.dumps(task)
            result = function(pickle.loads(data))
            self.counts.sent += len(data) + len(pickle.dumps(result))
            results.append(result)
        return results


@contextmanager
def counted_calls(counts: Counts, threads: bool = True) -> Iterator[None]:
    """Count calls of functions of `os`, and the bytes that they read and write, in this thread or in all."""
    own = threading.get_ident()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **options: Any) -> Any:
            result = call(*args, **options)
            if not threads and threading.get_ident() != own:
                return result
            counts.calls += 1
            counts.of_each[name] = counts.of_each.get(name, 0) + 1
            if name in _SIZED:
                counts.moved += len(result) if isinstance(result, bytes) else result
            return result

        return count

    with pytest.MonkeyPatch.context() as patch:
        for name in (*_SIZED, *_OTHERS):
            patch.setattr(os, name, counting(name, getattr(os, name)))
        yield


def count(
    operation: Callable[[Counts], object], *, memory: bool = False, threads: bool = True
) -> Counts:
    """Run an operation and return its cost.

    Args:
        operation: What to measure. It may add to the counts.
        memory: Count only memory.
        threads: Also count other threads. Lines count in threads that the operation starts.
    """
    counts = Counts()
    if memory:
        tracemalloc.start()
        try:
            operation(counts)
            counts.memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        return counts

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        counts.lines += 1
        return trace

    before = sys.gettrace()
    with counted_calls(counts, threads):
        if threads:
            threading.settrace(trace)
        sys.settrace(trace)
        try:
            operation(counts)
        finally:
            sys.settrace(before)
            threading.settrace(before)
    return counts


def exponents(sizes: Sequence[int], costs: Sequence[Counts]) -> dict[str, float]:
    """Return with which power of the size each kind of cost grows. Kinds that cost nothing are left out."""
    grown = {}
    for kind in ("lines", "calls", "moved", "sent", "memory"):
        values = [getattr(cost, kind) for cost in costs]
        if min(values) > 0:
            grown[kind] = slope(sizes, values)
    return grown
