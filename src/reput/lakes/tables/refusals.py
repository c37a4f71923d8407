"""What the libraries of tables raise, in one line of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reput.errors import ReputError, StoreAccessError, StoreLockedError

_NO_SPACE = ("No space left", "disk is full")


@contextmanager
def explained_by(library: str, name: str, conflict: type[Exception]) -> Iterator[None]:
    """Turn errors of the body into a StoreAccessError, or a StoreLockedError for `conflict`: another's commit."""
    try:
        yield
    except ReputError:
        raise
    except conflict as error:
        raise StoreLockedError(
            f"{name}: another commit was made meanwhile; run it again: {_line(error)}"
        ) from error
    except Exception as error:  # they let through what lies below them
        line = _line(error)
        hint = "; free some space and run it again" if any(t in line for t in _NO_SPACE) else ""
        raise StoreAccessError(f"{name}: {library}: {line}{hint}") from error


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
