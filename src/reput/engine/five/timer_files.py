"""What names and sizes of the files of a broker's timer (5.x) show. The full and the quick check share these rules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from reput.base import Finding, Kind
from reput.format.file_names import (
    CONFIG_FOLDER,
    TIMER_CHECK_FILE,
    TIMER_LOG_FOLDER,
    parse_offset_file_name,
)
from reput.format.timer_log import decode_timer_check
from reput.io import LOCAL, Storage, listed_size

_CHECK_BYTES = 64


def timer_check(store: str, storage: Storage) -> tuple[int, int]:
    """Return the content of `config/timercheck` (see `decode_timer_check`); zeros if it is missing."""
    path = os.path.join(store, CONFIG_FOLDER, TIMER_CHECK_FILE)
    entry = storage.entry(path)
    if entry is None:
        return 0, 0
    with storage.open(path) as reader:
        return decode_timer_check(reader.read(0, min(entry.stat().st_size, _CHECK_BYTES)))


def timer_log_files(folder: str, storage: Storage) -> list[tuple[int, int, str]]:
    """Return the position, size and path of each file of the timer log, in order."""
    files = []
    for entry in storage.list(folder):
        start, size = parse_offset_file_name(entry.name), listed_size(entry)
        if start is not None and size is not None:
            files.append((start, size, entry.path))
    return sorted(files)


def lost_units(folder: str, start: int, stop: int) -> Finding:
    """Return the finding for units from position `start` to `stop` of the timer log, which no file has."""
    detail = f"units of the timer log from position {start} to {stop} are lost"
    return Finding(Kind.FOREIGN_FILE, folder, detail)


def log_gaps(store: Path) -> Iterator[Finding]:
    """Yield findings for units that no file of the timer log has, by the files' names and sizes.

    Raises StoreAccessError.
    """
    folder = str(store / TIMER_LOG_FOLDER)
    if LOCAL.entry(folder) is None:
        return
    files = timer_log_files(folder, LOCAL)
    for (start, size, _), (after, _, _) in pairwise(files):
        if after != start + size:
            yield lost_units(folder, start + size, after)
    _, flushed = timer_check(str(store), LOCAL)
    end = files[-1][0] + files[-1][1] if files else 0
    if end < flushed:
        yield lost_units(folder, end, flushed)
