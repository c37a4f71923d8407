"""A proof of an IndexFile covers all ranges of the log that it can, and no message that a look-up would miss."""

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.core.log.offset_range import OffsetRange
from reput.core.store.store_reader import StoreReader
from reput.engine.compare import proof
from reput.engine.compare.proof import ItemComparison, prove
from tests.golden.stores import GoldenStore, TornCase
from tests.index.proving import (
    ITEMS,
    ITEMS_AT,
    SLOTS,
    change_words,
    index_of,
    keyed_records,
    messages,
    missed,
    verdicts,
    with_random_damage,
)
from tests.oracle.forge import LogForge, RecordFields, write_store
from tests.oracle.random_logs import LogOptions, random_log

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]
LOST_AND_FOUND = ("name_collision", "index_last_entry_half", "index_short_file")


@pytest.mark.parametrize("name", ["basic", "extremes", "lmq", "orders", "timed", "tricky"])
def test_an_index_that_a_broker_wrote_is_proved_from_its_first_message_to_its_last(
    golden: Golden, name: str
) -> None:
    store = golden(name)
    found = verdicts(store.path, store.hash_slots, store.index_items)
    assert missed(store.path, found, store.hash_slots, store.index_items) == []
    for row, verdict in zip(store.index, found, strict=True):
        ((start, stop),) = verdict.ranges
        assert verdict.problems == ()
        assert verdict.gap_bytes == 0
        # The keys of the first message may be in the previous file, and those of the last one in the next file.
        assert row.begin_physical_offset <= start < stop
        assert row.end_physical_offset <= stop


@pytest.mark.parametrize("state", ["before", "after", "after_more"])
def test_no_verdict_on_a_torn_store_covers_a_message_that_is_missed(
    torn: Torn, torn_name: str, state: str
) -> None:
    path = torn(torn_name).root / state
    if not (path / "index").is_dir():
        pytest.skip(f"{torn_name} has no {state} with an index")
    with StoreReader(path) as store:
        if not store.index.current():
            pytest.skip("it has no IndexFile")
        slots, items = store.index.current()[0].hash_slots, store.index.current()[0].index_items
        found = [prove(file, store.commit_log) for file in store.index.current()]
    assert missed(path, found, slots, items) == []
    if torn_name not in LOST_AND_FOUND:
        assert sum(part.size_bytes for verdict in found for part in verdict.ranges) > 0


@pytest.fixture(
    params=["abort_clean", "crc_late_noabort", "index_count_zero_noabort", "index_short_file", "kill9",
            "index_last_entry_half", "magic_first_lastfile_abort", "name_collision", "size_bigger_noabort"]
)  # fmt: skip
def torn_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@given(
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.sampled_from((1, 7, 64)),
    st.sampled_from((30, 1000)),
)
def test_whatever_is_damaged_no_verdict_covers_a_message_that_is_missed(
    tmp_path_factory: pytest.TempPathFactory, seed: int, damages: int, slots: int, items: int
) -> None:
    random = Random(seed)
    log = random_log(seed, LogOptions(records=60, irregular=random.random() < 0.2))
    path = write_store(tmp_path_factory.mktemp("store"), log.files)
    files = index_of(path, log.files, slots=slots, items=items)
    sound = verdicts(path, slots, items)
    assert missed(path, sound, slots, items) == []
    for _ in range(damages):
        file = random.choice(files)
        # An earlier change may have made the count too large.
        used = min(struct.unpack_from(">i", file.read_bytes(), 36)[0], items)
        positions = (*range(0, 40, 4), *range(40, 40 + 4 * slots, 4))
        entries = range(40 + 4 * slots + 20, 40 + 4 * slots + 20 * max(used, 2), 4)
        change_words(file, [random.choice(random.choice((positions, entries)))], random)
    with StoreReader(path, hash_slots=slots, index_items=items) as store:
        names = [file.name for file in store.index.current()]
        found = [prove(file, store.commit_log) for file in store.index.current()]
    # A file with an impossible count is not opened. Then the proofs would not match the files.
    if len(names) == len(files):
        assert missed(path, found, slots, items) == []


def hole(log: LogForge, first: int, stop: int) -> OffsetRange:
    return OffsetRange(log.offsets[first], log.offsets[stop])


def test_messages_written_while_indexing_was_off_are_left_out_of_the_verdict(
    tmp_path: Path,
) -> None:
    log = messages(300)
    path = write_store(tmp_path, log.files())
    off = hole(log, 101, 200)
    index_of(path, log.files(), lambda record: not off.start <= record.physical_offset < off.stop)
    (verdict,) = verdicts(path)
    assert verdict.ranges[0] == (log.offsets[1], off.start)
    assert sum(part.size_bytes for part in verdict.ranges[1:]) > log.offsets[299] - off.stop
    assert verdict.problems
    assert missed(path, [verdict]) == []


@pytest.mark.parametrize("more", [1, 2, 3])
def test_a_message_at_the_end_of_its_log_file_may_have_keys_in_two_index_files(
    tmp_path: Path, more: int
) -> None:
    log = messages(300, body=b"words")
    path = write_store(tmp_path, log.files())
    blank, _ = log.blanks[0]
    last = max(offset for offset in log.offsets if offset < blank)
    before = sum(len(record.index_keys) for offset, record in keyed_records(path) if offset < last)
    # Item 0 is not used. The message has three keys.
    items = before + more + 1
    files = index_of(path, log.files(), items=items)
    found = verdicts(path, items=items)
    assert [verdict.problems for verdict in found] == [()] * len(files)
    assert missed(path, found, items=items) == []


def test_an_item_that_no_slot_leads_to_costs_its_message_and_its_neighbours_only(
    tmp_path: Path,
) -> None:
    log = messages(300)
    path = write_store(tmp_path, log.files())
    (file,) = index_of(path, log.files())
    data = bytearray(file.read_bytes())
    slot = next(s for s in range(SLOTS) if data[40 + 4 * s : 44 + 4 * s] != bytes(4))
    (newest,) = struct.unpack_from(">i", data, 40 + 4 * slot)
    (previous,) = struct.unpack_from(">i", data, ITEMS_AT + 20 * newest + 16)
    struct.pack_into(">i", data, 40 + 4 * slot, previous)
    file.write_bytes(data)
    (verdict,) = verdicts(path)
    assert missed(path, [verdict]) == []
    assert 0 < log.end_offset - sum(part.size_bytes for part in verdict.ranges) < 2000
    assert verdict.problems == (f"its slots do not lead to item {newest}",)


def test_a_lost_page_of_slots_is_no_verdict(tmp_path: Path) -> None:
    log = messages(4000)
    path = write_store(tmp_path, log.files())
    (file,) = index_of(path, log.files())
    data = bytearray(file.read_bytes())
    data[40 : 40 + 4 * SLOTS // 2] = bytes(4 * SLOTS // 2)
    file.write_bytes(data)
    (verdict,) = verdicts(path)
    assert verdict.ranges == ()
    assert "its slots do not lead to" in verdict.problems[0]


def test_a_log_cut_short_and_written_over_is_covered_up_to_the_cut(tmp_path: Path) -> None:
    old = messages(200)
    cut = old.offsets[100]
    path = write_store(tmp_path, _written_over(old, 100, 150).files())
    index_of(path, old.files())
    (verdict,) = verdicts(path)
    assert missed(path, [verdict]) == []
    assert verdict.ranges[0] == (old.offsets[1], cut)


def _written_over(log: LogForge, kept: int, more: int) -> LogForge:
    """Return a log with the first `kept` messages of another one, and with `more` new messages in place of the rest."""
    forge = LogForge(1 << 14)
    for record in _records(log, 0, kept):
        forge.put_bytes(record)
    for number in range(more):
        forge.put(RecordFields(properties={"KEYS": f"n{number}"}, body=b"new"))
    return forge


def _records(log: LogForge, first: int, stop: int) -> list[bytes]:
    data = b"".join(part for _, part in log.files())
    return [data[log.offsets[n] : log.offsets[n + 1]] for n in range(first, stop)]


def test_what_is_known_of_a_growing_file_is_not_proved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = messages(300)
    path = write_store(tmp_path, log.files())
    index_of(path, log.files(), lambda record: record.physical_offset < log.offsets[200])
    with StoreReader(path, hash_slots=SLOTS, index_items=ITEMS) as store:
        known = prove(store.index.current()[0], store.commit_log)
    assert known.ranges[0].stop == log.offsets[200]
    index_of(path, log.files())
    read = []
    compare = ItemComparison.compare

    def noted(self: ItemComparison, start: int, *rest: Any) -> Any:
        read.append(start)
        return compare(self, start, *rest)

    monkeypatch.setattr(ItemComparison, "compare", noted)
    with StoreReader(path, hash_slots=SLOTS, index_items=ITEMS) as store:
        grown = prove(store.index.current()[0], store.commit_log, known)
        assert read == [log.offsets[199]]
        assert grown == prove(store.index.current()[0], store.commit_log)


class TestLongLogs:
    """IndexFiles that cover too much of the log to be compared with all of it. A limit of 0 bytes simulates this."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(proof, "_COMPARED_BYTES", 0)
        monkeypatch.setattr(proof, "_CHECKED_GAPS", 4)
        monkeypatch.setattr(proof, "_CHECKED_ITEMS", 20)

    def test_a_whole_index_is_covered_but_for_gaps_of_few_messages(self, tmp_path: Path) -> None:
        log = messages(1000)
        path = write_store(tmp_path, log.files())
        index_of(path, log.files())
        (verdict,) = verdicts(path)
        assert verdict.problems == ()
        assert verdict.ranges == (OffsetRange(log.offsets[1], log.offsets[999]),)
        assert 0 < verdict.gap_bytes < 10 * (log.offsets[1] - log.offsets[0])

    def test_a_wide_gap_with_keyed_messages_is_found(self, tmp_path: Path) -> None:
        log = messages(1000)
        path = write_store(tmp_path, log.files())
        off = hole(log, 500, 520)
        index_of(
            path, log.files(), lambda record: not off.start <= record.physical_offset < off.stop
        )
        (verdict,) = verdicts(path)
        assert verdict.ranges[0].stop <= off.start
        assert missed(path, [verdict]) == []

    def test_entries_of_other_messages_make_it_read_all_of_the_log(self, tmp_path: Path) -> None:
        log = messages(1000)
        path = write_store(tmp_path, _written_over(log, 100, 1500).files())
        index_of(path, log.files())
        (verdict,) = verdicts(path)
        assert verdict.gap_bytes == 0
        assert verdict.ranges[0] == (log.offsets[1], log.offsets[100])
        assert missed(path, [verdict]) == []


@pytest.mark.parametrize("at", [0, 8, 16, 24, 32, 36])
def test_a_header_that_contradicts_the_items_is_not_believed(tmp_path: Path, at: int) -> None:
    log = messages(300)
    path = write_store(tmp_path, log.files())
    (file,) = index_of(path, log.files())
    data = bytearray(file.read_bytes())
    width = 8 if at < 32 else 4
    value = int.from_bytes(data[at : at + width], "big") - 1500
    data[at : at + width] = max(value, 3).to_bytes(width, "big")
    file.write_bytes(data)
    (verdict,) = verdicts(path)
    assert (verdict.ranges, len(verdict.problems)) == ((), 1)


def test_an_expired_head_is_no_problem(tmp_path: Path) -> None:
    log = messages(500)
    path = write_store(tmp_path, log.files())
    index_of(path, log.files())
    (path / "commitlog" / f"{0:020d}").unlink()
    (verdict,) = verdicts(path)
    assert verdict.problems == ()
    assert verdict.ranges[0].start == 1 << 14
    assert missed(path, [verdict]) == []


@pytest.mark.parametrize("seed", range(5))
def test_damage_is_made_where_it_matters(tmp_path: Path, seed: int) -> None:
    log = messages(50)
    path = write_store(tmp_path, log.files())
    (file,) = index_of(path, log.files())
    change_words(file, [*with_random_damage(file, 3, Random(seed), 60)], Random(seed))
    found = verdicts(path)
    assert missed(path, found) == []
