"""Noticing that files were added to a folder or taken from it, for the price of one stat."""

from __future__ import annotations

import os
import time

# A clock tick of a file system's time stamps, and then some: a change so shortly after another may not show.
_SETTLED_NS = 2_000_000_000


class FolderWatch:
    """Tells whether the entries of a folder may have changed since it was last asked."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: int | None = -1

    def changed(self) -> bool:
        """True the first time, after every change, and as long as a change is so fresh that another could hide."""
        try:
            modified: int | None = os.stat(self._folder).st_mtime_ns
        except OSError:
            modified = None
        if modified == self._seen:
            return False
        fresh = modified is not None and time.time_ns() - modified < _SETTLED_NS
        self._seen = -1 if fresh else modified
        return True
