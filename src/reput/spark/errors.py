"""Errors in Spark's Python processes, made to reach the driver as the one line that they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from reput.errors import ReputError, SparkJobError

VERSION = str(sys.modules["reput"].__version__)
"""Of the code that this process runs: the driver's or an executor's."""
_THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SAME = (
    f"install Python {_THIS} with numpy, numba and reput {VERSION} on every node, and set PYSPARK_PYTHON to "
    "it before the session starts"
)
_OF_EXECUTORS = {
    r"different (?:minor )?version: (\S+?),? than": "the executors run Python {}, the driver "
    + _THIS,
    r'Cannot run program "([^"]+)"': "an executor cannot start {}",
    r"No module named '((?:reput|numba|numpy)\b[^']*)'": "an executor lacks {}",
    r"(?:cannot import name|Can't get attribute) '([^']+)' (?:from|on) .*reput": (
        "an executor has another version of reput, without {}"
    ),
}
"""What Spark and Python say where executors cannot run reput, and in our words."""


def why_unfit(error: BaseException) -> SparkJobError | None:
    """Return what is missing on executors, and what to do, if that is why a job failed."""
    for pattern, words in _OF_EXECUTORS.items():
        if found := re.search(pattern, str(error)):
            return SparkJobError(f"{words.format(found[1])}: {_SAME}")
    return None


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
