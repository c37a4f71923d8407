"""Errors in Spark's Python processes, made to reach the driver as the one line that they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from reput.errors import ReputError


def option_of(argument: str) -> str:
    """The name of an argument as an option of the data source: onCorrupt for on_corrupt."""
    first, *others = argument.split("_")
    return first + "".join(map(str.title, others))


@contextmanager
def one_line() -> Iterator[None]:
    """Let a ReputError of the body out without the frames that it came through.

    Spark sends what Python would print of an error; where in reput's code it arose says nothing to whoever gave
    a wrong option. The process is Spark's and ends with the error.
    """
    try:
        yield
    except ReputError as error:
        error.args = (error.worded(option_of), *error.args[1:])
        sys.tracebacklimit = 0
        raise error from None
