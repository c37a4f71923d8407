"""Change bytes of a Parquet file one after the other, and read it after each change.

Run as a process of its own, because a fault would end it: `python -m tests.io.flipping PATH FILE COUNT SEED`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa

from reput.base.words import first_line
from reput.engine.lookup.keys import Keys
from reput.errors import ReputError
from reput.format.parquet import TAIL_BYTES, footer_bytes
from reput.wings.lakes.merging import batches_of
from reput.wings.lakes.tables.opening import ExportRows, ReadableDestination, open_export

_MEMORY_BYTES, _PROCESSOR_S = 4 << 30, 600
_STORE = "store"


def _read_keys(file: Path, folder: Path) -> None:
    for batch in Keys.read(str(file)).batches:
        batch.validate(full=True)


def _read_to_merge(file: Path, folder: Path) -> None:
    for batch in batches_of(file):
        assert batch.num_rows


def _read_to_compare(file: Path, folder: Path) -> None:
    rows = ExportRows(open_export(str(folder)), _STORE, is_only_one=True)
    rows.between(0, 1 << 62, rows.columns)


def _read_to_count(file: Path, folder: Path) -> None:
    # As reput.wings.erase.tables does, which converts these errors.
    destination = open_export(str(folder))
    assert isinstance(destination, ReadableDestination)
    try:
        for dataset in destination.datasets():
            for batch in dataset.to_batches():
                batch.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise ReputError(first_line(error)) from None


_READERS: dict[str, Callable[[Path, Path], None]] = {
    "keys": _read_keys, "merge": _read_to_merge, "compare": _read_to_compare, "count": _read_to_count,
}  # fmt: skip


def main(reader: str, folder: str, name: str, count: int, seed: int) -> Counter[str]:
    """Change bytes of the file `name` in `folder`, and read it; return how often it was read and refused."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path, random, outcomes = Path(folder, name), Random(seed), Counter[str]()
    data = path.read_bytes()
    length = footer_bytes(data[-TAIL_BYTES:], len(data))
    assert length is not None
    footer = len(data) - TAIL_BYTES - length
    _READERS[reader](path, Path(folder))
    for _ in range(count):
        # Two of three changes in the footer, the others in pages and their headers.
        low, high = (footer, len(data)) if random.random() < 0.67 else (4, footer)
        at = random.randrange(low, high)
        changed = bytearray(data)
        changed[at] = random.choice((data[at] ^ 1 << random.randrange(8), random.randrange(256)))
        path.write_bytes(changed)
        try:
            _READERS[reader](path, Path(folder))
            outcomes["read"] += 1
        except ReputError as error:
            outcomes["refused" if "\n" not in str(error) else f"lines: {error}"] += 1
        except BaseException:
            print(f"seed {seed}: byte {at}, {data[at]} to {changed[at]}", file=sys.stderr)
            raise
    path.write_bytes(data)
    return outcomes


if __name__ == "__main__":
    asked, path, file, changes, first = sys.argv[1:]
    print(json.dumps(main(asked, path, file, int(changes), int(first))), flush=True)
    # Threads of a read that was refused may still run: the interpreter's end would abort them.
    os._exit(0)
