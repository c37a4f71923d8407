"""Divide work between this process and forks of it.

A fork inherits all modules that this process has imported. A new process would import them again, which takes as long
as searching a hundred small stores.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from typing import Generic, TypeVar

from reput.base import usable_cpus

_Value = TypeVar("_Value")


def in_forks(
    run: Callable[[Sequence[int]], Iterable[_Value]], count: int, least: int
) -> Generator[_Value, None, None]:
    """Divide the numbers 0 … count - 1 into one share per processor, call `run` for each share, and yield the values.

    The first share is run in this process, and its values are yielded immediately. Only the command line may call this:
    a fork of a process whose threads hold locks could wait for these locks for ever.

    Args:
        run: Returns the values for a share. It is called again in this process if a fork fails.
        count: How many numbers there are.
        least: The smallest count of numbers that is worth a fork.
    """
    processes = max(min(usable_cpus(), count // least), 1) if hasattr(os, "fork") else 1
    shares = [range(first, count, processes) for first in range(processes)]
    forks: list[tuple[range, _Fork[_Value]]] = []
    try:
        for share in shares[1:]:
            forks.append((share, _Fork(partial(run, share))))
        yield from run(shares[0])
        for share, fork in forks:
            values = fork.values()
            yield from run(share) if values is None else values
    finally:
        for _, fork in forks:
            fork.end()


class _Fork(Generic[_Value]):
    """A fork of this process that calls `run` once, and sends the returned values to this process."""

    def __init__(self, run: Callable[[], Iterable[_Value]]) -> None:
        self._reader, writer = Pipe(duplex=False)
        self._process = os.fork()
        if self._process == 0:
            # Leave by `_exit`: the buffers and exit functions of the parent are not for this process.
            try:
                writer.send(list(run()))
            finally:
                os._exit(0)
        writer.close()

    def values(self) -> list[_Value] | None:
        """Return the values, or None if the fork has failed: it was killed, or a value cannot be pickled."""
        try:
            values: list[_Value] = self._reader.recv()
        except Exception:
            return None
        return values

    def end(self) -> None:
        """Stop the fork."""
        self._reader.close()
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
