"""Which store a task reads, and how."""

from __future__ import annotations

from typing import NamedTuple

from reput.files.storage import Storage


class StorePlace(NamedTuple):
    """A store of a look-up, as a task carries it to another process: its number, its path, its file system."""

    number: int
    path: str
    storage: Storage
