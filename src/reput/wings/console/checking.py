"""Run checks of stores. Only one full check runs at a time, because it reads a whole store."""

from __future__ import annotations

from collections.abc import Generator
from threading import Lock

from reput.base import Finding
from reput.core import SharedStore
from reput.errors import UsageError
from reput.wings.console.mounts import Until


class Checks:
    """Runs checks, in the thread that iterates over the findings."""

    def __init__(self) -> None:
        self._full = Lock()

    def findings(
        self, store: SharedStore, is_full: bool, until: Until
    ) -> Generator[Finding, None, None]:
        """Yield findings as they are found.

        Raises StoreAccessError, StoppedError, and UsageError if the store is not on a local disk, or if a full check
        is requested while another one is running.
        """
        from reput.engine.check import check_store
        from reput.io import is_url, split_joined

        # If the store is read together with an archive of older files, check only the store itself.
        both = split_joined(store.path)
        path = store.path if both is None else both[1]
        if is_url(path):
            raise UsageError(f"{path}: only a store on a local disk can be checked")
        if not is_full:
            yield from check_store(path, config=store.told_config, quick=True)
            return
        if not self._full.acquire(blocking=False):
            raise UsageError("a full check is running; try again when it has finished")
        try:
            yield from check_store(
                path, config=store.told_config, progress=lambda *done: until.check()
            )
        finally:
            self._full.release()
