"""Every error that reput raises, on one screen.

`ReputError` is the root; a caller that catches it catches all. Where a built-in means the same, the class
inherits it too. The message of each is one line that names the file, the offset where there is one, and what to
do. Exit codes are the command line's affair (`reput.cli`).
"""

from __future__ import annotations

from os import PathLike, fspath


class ReputError(Exception):
    """Root of everything that reput raises on purpose."""


class UsageError(ReputError, ValueError):
    """An argument or option that cannot be right; names the option that would be."""


class JavaNotFoundError(ReputError, FileNotFoundError):
    """Spark needs a Java 17 runtime and none was found."""


class SparkJobError(ReputError):
    """A Spark job failed for a reason that is none of the store's."""


class StoreError(ReputError):
    """Something about a store: its place, its files, its bytes."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """No store, or no such file in it."""


class MessageNotFoundError(StoreError, LookupError):
    """No message there: expired, not written yet, or never there."""


class StoreAccessError(StoreError, OSError):
    """The operating system refused: permissions, a full disk, a read error."""


class StoreLockedError(StoreError):
    """Another process, a broker for instance, owns the store."""


class StoreChangedError(StoreError):
    """The store changed under the job that was reading it."""


class StoreFailedError(StoreError):
    """A write or a sync failed, so what is on the disk is uncertain: the open store takes no more messages."""


class MessageRefusedError(ReputError, ValueError):
    """A message that a store could not give back as it was put; says the limit."""


class IndexFullError(StoreError):
    """An IndexFile that holds `index_items - 1` entries takes no more."""


class FormatError(StoreError, ValueError):
    """Bytes that are not what their file name says."""

    def __init__(self, path: str | PathLike[str], offset: int, reason: str) -> None:
        self.path = fspath(path)
        self.offset = offset
        self.reason = reason
        super().__init__(f"{self.path}: offset {offset}: {reason}")

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, int, str]]:
        return type(self), (self.path, self.offset, self.reason)


class CorruptMessageError(FormatError):
    """A CommitLog record that cannot be read, or whose body is not what was put; `offset` is physical."""
