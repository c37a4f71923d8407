"""Noticing that files were added to a folder or taken from it, for the price of one stat."""

from __future__ import annotations

import os
import time

# Longer than a tick of any file system's clock: a change so soon after another may not show.
_SETTLED_NS = 2_000_000_000
_Stamp = tuple[int, int] | None


class FolderWatch:
    """Tells whether the entries of a folder may have changed since it was last asked."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: _Stamp = (0, 0)

    def changed(self) -> bool:
        """True at first, after every change, and for as long as another could hide behind it."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        fresh = stamp is not None and time.time_ns() - stamp[1] < _SETTLED_NS
        self._seen = (0, 0) if fresh else stamp
        return True

    def _stamp(self) -> _Stamp:
        try:
            status = os.stat(self._folder)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns
