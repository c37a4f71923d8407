"""Read and write Arrow and .npy files.

Files are written as a whole, and mapped for reading. A path may be the URL of a staged object.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from reput.errors import explained
from reput.io.places import is_url
from reput.io.scratch import create_like_folder
from reput.io.staged import reading, writing

# Maximum number of fetched objects that a process keeps in a cache.
_MOST_FETCHED = 32


def write_arrow(
    path: str | PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> None:
    """Write batches to a temporary file, then rename it to `path`. For a URL, upload it.

    Every user of the folder can read the file. Raises StoreAccessError.
    """
    name = fspath(path)
    with writing(name) as attempt, explained(name, "be written"):
        if not is_url(name):
            create_like_folder(attempt)
        with pa.OSFile(str(attempt), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)


def map_arrow(path: str) -> pa.ipc.RecordBatchFileReader:
    """Return a reader whose batches are views of the mapped file, loaded on first use. Raises StoreAccessError."""
    if is_url(path):
        return pa.ipc.open_file(_fetched(path))
    with explained(path, "be read"):
        return pa.ipc.open_file(pa.memory_map(path))


@lru_cache(maxsize=_MOST_FETCHED)
def _fetched(url: str) -> pa.Buffer:
    """Return the content of an object, mapped from an unnamed file.

    It is cached, because tasks read some objects repeatedly.
    """
    with reading(url) as path, explained(url, "be read"):
        return pa.memory_map(path).read_buffer()


def save_array(path: str, array: npt.NDArray[Any]) -> None:
    """Write a .npy file. The file's Unix group may read the file only if its folder is shared with this group.

    See `reput.io.scratch.new_private_folder`. Raises StoreAccessError.
    """
    if is_url(path):
        with writing(path) as attempt, attempt.open("wb") as file:
            np.save(file, array)
        return
    create_like_folder(Path(path))
    with explained(path, "be written"):
        np.save(path, array)


def map_array(path: str) -> npt.NDArray[Any]:
    """Map the array of a .npy file into memory, and return it. Raises OSError, ValueError."""
    # The mapping remains valid after its file is deleted.
    with reading(path) as local:
        mapped: npt.NDArray[Any] = np.load(local, mmap_mode="r")
    return mapped


class ArrowFile:
    """Files of Arrow batches, and of one NumPy array (.npy)."""

    write = staticmethod(write_arrow)
    map = staticmethod(map_arrow)
    write_array = staticmethod(save_array)
    map_array = staticmethod(map_array)
