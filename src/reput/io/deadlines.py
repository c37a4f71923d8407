"""Apply deadlines to requests to object storage, by one policy for all libraries that make requests.

The time-outs of these libraries differ, add up over retries, or do not exist. So each call of a library runs in
a thread that is abandoned at the deadline. The library may continue its work in this thread until the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from reput.errors import StoreUnreachableError

Result = TypeVar("Result")

CONNECT_S = 3.0
# A deadline grows by one second per MiB. So a large transfer over a network slower than 1 MiB/s exceeds its deadline.
_LEAST_BYTES_PER_S = 1 << 20


class Deadlines(NamedTuple):
    """Deadlines in seconds, including all retries.

    metadata  for opening a file, requesting its size, or listing one folder
    data      for listing everything below a folder, and for reading or writing (plus one second per MiB)
    """

    metadata: float = 10.0
    data: float = 30.0

    def for_bytes(self, count: int) -> float:
        """Return the deadline for transferring this number of bytes."""
        return self.data + count / _LEAST_BYTES_PER_S


POLICY = Deadlines()
OF_CACHES = Deadlines(3600.0, 3600.0)
"""Deadlines for libraries that fetch whole files before they open them, as fsspec's caches do."""


def within(
    seconds: float, place: str, call: Callable[[], Result], progress: Callable[[], int] = lambda: 0
) -> Result:
    """Return the result of a call, or raise its error.

    Args:
        seconds: Longest time without a change of `progress`.
        place: The file or URL, for error messages.
        call: A function, which runs in a thread of its own.
        progress: Returns a value that changes while the call makes progress.

    Raises:
        StoreUnreachableError: the deadline has passed; the call may still have an effect.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    # A daemon thread does not keep the process alive while the library for object storage still waits for an answer.
    thread = threading.Thread(target=run, name=f"reput: {place}", daemon=True)
    thread.start()
    before = None
    # The first round always waits, because `before` is None. A later round waits only if the value of `progress` has
    # changed during the previous round.
    while thread.is_alive() and before != (now := progress()):
        before = now
        thread.join(seconds)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    raise StoreUnreachableError(
        f"{place}: no answer within {seconds:.0f} s; check address, network and credentials, and "
        f"run the command again"
    )
