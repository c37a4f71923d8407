"""The figures of `reput fleet`: growth of topics, unknown figures with their reasons, and limits that are findings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base import Kind, Severity
from reput.base.clock import parse_duration
from reput.cli.main import FOUND, WARNED
from reput.engine.check import scrub
from reput.engine.stores import open_store
from reput.errors import UsageError
from reput.io import Disk
from reput.wings.fleet.api import survey
from reput.wings.fleet.figures import Figures, FileProof
from reput.wings.fleet.survey import _CELLS
from reput.wings.fleet.thresholds import Thresholds
from reput.wings.serve import GroupLag
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
LIMITS = {Kind.PROOF_OLD, Kind.DISK_FULL, Kind.LOG_GROWTH, Kind.GROUP_LAG, Kind.NO_NEW_MESSAGE}


def test_a_full_disk_is_not_ok(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("basic").path
    assert reput("fleet", store).code == FOUND
    monkeypatch.setattr(Disk, "usage", lambda self, path: (1 << 40, 0))
    ran = reput("fleet", store)
    assert ran.code == WARNED
    assert "  warning  " in ran.lines[1]
    assert "  now  " in ran.lines[1]
    assert "disk_full" in ran.lines[1]
    nagios = reput("fleet", store, "--format", "nagios")
    assert (nagios.code, nagios.out.startswith("REPUT WARNING")) == (1, True)
    lines = reput("fleet", store, "--format", "prometheus").lines
    assert f'reput_store_days_until_full{{store="{store}"}} 0' in lines
    assert f'reput_store_state{{store="{store}"}} 1' in lines


def test_each_limit_is_a_finding_and_can_be_switched_off() -> None:
    figures = Figures(
        newest_ms=1_000, bytes_per_day=100.0, free_bytes=250, file_bytes=10, days_until_full=2.5,
        groups=(GroupLag("far", 50, 10.0), GroupLag("old", 5, 90_000.0), GroupLag("lost", None, None, "?")),
    )  # fmt: skip

    def kinds(limits: Thresholds, *, is_live: bool = False) -> list[tuple[Kind, int]]:
        found = limits.findings("s", figures, 61_000, is_live=is_live)
        return [(one.kind, one.count) for one in found]

    figures.files = (FileProof("commitlog/0", None, 11.0), FileProof("index/1", 10.0, 10.0))
    off = Thresholds(min_days=None)
    assert kinds(off) == []
    assert kinds(off, is_live=True) == [(Kind.GROUP_LAG, 1)]
    assert kinds(Thresholds()) == [(Kind.DISK_FULL, 1)]
    assert kinds(Thresholds(2.5, 100, 50, 90_000, 60, 11)) == []
    assert kinds(Thresholds(2.6, 99, 4, 89_999, 59, 9)) == [
        (Kind.DISK_FULL, 1), (Kind.LOG_GROWTH, 1), (Kind.GROUP_LAG, 2), (Kind.NO_NEW_MESSAGE, 1),
        (Kind.PROOF_OLD, 2),
    ]  # fmt: skip
    figures.free_bytes = 9
    assert kinds(off) == [(Kind.DISK_FULL, 1)]
    with pytest.raises(UsageError, match="min_days must be at least 0"):
        Thresholds(min_days=-1)


def test_options_set_the_limits(golden: Golden) -> None:
    store = golden("orders").path
    for option, value, kind in (
        ("--max-growth", "1", "log_growth"),
        ("--max-age", "1s", "no_new_message"),
        ("--min-days", "1e9", "disk_full"),
    ):
        ran = reput("fleet", store, option, value)
        assert (ran.code, kind in ran.out) == (WARNED, True)
    assert "is not a duration" in reput("fleet", store, "--max-age", "1 fortnight").err


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90_000), ("1.5 days", 129_600_000), ("2D", 172_800_000)]
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("name", ["orders", "five_batch", "rocksdb", "lmq"])
def test_topics_grow_together_as_their_log_does(golden: Golden, name: str) -> None:
    report = survey(golden(name).path)
    assert not [one for one in report.findings if one.kind in LIMITS]
    if report.bytes_per_day is None:
        assert "less than a minute" in report.unknown["growth_bytes_per_day"]
        assert report.topics == ()
        return
    rates = [one.growth_bytes_per_day for one in report.topics]
    assert all(rate is not None for rate in rates)
    # The log also has bytes of no message, at the ends of its files.
    assert sum(rate or 0 for rate in rates) == pytest.approx(report.bytes_per_day, rel=0.1)
    with open_store(golden(name).path) as store:
        names = {topic for topic, _ in store.list_queues() if not topic.startswith("%LMQ%")}
    assert {one.topic for one in report.topics} == names
    lines = reput("fleet", golden(name).path, "--format", "prometheus").lines
    label = f'store="{golden(name).path}",topic="{report.topics[0].topic}"'
    assert [one for one in lines if one.startswith(f"reput_topic_growth_bytes_per_day{{{label}}}")]


def test_an_unknown_figure_has_its_reason_and_is_no_number(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    ran = reput("fleet", store)
    fields = json.loads(reput("fleet", store, "--format", "jsonl").lines[0])
    unknown = {name for name, value in fields["metrics"].items() if value is None}
    # Without groups, there is no lag, which is known.
    assert unknown - {"group_lag_messages", "group_lag_seconds"} == set(fields["unknown"])
    shown = set(fields["unknown"]) & set(_CELLS.values())
    assert (" none " in ran.lines[1], ran.lines[1].count("?")) == (True, len(shown))
    for reason in fields["unknown"].values():
        assert reason in ran.out
    for name in unknown:
        assert f"reput_store_{name}" not in reput("fleet", store, "--format", "prometheus").out


def test_damage_that_a_scrub_has_found_is_reported_until_its_file_is_replaced(
    golden: Golden, tmp_path: Path, own_cache: Path
) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    unproved = survey(store)
    assert unproved.unknown["proof_age_seconds"] == "this user has not scrubbed the store"
    assert unproved.metrics["unreadable_bytes"] is None
    path = sorted((store / "commitlog").iterdir())[1]
    sound = path.read_bytes()
    # A quick check reads the first record of each log file, not the second one.
    with open_store(store) as opened:
        at = opened.get(int(path.name)).size_bytes
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(20))
    assert survey(store).is_valid
    scrub(store, rate=None)
    report = survey(store)
    (found,) = report.findings
    assert (found.kind, report.severity) == (Kind.UNREADABLE_RECORD, Severity.DAMAGE)
    assert report.metrics["unreadable_bytes"] == found.length > 0
    lines = reput("fleet", store, "--format", "prometheus").lines
    assert f'reput_store_unreadable_bytes{{store="{store}"}} {found.length}' in lines
    name = f"commitlog/{path.name}"
    label = f'reput_file_proof_age_seconds{{store="{store}",file="{name}"}} '
    assert len([line for line in lines if line.startswith(label)]) == 1
    other = path.with_name("other")
    other.write_bytes(sound)
    other.rename(path)
    after = survey(store)
    assert after.is_valid
    assert after.metrics["unreadable_bytes"] == 0
    assert after.metrics["unproved_bytes"] == path.stat().st_size
