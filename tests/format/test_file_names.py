"""Names of files: offsets in 20 digits, topics that are valid folders, IndexFiles in order."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.format.file_names import (
    index_file_names,
    is_folder_name,
    is_index_file_name,
    offset_file_name,
    parse_offset_file_name,
)
from reput.testing.strategies import int64, java_text

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Australia/Lord_Howe",
)
# 2023-10-29 03:00 summer time, which is followed by 02:00 again
BERLIN_STEP_BACK = 1_698_541_200_000
NOW_MS = 1_790_000_000_000


@pytest.fixture
def in_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let a test change the time zone (`set_zone`). Restore the zone of the process afterwards."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def set_zone(patch: pytest.MonkeyPatch, zone: str) -> None:
    patch.setenv("TZ", zone)
    time.tzset()


@given(st.integers(0, 2**63 - 1))
def test_offset_names_come_back(offset: int) -> None:
    name = offset_file_name(offset)
    assert len(name) == 20
    assert parse_offset_file_name(name) == offset


@pytest.mark.parametrize(
    "name", ["", "0", "0" * 19, "0" * 21, "-" + "0" * 19, "٣" * 20, "²" * 20, "0" * 19 + "\n"]
)
def test_other_names_are_no_offset(name: str) -> None:
    assert parse_offset_file_name(name) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "a/b", "/", "a\0b", "t" * 256, "主" * 86])
def test_topics_that_cannot_name_a_folder(topic: str) -> None:
    assert not is_folder_name(topic)


@pytest.mark.parametrize("topic", ["t", "...", "%RETRY%g", "t" * 255, "主" * 85, "a\\b", " ", "\n"])
def test_topics_that_can(topic: str) -> None:
    assert is_folder_name(topic)


@given(java_text)
@example("a/" * 200)
def test_a_folder_name_leads_nowhere_else(topic: str) -> None:
    if is_folder_name(topic):
        assert "/" not in topic
        assert topic not in ("", ".", "..")


@pytest.mark.parametrize(
    "name", ["20231114221320000", "0", "-1", "+7", "9223372036854775807", "٣", "0" * 99]
)
def test_names_that_a_broker_loads_an_index_file_of(name: str) -> None:
    assert is_index_file_name(name)


@pytest.mark.parametrize("name", ["", "-", "junk", "1.tmp", "9223372036854775808", "1 ", ".1", "𝟗"])
def test_names_that_a_broker_leaves_alone(name: str) -> None:
    assert not is_index_file_name(name)


def local_name(timestamp_ms: int) -> str:
    face = datetime.fromtimestamp(timestamp_ms // 1000)
    return f"{face:%Y%m%d%H%M%S}{timestamp_ms % 1000:03d}"


timestamps = st.lists(
    st.one_of(
        int64,
        st.integers(BERLIN_STEP_BACK - 7_200_000, BERLIN_STEP_BACK + 7_200_000),
        st.integers(NOW_MS - 5, NOW_MS + 5),
        st.sampled_from((0, 1, -1, BERLIN_STEP_BACK)),
    ),
    max_size=30,
)


@pytest.mark.parametrize("zone", ZONES)
@given(firsts=timestamps, now_ms=st.sampled_from((NOW_MS, BERLIN_STEP_BACK, 1_000)))
def test_index_names_are_unique_ascending_and_never_later_than_now(
    in_zone: pytest.MonkeyPatch, zone: str, firsts: list[int], now_ms: int
) -> None:
    set_zone(in_zone, zone)
    names = index_file_names(firsts, now_ms)
    assert len(names) == len(firsts)
    assert names == sorted(set(names))
    assert all(len(name) == 17 and is_index_file_name(name) for name in names)
    assert all(name < local_name(now_ms) for name in names)


@pytest.mark.parametrize("zone", ZONES)
def test_an_index_file_is_named_by_its_first_entry(in_zone: pytest.MonkeyPatch, zone: str) -> None:
    set_zone(in_zone, zone)
    firsts = [NOW_MS - 86_400_000 * days for days in (400, 300, 200, 100, 1)]
    assert index_file_names(firsts, NOW_MS) == [local_name(first) for first in firsts]


def test_a_step_back_of_the_clock_does_not_change_the_order(in_zone: pytest.MonkeyPatch) -> None:
    set_zone(in_zone, "Europe/Berlin")
    firsts = [BERLIN_STEP_BACK - 60_000, BERLIN_STEP_BACK + 60_000, BERLIN_STEP_BACK + 7_200_000]
    assert index_file_names(firsts, NOW_MS) == [
        "20231029025900000",
        # The local time is 02:01 for the second time. A name of this time would be before the first name.
        "20231029025900001",
        "20231029040000000",
    ]


def test_equal_times_get_names_one_millisecond_apart(in_zone: pytest.MonkeyPatch) -> None:
    set_zone(in_zone, "UTC")
    first = 1_700_000_000_000
    assert index_file_names([first, first, 5, -(2**63)], NOW_MS) == [
        "20231114221320000", "20231114221320001", "20231114221320002", "20231114221320003",
    ]  # fmt: skip


def test_times_to_come_are_drawn_back_before_now(in_zone: pytest.MonkeyPatch) -> None:
    set_zone(in_zone, "UTC")
    now_ms = 1_700_000_000_000
    assert index_file_names([1, 2**63 - 1, now_ms, now_ms + 1], now_ms) == [
        "19700101000000001", "20231114221319997", "20231114221319998", "20231114221319999",
    ]  # fmt: skip
