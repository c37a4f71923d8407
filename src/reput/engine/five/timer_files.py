"""What names and sizes of the files of a broker's timer (5.x) show. The full and the quick check share these rules."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from reput.base import Finding, Kind
from reput.format import file_names
from reput.format.timer_log import (
    MIN_BLANK_BYTES,
    TIMER_UNIT_BYTES,
    decode_timer_check,
    decode_timer_queue_offset,
    decode_timer_unit,
)
from reput.io import Storage, listed_size

_CHECK_BYTES = 64


def timer_check(store: str, storage: Storage) -> tuple[int, int]:
    """Return the content of `config/timercheck` (see `decode_timer_check`); zeros if it is missing."""
    return decode_timer_check(_timer_check_bytes(store, storage))


def timer_queue_offset(store: str, storage: Storage) -> int:
    """Return the queue offset of the first timer message that the timer has not read; 0 if unknown."""
    return decode_timer_queue_offset(_timer_check_bytes(store, storage))


def _timer_check_bytes(store: str, storage: Storage) -> bytes:
    path = os.path.join(store, file_names.CONFIG_FOLDER, file_names.TIMER_CHECK_FILE)
    entry = storage.entry(path)
    if entry is None or not entry.is_file():
        return b""
    with storage.open(path) as reader:
        return reader.read(0, min(entry.stat().st_size, _CHECK_BYTES))


def timer_log_files(folder: str, storage: Storage) -> list[tuple[int, int, str]]:
    """Return the position, size and path of each file of the timer log, in order; nothing if the folder is missing."""
    files = []
    for entry in storage.list(folder) if storage.entry(folder) is not None else ():
        start, size = file_names.parse_offset_file_name(entry.name), listed_size(entry)
        if start is not None and size is not None:
            files.append((start, size, entry.path))
    return sorted(files)


def lost_units(folder: str, start: int, stop: int) -> Finding:
    """Return the finding for units from position `start` to `stop` of the timer log, which no file has."""
    return Finding(
        Kind.TIMER_LOG, folder,
        f"units of the timer log from position {start} to {stop} are lost",
        cost="their messages are not delivered, and older messages to which only these units lead",
        at_next_start="does not notice it, unless no later unit exists: then it writes them again from the topic of "
        "timers, and may deliver some of their messages twice",
    )  # fmt: skip


def check_timer_files(store: str, storage: Storage, log_begin: int) -> Iterator[Finding]:
    """Yield findings for files of the timer log that are missing or cut, by their names and sizes.

    Mirrors `MappedFileQueue.load` and `TimerMessageStore.load` (tag rocketmq-all-5.3.3): a broker deletes an empty last
    file, and does not start with a file of another size.

    Args:
        store: Path of the store.
        storage: Where the store is.
        log_begin: The physical offset at which the CommitLog begins. While it is 0, no file of the timer log has
            expired.

    Raises StoreAccessError.
    """
    folder = os.path.join(store, file_names.TIMER_LOG_FOLDER)
    files = timer_log_files(folder, storage)
    delivered_to, flushed = timer_check(store, storage)
    if not files:
        if flushed > 0:
            yield lost_units(folder, 0, flushed)
        return
    if not (delivered_to or flushed) and _has_unit(files[0], storage):
        yield Finding(
            Kind.TIMER_LOG, os.path.join(store, file_names.CONFIG_FOLDER, file_names.TIMER_CHECK_FILE),
            "is missing or empty, although the timer log has units",
            cost="messages that were delivered are delivered again",
            at_next_start="reads the topic of timers from its beginning, and delivers each of its messages again whose "
            "time has passed",
        )  # fmt: skip
    usual = _usual_size(files)
    for number, (_, size, path) in enumerate(files):
        if size != usual and (size or number < len(files) - 1):
            yield Finding(
                Kind.TIMER_LOG, path, f"has {size:,} bytes, but the others have {usual:,}",
                min(size, usual), cost="a broker refuses the store", at_next_start="does not start",
            )  # fmt: skip
    if files[0][0] and not log_begin:
        yield lost_units(folder, 0, files[0][0])
    # The finding about a file of another size covers the units that it has lost.
    for (start, size, _), (after, _, _) in pairwise(files):
        if size == usual and after != start + size:
            yield lost_units(folder, start + size, after)
    start, size, _ = files[-1]
    if size in (0, usual) and start + size < flushed:
        yield lost_units(folder, start + size, flushed)


def _has_unit(file: tuple[int, int, str], storage: Storage) -> bool:
    """Return whether a file of the timer log begins with a unit."""
    _, size, path = file
    with storage.open(path) as reader:
        return decode_timer_unit(reader.read(0, min(size, TIMER_UNIT_BYTES))) is not None


def timer_units(store: str, storage: Storage) -> int:
    """Return the number of units of the timer log, by its names and sizes. Raises StoreAccessError."""
    files = timer_log_files(os.path.join(store, file_names.TIMER_LOG_FOLDER), storage)
    _, flushed = timer_check(store, storage)
    count = 0
    for start, size, _ in files:
        # A full file ends with a blank.
        used = min(size - MIN_BLANK_BYTES, flushed - start)
        count += max(used, 0) // TIMER_UNIT_BYTES
    return count


def _usual_size(files: list[tuple[int, int, str]]) -> int:
    """Return the size of most files. The distances between their names are evidence, too."""
    votes = Counter(size for _, size, _ in files)
    votes.update(after - start for (start, _, _), (after, _, _) in pairwise(files))
    return max(votes, key=lambda size: (votes[size], size))
