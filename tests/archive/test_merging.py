"""Merges of an archive's indexes: few indexes remain, few for any window of a day, and each row is merged few times."""

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from reput.format.archive import IndexObject, LogFile, Manifest, Times
from reput.wings.archive import indexing
from reput.wings.archive.changes import to_merge, with_merged

_SIZE, _DAY_MS = 1 << 20, 86_400_000
_DIGEST = "0" * 64


def _file(number: int, times: Times) -> LogFile:
    begin = number * _SIZE
    return LogFile(
        f"commitlog/{begin:020}", begin, _SIZE, _SIZE, True, f"log/{begin:020}-{number:032x}.zst", _SIZE,
        _DIGEST, _DIGEST, _DIGEST, 1, begin + _SIZE, times, True, False,
    )  # fmt: skip


def _index(begin: int, end: int, files: int) -> IndexObject:
    name = f"keys/{begin:020}-{end:020}-{'0' * 32}.parquet"
    return IndexObject(begin, end, files, name, 1000, files, 100, _DIGEST)


def _archived(files: int, files_a_day: float) -> Iterator[tuple[Manifest, int]]:
    """Yield the manifest after each file, and the number of rows that were written to indexes so far."""
    manifest = Manifest(id="", generation=0, writer="", version="4.9 or 5.x", settings={})
    written = 0
    for number in range(files):
        least, most = (int(_DAY_MS * one / files_a_day) for one in (number, number + 1))
        file = _file(number, Times(least, most - 1))
        manifest = msgspec.structs.replace(
            manifest, log=(*manifest.log, file),
            keys=(*manifest.keys, _index(file.begin, file.end, 1)),
        )  # fmt: skip
        written += 1
        while runs := to_merge(manifest, "keys"):
            for parts in runs:
                whole = _index(parts[0].begin, parts[-1].end, sum(part.files for part in parts))
                after = with_merged(manifest, "keys", parts, whole)
                assert after is not None
                manifest, written = after, written + whole.files
        yield manifest, written


def _overlapping(manifest: Manifest, begin_ms: int, end_ms: int) -> int:
    return sum(
        any(
            file.times is not None and file.times.least < end_ms and begin_ms <= file.times.greatest
            for file in manifest.log
            if part.begin <= file.begin < part.end
        )
        for part in manifest.keys
    )


@pytest.mark.parametrize(("files_a_day", "most_written"), [(33, 16), (7, 8), (0.3, 6)])
def test_a_window_of_a_day_has_at_most_three_indexes(files_a_day: float, most_written: int) -> None:
    files = 300
    for manifest, written in _archived(files, files_a_day):
        assert len(manifest.keys) <= 22
        assert [part.begin for part in manifest.keys] == sorted(
            part.begin for part in manifest.keys
        )
        assert sum(part.files for part in manifest.keys) == len(manifest.log)
        assert written <= most_written * len(manifest.log)
        if len(manifest.log) % 29:
            continue
        end = int(len(manifest.log) / files_a_day * _DAY_MS)
        for begin in range(max(end - 5 * _DAY_MS, 0), end, _DAY_MS // 3):
            assert _overlapping(manifest, begin, begin + _DAY_MS) <= 3


def test_a_broker_of_many_files_a_day_merges_by_size() -> None:
    *_, (manifest, written) = _archived(600, 400)
    assert len(manifest.keys) <= 22
    assert written <= 5 * 600


@pytest.mark.parametrize("span", [1, 1 << 20, 1 << 32, 1 << 60])
def test_keys_are_sorted_by_hash_then_offset_however_far_apart_they_are(span: int) -> None:
    random = np.random.default_rng(span)
    hashes = random.integers(0, 1 << 31, 500).astype(np.int32).repeat(4)
    offsets = random.integers(1 << 40, (1 << 40) + span, len(hashes))
    order = np.lexsort((offsets, hashes))
    found = indexing._sorted_keys(hashes, offsets)
    assert [found[0].dtype, found[1].dtype] == [np.int32, np.int64]
    assert np.array_equal(found[0], hashes[order])
    assert np.array_equal(found[1], offsets[order])
