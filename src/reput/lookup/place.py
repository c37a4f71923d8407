"""Which store a task reads, and how."""

from __future__ import annotations

from typing import NamedTuple

from reput.files.storage import Storage
from reput.log.sources import LogSource


class StorePlace(NamedTuple):
    """A store of a look-up, as a task carries it to another process: its number, path, file system and log."""

    number: int
    path: str
    storage: Storage
    log: LogSource
