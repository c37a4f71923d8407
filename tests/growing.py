"""Files of a log that grow while others read them."""

import os
from pathlib import Path

import numpy as np

_HEAD_BYTES = 8


def write_in_place(path: Path, data: bytes) -> None:
    """Write these bytes to a file as a broker would: readers never see a shorter file, or part of the first new record.

    `Path.write_bytes` empties the file first. A reader in another thread would see a log without messages.
    """
    old = path.read_bytes() if path.exists() else b""
    if len(old) != len(data):
        # in another folder, since readers list the log's files
        made = path.parents[1] / f"{path.name}.made"
        made.write_bytes(data)
        os.replace(made, path)
        return
    changed = np.flatnonzero(np.frombuffer(old, np.uint8) != np.frombuffer(data, np.uint8))
    begin = int(changed[0]) if changed.size else len(data)
    with path.open("r+b") as file:
        for start, end in ((begin + _HEAD_BYTES, len(data)), (begin, begin + _HEAD_BYTES)):
            file.seek(start)
            file.write(data[start:end])
            file.flush()
