"""The figures of `reput fleet`: growth of topics, unknown figures with their reasons, and limits that are findings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base import Kind
from reput.base.clock import parse_duration
from reput.cli.main import FOUND, WARNED
from reput.engine.stores.open_store import open_store
from reput.errors import UsageError
from reput.io import Disk
from reput.wings.fleet import survey
from reput.wings.fleet.figures import Figures
from reput.wings.fleet.thresholds import Thresholds
from reput.wings.serve import GroupLag
from tests.cli.running import reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
LIMITS = {Kind.DISK_FULL, Kind.LOG_GROWTH, Kind.GROUP_LAG, Kind.NO_NEW_MESSAGE}


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

    off = Thresholds(min_days=None)
    assert kinds(off) == []
    assert kinds(off, is_live=True) == [(Kind.GROUP_LAG, 1)]
    assert kinds(Thresholds()) == [(Kind.DISK_FULL, 1)]
    assert kinds(Thresholds(2.5, 100, 50, 90_000, 60)) == []
    assert kinds(Thresholds(2.6, 99, 4, 89_999, 59)) == [
        (Kind.DISK_FULL, 1), (Kind.LOG_GROWTH, 1), (Kind.GROUP_LAG, 2), (Kind.NO_NEW_MESSAGE, 1),
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
    assert (" none " in ran.lines[1], ran.lines[1].count("?")) == (True, len(fields["unknown"]))
    for reason in fields["unknown"].values():
        assert reason in ran.out
    for name in unknown:
        assert f"reput_store_{name}" not in reput("fleet", store, "--format", "prometheus").out
