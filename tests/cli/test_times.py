"""Times and sizes as people write them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.clock import format_time, parse_time
from reput.base.words import format_size, parse_size
from reput.cli.main import WRONG_USE
from reput.errors import UsageError
from reput.wings.lakes.request import ExportRequest
from tests.cli.running import reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]

NOW = 1_791_794_106_637
DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1791794106637", NOW),
        ("-1", -1),
        ("0", 0),
        ("-9223372036854775808", -(1 << 63)),
        ("2026-10-12T08:35:06.637Z", NOW),
        ("2026-10-12T08:35:06.637", NOW),
        ("2026-10-12 08:35:06.637", NOW),
        ("2026-10-12T10:35:06.637+02:00", NOW),
        ("20261012T083506.637Z", NOW),
        ("2026-10-12", NOW - 30_906_637),
        ("now", NOW),
        ("2h ago", NOW - 7_200_000),
        ("3 days ago", NOW - 3 * DAY),
        ("1.5 hours ago", NOW - 5_400_000),
        ("a minute ago", NOW - 60_000),
        ("10 min ago", NOW - 600_000),
        ("2 WEEKS AGO", NOW - 14 * DAY),
    ],
)
def test_times_that_people_write(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2h", "3 fortnights ago", "2026-13-01", "9223372036854775808", "9" * 5000],
)
def test_what_is_no_time_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{1,120}$"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (NOW, "2026-10-12T08:35:06.637Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
        ((1 << 63) - 1, "9223372036854775807 ms"),
        (-(1 << 63), "-9223372036854775808 ms"),
    ],
)
def test_times_are_shown_in_utc_and_never_fail(timestamp: int, expected: str) -> None:
    assert format_time(timestamp) == expected


def test_a_shown_time_can_be_typed_again() -> None:
    for timestamp in range(NOW, NOW + 3000, 7):
        assert parse_time(format_time(timestamp), 0) == timestamp


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("128MiB", 128 << 20),
        ("64m", 64 << 20),
        ("2 GiB", 2 << 30),
        ("1MB", 1_000_000),
        ("512b", 512),
    ],
)
def test_sizes_that_people_write(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5m", "ten", "1e9", "5 parsecs"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_sizes_are_shown_in_steps_of_1024() -> None:
    assert [format_size(n) for n in (0, 1023, 1024, 1536, 5 << 30, 3 << 50)] == [
        "0 B", "1,023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "3,072.0 TiB",
    ]  # fmt: skip


def test_seconds_are_refused_by_every_command_with_a_window(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders").path
    for command in (
        ("export", store, tmp_path / "out"), ("query", store, "--topic", "orders"),
        ("tail", store, "--topic", "orders"), ("stats", store),
    ):  # fmt: skip
        if "--begin" not in reput(command[0], "--help").out:
            continue
        ran = reput(*command, "--begin", "1791794106")
        assert ran.code == WRONG_USE
        assert (
            "looks like seconds since 1970; times are milliseconds: pass 1791794106000" in ran.err
        )
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="looks like seconds"):
        ExportRequest(begin_ms=1791794106)


def test_a_date_as_the_end_is_the_whole_day(golden: Golden) -> None:
    store = golden("orders").path
    day = ("--begin", "2026-10-12", "--end", "2026-10-12")
    ran = reput("query", store, "--topic", "orders", *day, "--limit", 100_000, "--format", "jsonl")
    times = [one.store_timestamp for one in golden("orders").messages if one.topic == "orders"]
    begin = 1791763200000
    expected = sum(begin <= time < begin + 86_400_000 for time in times)
    assert expected > 100
    assert len(ran.lines) == expected
    assert parse_time("2026-10-12", 0, is_end=True) == begin + 86_400_000 - 1
    assert parse_time("2026-10-12T00:00", 0, is_end=True) == begin


def test_a_group_without_a_command_prints_its_help_line_by_line() -> None:
    for group in ((), ("state",)):
        ran = reput(*group)
        assert (ran.code, ran.out) == (WRONG_USE, "")
        assert ran.err.startswith("Usage: reput")
        assert "\\n" not in ran.err
