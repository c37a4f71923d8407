"""Simulate a process that dies, or a disk that fails, after a chosen number of steps: changes of files."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reput.io import writer

STEPS = (
    "fdatasync", "fsync", "ftruncate", "link", "mkdir", "pwrite", "rename", "replace", "rmdir", "unlink",
)  # fmt: skip


def _ignore(fd: int) -> None:
    pass


class KilledError(BaseException):
    """Not an Exception, so that no error handler catches it."""


class Steps:
    """Counts the system calls that change files. After `last` calls, all further ones raise `error` instead."""

    def __init__(self, last: int | None, error: BaseException) -> None:
        self.last, self.error, self.made = last, error, 0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        if call in (os.fsync, os.fdatasync):
            # Syncs only matter in a power cut, and would take most of the test's time.
            call = _ignore

        def step(*arguments: Any, **options: Any) -> Any:
            if self.last is not None and self.made >= self.last:
                raise self.error
            self.made += 1
            return call(*arguments, **options)

        return step


@contextmanager
def steps_end(after: int | None, error: BaseException) -> Iterator[Steps]:
    """Count the steps of the `with` block. If `after` is given, all steps after this number raise `error`."""
    steps = Steps(after, error)
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, steps.wrap(getattr(os, name)))
        patch.setattr(writer, "exchange_at_once", steps.wrap(writer.exchange_at_once))
        yield steps


@contextmanager
def dying(after: int | None) -> Iterator[Steps]:
    """Let the `with` block make `after` steps, then end it as a killed process would end. No error leaves the block."""
    with steps_end(after, KilledError()) as steps:
        try:
            yield steps
        except KilledError:
            assert after is not None
