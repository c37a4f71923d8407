"""Arrow's file format on the local file system: record batches written in one go, mapped to be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from reput.files.private import create_like_folder
from reput.files.writer import explained, replacing


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches under a name of this attempt's own, then rename.

    Those may read the file who may use its folder. Raises StoreAccessError.
    """
    with replacing(path) as attempt, explained(path, "be written"):
        create_like_folder(attempt)
        with pa.OSFile(str(attempt), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)


def map_arrow(path: str) -> pa.ipc.RecordBatchFileReader:
    """A reader whose batches lie in the mapped file; nothing is read before it is used. Raises StoreAccessError."""
    with explained(path, "be read"):
        return pa.ipc.open_file(pa.memory_map(path))


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write a .npy file that those may read who may use its folder. Raises StoreAccessError."""
    create_like_folder(path)
    with explained(path, "be written"):
        np.save(path, array)


def map_array(path: str) -> npt.NDArray[Any]:
    """The array of a .npy file, mapped. Raises OSError, ValueError."""
    mapped: npt.NDArray[Any] = np.load(path, mmap_mode="r")
    return mapped
