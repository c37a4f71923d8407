"""Define the errors that reput raises.

`ReputError` is their base class. A class also inherits the built-in exception with the same meaning. Each message
is one line that names the file, the offset if there is one, and the remedy. Messages name arguments as in Python:
the command line (`reput.cli`) replaces them with its options, and chooses the exit code.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any

_TRANSIENT = frozenset({
    errno.EAGAIN, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOBUFS,
    errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
})  # fmt: skip
"""Errors that a network file system returns while its server is down.

EIO is one of them. A bad disk also returns EIO, but it does so again when the work is repeated.
"""


def is_transient(error: BaseException) -> bool:
    """Return whether an error, or the system error that caused it, may disappear when the work is repeated."""
    if isinstance(error, StoreUnreachableError):
        return True
    if isinstance(error, StoreAccessError):
        return error.__cause__ is not None and is_transient(error.__cause__)
    return isinstance(error, OSError) and error.errno in _TRANSIENT


class ReputError(Exception):
    """The base class of all errors that reput raises on purpose.

    Attributes:
        arguments: The names of function arguments that occur in the message.
    """

    def __init__(self, message: str = "", *, arguments: Iterable[str] = ()) -> None:
        self.arguments = tuple(arguments)
        super().__init__(message)

    def worded(self, name_of: Callable[[str], str]) -> str:
        """Return the message with the names of arguments replaced, for example by names of options."""
        text = str(self)
        for argument in sorted(self.arguments, key=len, reverse=True):
            # Replace the argument's name only as a whole word, not as a part of a path or of a longer name.
            text = re.sub(
                rf"(?<![\w/.-]){re.escape(argument)}(?![\w/-]|\.\w)", name_of(argument), text
            )
        return text


class UsageError(ReputError, ValueError):
    """An argument is invalid. The message names it and the valid values."""


class MissingExtraError(UsageError, ImportError):
    """An optional package is not installed. The message states how to install it."""


class JavaNotFoundError(ReputError, FileNotFoundError):
    """Spark needs a Java runtime (Java 17), but none was found."""


class SparkJobError(ReputError):
    """A Spark job failed for a reason unrelated to the store."""


class WorkerLostError(ReputError):
    """A worker process ended before its task did. It was probably killed, perhaps because memory ran out."""


class StoreError(ReputError):
    """The base class of errors about a store: its place, its files, its bytes."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """A store does not exist, or lacks a file."""


class MessageNotFoundError(StoreError, LookupError):
    """No message begins at this place: it has expired, is not written yet, or never existed."""


class StoreAccessError(StoreError, OSError):
    """The operating system refused an operation: permissions, a full disk, a read error."""


class StoreUnreachableError(StoreAccessError):
    """Object storage did not answer, or asked for a retry later. The error is transient: run the operation again."""


class ObjectConflictError(StoreError):
    """Another writer was faster: the object already exists, or was replaced after it was read."""


class StoreLockedError(StoreError):
    """Another process, such as a broker, owns the store."""


class StoreChangedError(StoreError):
    """The store changed while an operation was reading it."""


class StoreFailedError(StoreError):
    """A writable store accepts no more messages, because a write failed or another process changed one of its files."""


class RejectedRowsError(ReputError):
    """An export would have rejected more messages than allowed. Nothing was committed."""


class MessageRefusedError(ReputError, ValueError):
    """A message cannot be stored and read back unchanged. The error's text states the reason."""


class RemotingError(ReputError, ValueError):
    """A client's bytes violate RocketMQ's remoting protocol, or its request cannot be answered."""


class IndexFullError(StoreError):
    """An IndexFile is full: it has `index_items - 1` entries."""


class FormatError(StoreError, ValueError):
    """Bytes do not have the format that the name of their file implies.

    Attributes:
        path: The file.
        offset: Position in that file.
        reason: The problem.
        resume_offset: For messages of a queue: the queue offset at which a reader can continue. None if unknown.
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
        self.resume_offset: int | None = None
        super().__init__(f"{self._place()}: {reason}", arguments=arguments)

    def _place(self) -> str:
        return f"{self.path}: offset {self.offset}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.offset, self.reason), self._kept()

    def _kept(self) -> dict[str, Any]:
        """Return the attributes that a pickled error keeps beside the values of `__init__`."""
        return {"arguments": self.arguments, "resume_offset": self.resume_offset}


class CorruptMessageError(FormatError):
    """A CommitLog record cannot be read, or its body is not the body that was put.

    Attributes:
        physical_offset: Offset in the CommitLog. `offset` is the position in the file.
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
        """Return the place as findings show it: the position in the file, and the physical offset if it differs."""
        place = super()._place()
        is_same = self.physical_offset == self.offset
        return place if is_same else f"{place}: physical offset {self.physical_offset}"

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.path, self.offset, self.reason, self.physical_offset
        return type(self), values, self._kept()


@contextmanager
def explained(path: str | PathLike[str], action: str) -> Iterator[None]:
    """Raise an OSError of the with block as a StoreAccessError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        # A ReputError that is also an OSError already names the file and the remedy.
        if isinstance(error, ReputError):
            raise
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise StoreAccessError(
            f"{fspath(path)}: cannot {action}: {error.strerror or error}{remedy}"
        ) from error


_REMEDIES = {
    errno.ENOSPC: "; free some space and run it again",
    errno.EACCES: "; check its permissions",
    errno.EROFS: "; choose another place",
}


def refused_link(path: str | PathLike[str]) -> StoreAccessError:
    """Return the error for a path that is a link, or that contains one."""
    return StoreAccessError(
        f"{fspath(path)}: is a link, but a store is written only in its own folder; replace "
        f"the link with its target"
    )


def displaced(path: str | PathLike[str], what: str) -> StoreFailedError:
    """Return the error for a file that another process deleted, renamed or replaced."""
    return StoreFailedError(
        f"{fspath(path)}: another process {what} this file while the store was open, as a broker started "
        f"by mistake would"
    )


def raise_if_refused(error: Exception) -> None:
    """Raise an error again if its cause is that this user lacks a permission. Such an error does not prove damage."""
    if is_refused(error):
        raise error


def is_refused(error: Exception) -> bool:
    """Return whether the cause of an error is that this user lacks a permission."""
    return isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError)
