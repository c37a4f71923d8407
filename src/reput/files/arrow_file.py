"""Arrow's file format on the local file system: record batches written in one go, mapped to be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from reput.files.writer import explained, replacing


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches under a name of this attempt's own, then rename. Raises StoreAccessError."""
    with (
        replacing(path) as attempt,
        explained(path, "be written"),
        pa.OSFile(str(attempt), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


def map_arrow(path: str) -> pa.ipc.RecordBatchFileReader:
    """A reader whose batches lie in the mapped file; nothing is read before it is used. Raises StoreAccessError."""
    with explained(path, "be read"):
        return pa.ipc.open_file(pa.memory_map(path))
