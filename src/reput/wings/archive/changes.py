"""Compute new manifests of an archive: for added log files, expired files and merged indexes.

The functions are pure, because `commit` calls them again if another archiver has committed first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import groupby

import msgspec

from reput.base import DAY_MS
from reput.errors import UsageError
from reput.format.archive import IndexObject, LogFile, Manifest, chained

_MOST_DAY_FILES = 48
_FAN = 8
"""Number of adjacent indexes of similar size that are merged into one."""


def with_file(
    manifest: Manifest, entry: LogFile, keys: IndexObject, queues: IndexObject,
    batch_topics: frozenset[str],
) -> Manifest | None:  # fmt: skip
    """Return the manifest with one more log file; None if another archiver has already added it."""
    # The last file may have been archived before it was full. The new copy, with more messages, replaces the old one.
    # All lists are in the order of the log, so only their ends are examined.
    place = bisect_left(manifest.log, entry.begin, key=_begin_of)
    later = [file for file in manifest.log[place:] if file.is_sealed]
    if any(file.end > entry.begin for file in (*manifest.log[max(place - 1, 0) : place], *later)):
        copies = [file for file in later if file.begin == entry.begin and file.size == entry.size]
        # After an erasure, the archive's bytes differ from the store's on purpose.
        is_erased = any(entry.begin in record.begins for record in manifest.erasures)
        if copies and (is_erased or copies[0].sha256 == entry.sha256):
            return None
        raise UsageError(
            f"{entry.path}: differs from the archive's copy of this part of the log; nothing was added"
        )
    newer = [
        file
        for file in manifest.log[place:]
        if not file.is_sealed and file.data_bytes > entry.data_bytes
    ]
    if newer and not entry.is_sealed:
        return None  # Another archiver has copied a longer state of the last file.
    return msgspec.structs.replace(
        manifest, log=(*manifest.log[:place], *later, entry),
        keys=(*_before(manifest.keys, entry.begin), keys),
        queues=(*_before(manifest.queues, entry.begin), queues),
        batch_topics=tuple(sorted(batch_topics.union(manifest.batch_topics))),
    )  # fmt: skip


def without_expired(manifest: Manifest, before_ms: int) -> Manifest | None:
    """Return the manifest without expired log files; None if no file has expired."""
    count = 0
    for number, file in enumerate(manifest.log[:-1], 1):
        if file.times is None:
            continue
        # Stop at the first file with a message that has not expired: deleting a later file would leave a hole in the
        # log. Files without messages expire together with a later file.
        if file.times.greatest >= before_ms:
            break
        count = number
    if not count:
        return None
    log = manifest.log[count:]
    begin = log[0].begin
    old = tuple(entry for entry in manifest.snapshots[:-1] if entry.log_end <= begin)
    return msgspec.structs.replace(
        manifest, log=log, before=chained(manifest.log[:count], manifest.before),
        keys=tuple(entry for entry in manifest.keys if entry.end > begin),
        queues=tuple(entry for entry in manifest.queues if entry.end > begin),
        snapshots=manifest.snapshots[len(old) :],
    )  # fmt: skip


def to_merge(manifest: Manifest, kind: str) -> list[tuple[IndexObject, ...]]:
    """Return the runs of adjacent indexes, each of which should be merged now; merge again until none is left.

    Indexes of a log file that still grows are excluded.

    A query for a day should read few indexes. So the indexes of a past day are merged into one, and the indexes of the
    current day into at most two. If a day has many log files, its indexes are merged by size only.
    """
    end = max((file.end for file in manifest.log if file.is_sealed), default=0)
    grown = [file for file in manifest.log if file.end <= end]
    parts = [index for index in getattr(manifest, kind) if index.end <= end]
    days = {part: _day_of(part, grown) for part in parts}
    newest = days[parts[-1]] if parts else None
    runs = []
    for day, run in groupby(parts, days.__getitem__):
        of_day = tuple(run)
        is_small = sum(part.files for part in of_day) <= _MOST_DAY_FILES
        if is_small and len(of_day) > (2 if day == newest else 1):
            runs.append(of_day)
        elif is_small and day == newest:
            # Do not merge the current day's indexes with older ones before the day ends.
            parts = parts[: -len(of_day)]
    if runs:
        return runs
    for _, run in groupby(parts, lambda part: _level(part.files)):
        of_level = tuple(run)
        whole = len(of_level) - len(of_level) % _FAN
        runs += [of_level[first : first + _FAN] for first in range(0, whole, _FAN)]
    return runs


def _day_of(part: IndexObject, log: list[LogFile]) -> int:
    """Return the day (UTC) of the last message in the log files that an index covers; 0 if they have no messages."""
    times = [
        file.times.greatest
        for file in log[
            bisect_left(log, part.begin, key=_begin_of) : bisect_left(log, part.end, key=_begin_of)
        ]
        if file.times is not None
    ]
    return times[-1] // DAY_MS if times else 0


def _before(parts: tuple[IndexObject, ...], offset: int) -> tuple[IndexObject, ...]:
    return parts[: bisect_right(parts, offset, key=lambda part: part.end)]


def _begin_of(file: LogFile) -> int:
    return file.begin


def _level(files: int) -> int:
    level = 0
    while files >= _FAN:
        files, level = files // _FAN, level + 1
    return level


def with_merged(
    manifest: Manifest, kind: str, parts: tuple[IndexObject, ...], whole: IndexObject
) -> Manifest | None:
    """Return the manifest with one index in place of several; None if another archiver has changed one of them."""
    now: tuple[IndexObject, ...] = getattr(manifest, kind)
    if parts[0] not in now:
        return None
    at = now.index(parts[0])
    if now[at : at + len(parts)] != parts:
        return None
    return msgspec.structs.replace(manifest, **{kind: (*now[:at], whole, *now[at + len(parts) :])})
