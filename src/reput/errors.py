"""All errors that reput raises.

`ReputError` is their base class. A class also inherits the built-in exception with the same meaning. Each message
is one line that names the file, the offset if there is one, and the remedy. Messages name arguments as in Python:
the command line (`reput.cli`) replaces them with its options, and chooses the exit code.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from os import PathLike, fspath
from typing import Any

_TRANSIENT = frozenset({
    errno.EAGAIN, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOBUFS,
    errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
})  # fmt: skip
"""Errors of a network file system whose server is away. A bad disk also returns EIO, but repeatedly."""


def is_transient(error: BaseException) -> bool:
    """Return whether an error, or the error of the system that it explains, may be gone when the work is done again."""
    if isinstance(error, StoreUnreachableError):
        return True
    if isinstance(error, StoreAccessError):
        return error.__cause__ is not None and is_transient(error.__cause__)
    return isinstance(error, OSError) and error.errno in _TRANSIENT


class ReputError(Exception):
    """Root of everything that reput raises on purpose.

    Attributes:
        arguments: The arguments of the caller that the message names, as it names them.
    """

    def __init__(self, message: str = "", *, arguments: Iterable[str] = ()) -> None:
        self.arguments = tuple(arguments)
        super().__init__(message)

    def worded(self, name_of: Callable[[str], str]) -> str:
        """Return the message with each argument under another name: an option's, say."""
        text = str(self)
        for argument in sorted(self.arguments, key=len, reverse=True):
            # Not where the same letters are a part of a path or of a longer name.
            text = re.sub(
                rf"(?<![\w/.-]){re.escape(argument)}(?![\w/-]|\.\w)", name_of(argument), text
            )
        return text


class UsageError(ReputError, ValueError):
    """An invalid argument; the message names it and the valid values."""


class MissingExtraError(UsageError, ImportError):
    """A package is not installed that only this needs; says how to install it."""


class JavaNotFoundError(ReputError, FileNotFoundError):
    """Spark needs a Java 17 runtime and none was found."""


class SparkJobError(ReputError):
    """A Spark job failed for a reason unrelated to the store."""


class WorkerLostError(ReputError):
    """A process that ran a task ended before the task did: killed, perhaps for want of memory."""


class StoreError(ReputError):
    """Something about a store: its place, its files, its bytes."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """No store, or no such file in it."""


class MessageNotFoundError(StoreError, LookupError):
    """No message there: expired, not written yet, or never there."""


class StoreAccessError(StoreError, OSError):
    """The operating system refused: permissions, a full disk, a read error."""


class StoreUnreachableError(StoreAccessError):
    """Object storage did not answer, or asked to come back later: transient, so run it again."""


class ObjectConflictError(StoreError):
    """Another writer was faster: the object already exists, or was replaced after it was read."""


class StoreLockedError(StoreError):
    """Another process, a broker for instance, owns the store."""


class StoreChangedError(StoreError):
    """The store changed under the job that was reading it."""


class StoreFailedError(StoreError):
    """A write or a sync failed, or another process changed a file of the open store: it takes no more messages."""


class RejectedRowsError(ReputError):
    """More messages do not fit a table than an export was allowed to reject; it committed nothing."""


class MessageRefusedError(ReputError, ValueError):
    """A message that a store could not give back as it was put; says the limit."""


class RemotingError(ReputError, ValueError):
    """Bytes from a client that are not RocketMQ's remoting protocol, or a request that cannot be answered."""


class IndexFullError(StoreError):
    """An IndexFile that holds `index_items - 1` entries takes no more."""


class FormatError(StoreError, ValueError):
    """Bytes that do not have the format of their file name.

    Attributes:
        path: The file.
        offset: Position in that file.
        reason: The problem.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        offset: int,
        reason: str,
        *,
        arguments: Iterable[str] = (),
    ) -> None:
        self.path = fspath(path)
        self.offset = offset
        self.reason = reason
        super().__init__(f"{self._place()}: {reason}", arguments=arguments)

    def _place(self) -> str:
        return f"{self.path}: offset {self.offset}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.offset, self.reason), {"arguments": self.arguments}


class CorruptMessageError(FormatError):
    """A CommitLog record that cannot be read, or whose body is not what was put.

    Attributes:
        physical_offset: Offset in the CommitLog; `offset` is the one in the file.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        offset: int,
        reason: str,
        physical_offset: int,
        *,
        arguments: Iterable[str] = (),
    ) -> None:
        self.physical_offset = physical_offset
        super().__init__(path, offset, reason, arguments=arguments)

    def _place(self) -> str:
        """Return the place as a finding does: with the physical offset if that differs."""
        place = super()._place()
        is_same = self.physical_offset == self.offset
        return place if is_same else f"{place}: physical offset {self.physical_offset}"

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.path, self.offset, self.reason, self.physical_offset
        return type(self), values, {"arguments": self.arguments}
