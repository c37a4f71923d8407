"""Provide the store that examples read by default: a week of a shop's messages, written by a broker."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "tests" / "golden" / "data" / "orders.tar.xz"


@contextmanager
def store_of(arguments: list[str]) -> Iterator[Path]:
    """Yield the path of the store in the arguments, or else of the shop's store, unpacked to a temporary folder."""
    if arguments:
        if not Path(arguments[0], "commitlog").is_dir():
            sys.exit(f"{arguments[0]}: not a store; pass a folder with commitlog/ in it")
        yield Path(arguments[0])
        return
    with tempfile.TemporaryDirectory(prefix="reput-example-") as folder:
        yield unpack(Path(folder))


def unpack(folder: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        # Extraction filters exist since Python 3.11.4.
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    return folder / "orders" / "store"
