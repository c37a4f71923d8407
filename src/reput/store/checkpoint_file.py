"""Reading a store's `checkpoint`."""

from __future__ import annotations

import os
from os import PathLike, fspath

from reput.errors import StoreNotFoundError
from reput.files.storage import LOCAL, Storage
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.format.file_names import CHECKPOINT_FILE


def read_checkpoint(store: str | PathLike[str], storage: Storage = LOCAL) -> Checkpoint:
    """What the broker last wrote to its checkpoint; zeros where there is none, or one that is cut short.

    Raises StoreAccessError.
    """
    path = os.path.join(fspath(store), CHECKPOINT_FILE)
    entry = storage.entry(path)
    if entry is None or not entry.is_file() or not entry.stat().st_size:
        return Checkpoint()
    try:
        with storage.open(path) as reader:
            return decode_checkpoint(reader.read(0, min(entry.stat().st_size, CHECKPOINT_BYTES)))
    except (StoreNotFoundError, ValueError):
        return Checkpoint()
