"""Check whether an open file still has the name under which it was opened.

A lock keeps other writers out of a store. But a starting broker deletes and renames files before it takes the lock.
Without the check, the process that has the lock would continue to write into a file without a name. Such a file
vanishes when it is closed.
"""

from __future__ import annotations

import os
from pathlib import Path

from reput.errors import StoreFailedError
from reput.io.reader import Identity
from reput.io.writer import explained


def check_in_place(path: Path, identity: Identity) -> None:
    """Raise StoreFailedError if the path does not lead to this file any more. Raises StoreAccessError."""
    with explained(path, "be looked at"):
        try:
            named = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            raise displaced(path, "deleted or renamed") from None
    if (named.st_dev, named.st_ino) != identity:
        raise displaced(path, "replaced")


def displaced(path: Path, what: str) -> StoreFailedError:
    """Return the error for a file that another process deleted, renamed or replaced."""
    return StoreFailedError(
        f"{path}: another process {what} this file while the store was open, as a broker started "
        f"by mistake would"
    )
