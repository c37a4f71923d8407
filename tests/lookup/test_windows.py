"""Look-ups of time windows: complete to the millisecond for any clock, and narrow if the clock never stepped back."""

from pathlib import Path
from typing import Any

import pytest

import reput
from reput.core.index.index_files import IndexFilePart
from reput.core.index.key_index import BulkSearch
from reput.core.log.files import CommitLogFile
from reput.core.log.offset_range import OffsetRange
from reput.engine.lookup.ranges import ScannedRange
from tests.lookup.looking_up import Asked, bulk
from tests.oracle.forge import RecordFields, forge_log, write_store
from tests.query.stores import write_index

BEGIN = 1_700_000_000_000
COUNT = 600


def _store(path: Path, times: list[int], *, indexed: bool = True) -> dict[int, int]:
    """Write a store of messages with one common key. Return their store times by physical offset."""
    fields = [
        RecordFields(properties={"KEYS": "hot", "UNIQ_KEY": f"u{n}"}, store_timestamp=time)
        for n, time in enumerate(times)
    ]
    log = forge_log(fields, file_bytes=1 << 14)
    write_store(path, log.files())
    if indexed:
        write_index(path, log.files(), hash_slots=7, index_items=500)
    return dict(zip(log.offsets, times, strict=True))


def _expected(times: dict[int, int], asked: Asked) -> list[int]:
    _, _, begin, end = asked
    low, high = (-(1 << 70) if begin is None else begin), (1 << 70 if end is None else end)
    return sorted((at for at, time in times.items() if low <= time <= high), reverse=True)


@pytest.mark.parametrize("steps_back", [(), (100,), (1, 250, 599), tuple(range(1, 600, 2))])
@pytest.mark.every_case
def test_any_clock(tmp_path: Path, steps_back: tuple[int, ...]) -> None:
    now, times = BEGIN, []
    for number in range(COUNT):
        now += -70_000 if number in steps_back else 700
        times.append(now)
    stored = _store(tmp_path / "store", times)
    edges = [times[0], times[100], times[251], times[-1], min(times), max(times)]
    for number, edge in enumerate(edges):
        asked: list[Asked] = [
            ("T", "hot", edge - 1, edge),
            ("T", "hot", edge, edge + 2500),
            ("T", "none", edge, edge + 1),
            ("T", "hot", edge + 1, edge),
        ]
        for name, some in (("bounded", asked), ("not", [*asked, ("T", "hot", None, edge)])):
            found = bulk(tmp_path / f"{name}-{number}", [tmp_path / "store"], some)
            wanted = [[] if q[1] == "none" else _expected(stored, q) for q in some]
            assert [row.offsets for row in found] == wanted, edge
            assert all(row.coverage["is_complete"] for row in found)


def test_only_what_can_be_of_the_windows_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = _store(tmp_path / "store", [BEGIN + 700 * n for n in range(COUNT)])
    searched: list[OffsetRange] = []
    search = IndexFilePart.bulk

    def recording(part: IndexFilePart, within: OffsetRange) -> BulkSearch:
        searched.append(within)
        return search(part, within)

    monkeypatch.setattr(IndexFilePart, "bulk", recording)
    begin = BEGIN + 700 * 300
    asked: list[Asked] = [("T", "hot", begin, begin + 999), ("T", "hot", begin - 5000, begin)]
    found = bulk(tmp_path / "staged", [tmp_path / "store"], asked)
    assert [row.offsets for row in found] == [_expected(stored, each) for each in asked]
    message_bytes = max(stored) // COUNT
    assert 0 < sum(part.size_bytes for part in searched) < 20 * message_bytes
    # Parts of the index whose times are outside the window count as indexed, but are not searched.
    assert found[0].indexed_bytes > 500 * message_bytes


@pytest.mark.parametrize("steps_back", [(), (1, 250, 599)])
@pytest.mark.every_case
def test_a_log_file_that_a_query_has_scanned_is_scanned_only_if_its_times_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_back: tuple[int, ...]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", 1000)
    now, times = BEGIN, []
    for number in range(COUNT):
        now += -70_000 if number in steps_back else 700
        times.append(now)
    stored = _store(tmp_path / "store", times, indexed=False)
    with reput.open_store(tmp_path / "store") as opened:
        everything = opened.query("T", "hot")
        files = len(opened.commit_log.files)
    assert len(everything.messages) == COUNT
    cut: list[int] = []
    whole = ScannedRange.cut

    def recording(part: ScannedRange, *how: Any) -> Any:
        cut.append(part.begin)
        return whole(part, *how)

    monkeypatch.setattr(ScannedRange, "cut", recording)
    for number, edge in enumerate([times[0], times[100], times[252], times[-1], min(times)]):
        cut.clear()
        asked: list[Asked] = [("T", "hot", edge - 1, edge), ("T", "hot", edge, edge + 2500)]
        found = bulk(tmp_path / f"staged-{number}", [tmp_path / "store"], asked)
        assert [row.offsets for row in found] == [_expected(stored, each) for each in asked]
        assert all(row.coverage["is_complete"] for row in found)
        assert found[0].coverage["looked_at_bytes"] == everything.coverage.scanned_bytes
        if not steps_back:
            assert 0 < len(cut) <= 2 < files
