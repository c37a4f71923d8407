"""The figures of a store match the oracle's walk."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reput
from reput.base import format_time
from reput.engine.check.index_inspection import inspect_index_file
from reput.engine.stores import open_store
from reput.errors import StoreNotFoundError
from reput.wings.fleet.api import survey
from reput.wings.inspect.measuring.figures import StoreFigures, Timeline
from reput.wings.inspect.measuring.log_figures import FrequentHashes, LogFigures
from reput.wings.inspect.stats import measure_store
from reput.wings.inspect.stats_operation import figure_lines
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase
from tests.index.proving import messages
from tests.inspect.stories import Story
from tests.oracle.forge import write_store
from tests.oracle.records import Record
from tests.oracle.walk import read_log, walk
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def measured(store: Path) -> StoreFigures:
    with open_store(store) as opened:
        return measure_store(opened)


def counted(records: list[Record]) -> Counter[str]:
    return Counter(record.topic for record in records)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["orders", "tricky", "extremes"])
def test_counts_are_those_of_the_oracle(golden: Golden, name: str) -> None:
    store = golden(name).path
    records = walk(read_log(store)).dispatched
    found = measured(store)
    assert (found.messages, found.size_bytes) == (len(records), sum(r.total_size for r in records))
    assert found.index_entries == sum(len(record.index_keys) for record in records)
    assert {one.topic: one.all_messages for one in found.topics} == counted(records)
    sizes: Counter[str] = Counter()
    queues: Counter[tuple[str, int]] = Counter()
    for record in records:
        sizes[record.topic] += record.total_size
        queues[record.topic, record.queue_id] += record.total_size
    assert {one.topic: one.all_bytes for one in found.topics} == sizes
    assert {(one.topic, one.queue_id): one.size_bytes for one in found.queues} == queues
    order = [one.size_bytes for one in found.queues]
    assert order == sorted(order, reverse=True)
    assert sum(one.messages for one in found.queues) == len(records)
    assert found.damage == []


@pytest.mark.parametrize("first", [True, False])
def test_only_a_file_that_expires_during_the_measurement_is_left_out(
    tmp_path: Path, first: bool
) -> None:
    log = messages(500)
    path = write_store(tmp_path, log.files())
    with open_store(path) as store:
        files = store.commit_log.files
        figures = LogFigures(Timeline(0, 1 << 40, 1))
        gone = files[0 if first else 1]
        Path(gone.path).unlink()
        if first:
            figures.read(store.commit_log, log.end_offset)
            assert figures.messages == sum(offset >= gone.end for offset in log.offsets)
            assert figures.damage == []
        else:
            with pytest.raises(StoreNotFoundError):
                figures.read(store.commit_log, log.end_offset)


def test_the_timeline_has_each_message_in_its_part(golden: Golden) -> None:
    store = golden("orders").path
    found, line = measured(store), measured(store).timeline
    expected: Counter[tuple[str, int]] = Counter()
    for record in walk(read_log(store)).dispatched:
        part = (record.store_timestamp - line.begin_ms) // line.part_ms
        assert 0 <= part < line.parts
        expected[record.topic, part] += 1
    for topic in found.topics:
        assert topic.messages == [expected[topic.topic, part] for part in range(line.parts)]


def test_gaps_keys_tags_and_groups(golden: Golden) -> None:
    store = golden("orders").path
    records = walk(read_log(store)).dispatched
    found = measured(store)
    times = [record.store_timestamp for record in records]
    gaps = sorted((after - before for before, after in pairwise(times)), reverse=True)
    assert [gap.end_ms - gap.begin_ms for gap in found.gaps] == gaps[:10]
    assert all(gap.begin_ms in times for gap in found.gaps)
    keys = Counter((record.topic, key) for record in records for key in record.index_keys)
    for one, (_, count) in zip(found.keys[:5], keys.most_common(5), strict=True):
        assert count <= one.count <= count + one.error
    for one in found.keys:
        assert keys[one.topic, one.text] <= one.count <= keys[one.topic, one.text] + one.error
    tags = Counter(record.properties.get("TAGS") for record in records)
    assert {one.text: one.count for one in found.tags} == {t: n for t, n in tags.items() if t}
    topics = counted(records)
    (group,) = found.groups
    retries, dead = topics["%RETRY%billing"], topics["%DLQ%billing"]
    assert (group.group, group.retries, group.dead_letters) == ("billing", retries, dead)


def test_retries_of_groups_that_pop_are_counted_for_the_group(tmp_path: Path) -> None:
    story = Story()
    popped: dict[str, Any] = {"1ST_POP_TIME": "1"}
    story.put("orders_new")
    story.put("%RETRY%g_pop_orders_new", times=1, **popped)
    story.put("%RETRY%g_pop+orders_new", times=1, **popped)
    story.put("%RETRY%g_orders_new", times=1)
    found = measured(story.store(tmp_path / "s")).groups
    assert [(one.group, one.retries) for one in found] == [("g_pop", 2), ("g_orders_new", 1)]


def test_index_files_as_an_inspection_finds_them(golden: Golden) -> None:
    store = golden("basic")
    found = measured(store.path)
    for figures in found.index_files:
        path = str(store.path / "index" / figures.name)
        expected = inspect_index_file(path, store.hash_slots, store.index_items)
        assert figures.entries == expected.entries
        assert (figures.used_slots, figures.slot_load) == (expected.used_slots, expected.slot_load)
        assert figures.chains == expected.chain_lengths
        assert figures.longest_chain == expected.longest_chains[0].entries
        rate = expected.distinct_hashes / 2**31
        assert figures.false_positive_rate == pytest.approx(rate, rel=0.9)
    with open_store(store.path) as opened:
        coverage = opened.query("no", "such").coverage
    assert found.coverage.indexed_bytes == coverage.indexed_bytes
    assert found.coverage.files == found.coverage.spot_checked_files == coverage.indexed_files
    assert found.coverage.log_bytes == coverage.log.stop
    ranges = found.coverage.ranges
    assert (ranges[0].begin, ranges[-1].end) == (0, coverage.log.stop)
    for before, after in pairwise(ranges):
        assert before.end == after.begin
        assert before.basis != after.basis
    indexed = sum(one.end - one.begin for one in ranges if one.basis == "spot-checked")
    assert indexed == coverage.indexed_bytes


def test_a_false_positive_rate_is_that_of_its_hashes(golden: Golden) -> None:
    """Compare the sampled rate of all IndexFiles with their number of hashes. The sample of one would be too small."""
    store = golden("orders")
    figures = measured(store.path).index_files
    paths = [str(store.path / "index" / one.name) for one in figures]
    inspected = [inspect_index_file(p, store.hash_slots, store.index_items) for p in paths]
    rate = sum(one.distinct_hashes for one in inspected) / 2**31
    assert sum(one.false_positive_rate for one in figures) == pytest.approx(rate, rel=0.1)


def test_sizing(tmp_path: Path) -> None:
    story = Story()
    for number in range(241):  # two keys per message, one message a minute, for four hours
        story.put("t", number * 60_000, unique_key=f"U{number}", key=f"k{number}")
    found = measured(story.store(tmp_path / "s"))
    sizing = found.sizing
    assert sizing.keys_per_day == pytest.approx(482 * 6)
    assert (sizing.index_items, sizing.hash_slots) == (2_900, 725)
    assert sizing.hours_per_index_file == pytest.approx(24 * 59 / (482 * 6))
    assert sizing.log_bytes_per_day == pytest.approx(found.size_bytes * 6)
    assert sizing.free_bytes is not None
    assert sizing.used_bytes is not None
    assert sizing.used_bytes > 0
    assert sizing.days_until_full == pytest.approx(
        sizing.free_bytes / (found.size_bytes * 6 * sizing.store_bytes_per_log_byte), rel=0.2
    )


def test_the_text_states_the_time_of_the_newest_message(tmp_path: Path) -> None:
    story = Story()
    for number in range(7):
        story.put("t", number * 1_000_000)
    store = story.store(tmp_path / "s")
    found = measured(store)
    with open_store(store) as opened:
        times = [opened.get_by_queue("t", 0, number).store_timestamp for number in range(7)]
    assert (found.timeline.begin_ms, found.newest_ms) == (min(times), max(times))
    (line,) = [line for line in figure_lines(found) if line.startswith("stored from ")]
    assert line.startswith(
        f"stored from {format_time(found.timeline.begin_ms)} to {format_time(found.newest_ms)}, "
    )


@pytest.mark.parametrize("hours", [4, 60])
def test_stats_and_fleet_state_the_same_day(tmp_path: Path, hours: int) -> None:
    """The log grows three times as fast in its last 20 hours, if it has so many."""
    story = Story()
    for number in range(hours * 6):
        for copy in range(3 if number > (hours - 20) * 6 else 1):
            story.put("t", number * 600_000, unique_key=f"U{number}-{copy}", body=bytes(400))
    store = story.store(tmp_path / "s")
    sizing, figures = measured(store).sizing, survey(store)
    assert sizing.days_until_full is not None
    assert sizing.free_bytes is not None
    # The free bytes of the disk may change between the two.
    rate = sizing.free_bytes / sizing.days_until_full
    free, days = figures.metrics["disk_free_bytes"], figures.days_until_full
    assert free is not None
    assert days is not None
    assert rate == pytest.approx(free / days)
    # Indexes grow with the log.
    assert figures.bytes_per_day is not None
    assert 1.02 * figures.bytes_per_day < rate < 1.5 * figures.bytes_per_day
    assert sizing.log_bytes_per_day is not None
    assert (figures.bytes_per_day > 1.2 * sizing.log_bytes_per_day) == (hours == 60)


def test_a_store_of_a_moment_has_no_rates(tmp_path: Path) -> None:
    story = Story()
    story.put("t", 5)
    found = measured(story.store(tmp_path / "s"))
    assert (found.messages, found.sizing.keys_per_day, found.sizing.days_until_full) == (
        1,
        None,
        None,
    )
    assert (found.gaps, found.keys) == ([], [])


def test_damage_is_left_out_and_said(torn: Torn) -> None:
    case = torn("magic_first_lastfile_abort")
    found = measured(case.before)
    (lost,) = found.damage
    whole = measured(case.base.path)
    assert found.size_bytes + lost.length == whole.size_bytes
    assert found.messages == whole.messages - 1


@pytest.mark.parametrize("number", [1, -1], ids=["a missing file", "a lost end"])
def test_a_count_without_a_lost_file_is_incomplete(tmp_path: Path, number: int) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        store.put_many(reput.Message("T", bytes(300), keys=["k"]) for _ in range(140))
    sorted((path / "commitlog").iterdir())[number].unlink()
    found = reput.stats(path)
    assert not found.is_complete
    assert found.headline.startswith("at least ")
    assert "of the log could not be read, and are not counted" in str(found)


def test_the_end_of_a_killed_log_is_no_damage(torn: Torn) -> None:
    store = torn("kill9").before
    found = measured(store)
    assert found.damage == []
    assert found.messages == len(walk(read_log(store)).records)


def test_counters_hold_at_least_what_was_counted() -> None:
    random = np.random.default_rng(7)
    hashes = random.zipf(1.3, 20_000).astype(np.int64) * 0x9E3779B1 % (1 << 31)
    counters = FrequentHashes(10)
    for counter, hashed in zip(hashes & 1023, hashes, strict=True):
        counters.counters[counter] += 1, 0
        counters.counters[counter, 1] = hashed * 2
    true = Counter(hashes.tolist())
    top = counters.top(5)
    assert [count for _, count, _ in top] == sorted((c for _, c, _ in top), reverse=True)
    (most, count) = true.most_common(1)[0]
    assert top[0][0] == counters.counter_of(most)
    assert count <= top[0][1] <= count + 10 * counters.error
    assert counters.counter_of(top[0][2] // 2) == top[0][0]
    assert FrequentHashes(4).top(3) == []


def test_without_an_index(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "s")
    for path in (store / "index").iterdir():
        path.unlink()
    found = measured(store)
    assert (found.index_files, found.coverage.files, found.coverage.indexed_bytes) == ([], 0, 0)
    assert found.keys
