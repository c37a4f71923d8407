"""Convert errors of Spark jobs to errors of reput with one line of text, and print notes for users."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import reput.errors
from reput.errors import ReputError, SparkJobError

VERSION = str(sys.modules["reput"].__version__)
"""Version of reput in this process, which is the driver or an executor."""
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
"""Error texts of Spark and Python if executors cannot run reput, and the messages that replace them."""

_TRANSIENT = re.compile(
    r"^[\s:]*reput\.errors\.(StoreAccessError|StoreUnreachableError): (.+)$", re.MULTILINE
)
"""Matches the traceback line of a transient error in a task."""


def job_error(error: BaseException) -> ReputError:
    """Return the ReputError for an error of a Spark job."""
    # Return the task's transient error, instead of a SparkJobError, so that the caller may repeat the job later.
    if given_up := _TRANSIENT.search(str(error)):
        kind: type[ReputError] = getattr(reput.errors, given_up[1])
        return kind(given_up[2])
    return why_unfit(error) or SparkJobError(f"Spark job failed: {reason_of(error)}")


def why_unfit(error: BaseException) -> SparkJobError | None:
    """Return a clearer error if `error` shows that executors cannot run reput, else None.

    The returned error names the missing part and the remedy.
    """
    for pattern, words in _OF_EXECUTORS.items():
        if match := re.search(pattern, str(error)):
            return SparkJobError(f"{words.format(match[1])}: {_SAME}")
    return None


def option_of(argument: str) -> str:
    """Return the data source option for an argument: onCorrupt for on_corrupt."""
    first, *words = argument.split("_")
    return first + "".join(map(str.title, words))


@contextmanager
def one_line() -> Iterator[None]:
    """Raise errors of reput in the `with` block without tracebacks.

    Spark prints tracebacks to the user, and frames of reput do not help a user who passed a wrong option. Tracebacks
    are suppressed in the whole process. This is safe, because the process belongs to Spark and ends with the error.
    """
    try:
        yield
    except ReputError as error:
        error.args = (error.worded(option_of), *error.args[1:])
        # With this limit, Python prints no frames of the traceback.
        sys.tracebacklimit = 0
        raise error from None


def reason_of(error: BaseException) -> str:
    """Return the most useful line of a Spark error.

    This is the last line of a Python traceback, else the reason why the job was aborted, else the last "Caused by" of a
    Java stack trace, else the first line.
    """
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
    # Lines with " at " are frames of Java's stack trace.
    python = [
        line for line in lines if line[:1].isupper() and "Error: " in line and " at " not in line
    ]
    aborted = [line for line in lines if "aborted" in line or "Lost task" in line]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    rest = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (python[-1:] or aborted or causes[-1:] or rest or [type(error).__name__])[0]


def log(line: str) -> None:
    """Print a note, for example about damage in a log, to stderr of the driver or executor."""
    print(f"reput: {line}", file=sys.stderr, flush=True)
