"""The wheel of the timer: checked against the timer log, and written anew by a repair."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reput.base.findings import Finding, Kind
from reput.cli.main import DAMAGED, FOUND
from reput.engine.check.run import check_store
from reput.engine.five.timer_wheel import TimerWheel
from reput.format.commit_log import BLANK_MAGIC
from reput.format.dtypes import TIMER_SLOT_DTYPE, TIMER_UNIT_DTYPE
from reput.format.timer_log import TIMER_SLOT, TIMER_UNIT_BYTES, WHEEL_BYTES, WHEEL_SLOTS
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
STORES = ("five_timer", "five_life")


def wheel_findings(store: Path, *, quick: bool = False) -> list[str]:
    return [str(one) for one in check_store(store, quick=quick) if one.kind is Kind.TIMER_WHEEL]


def slots_of(store: Path) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    return np.frombuffer((store / "timerwheel").read_bytes(), TIMER_SLOT_DTYPE)


def units_of(store: Path) -> list[tuple[int, int]]:
    """Return the position and due time of each unit of the timer log, read without reput."""
    units = []
    for path in sorted((store / "timerlog").iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data) - TIMER_UNIT_BYTES + 1, TIMER_UNIT_BYTES):
            size, _, magic, written, delay = struct.unpack_from(">iqiqi", data, at)
            if size != TIMER_UNIT_BYTES or magic not in (1, 3, 5, 7):
                break
            units.append((int(path.name) + at, written + delay))
    return units


def set_flushed(store: Path, position: int) -> None:
    """Let the broker set slots from a position of the timer log on: it begins one file earlier."""
    check = store / "config" / "timercheck"
    data = bytearray(check.read_bytes())
    data[8:16] = struct.pack(">q", position)
    check.write_bytes(data)


def extend(store: Path) -> None:
    """Append delivered units up to the end of a further file, so that a broker sets no slot of the older units."""
    (delivered_to,) = struct.unpack(">q", (store / "config" / "timercheck").read_bytes()[:8])
    units = units_of(store)
    files = sorted((store / "timerlog").iterdir())
    size = files[-1].stat().st_size
    done = next(position for position, due in units if due < delivered_to)
    path = max(path for path in files if int(path.name) <= done)
    unit = path.read_bytes()[done - int(path.name) :][:TIMER_UNIT_BYTES]
    unit = unit[:4] + struct.pack(">q", -1) + unit[12:]
    begin = int(files[-1].name)
    used = units[-1][0] + TIMER_UNIT_BYTES - begin
    for start, data in ((begin, files[-1].read_bytes()[:used]), (begin + size, b"")):
        while len(data) + TIMER_UNIT_BYTES + 16 <= size:
            data += unit
        blank = struct.pack(">iqi", size - len(data), 0, BLANK_MAGIC)
        (store / "timerlog" / f"{start:020}").write_bytes((data + blank).ljust(size, b"\0"))
    set_flushed(store, begin + 2 * size)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, golden: Golden, tmp_path: Path) -> Path:
    return copy_store(golden(request.param).path, tmp_path / "store")


def waiting(store: Path) -> dict[int, list[int]]:
    """Return by interval the positions of all units that are still to be delivered, oldest first."""
    (delivered_to,) = struct.unpack(">q", (store / "config" / "timercheck").read_bytes()[:8])
    found: dict[int, list[int]] = {}
    for position, due in units_of(store):
        if due // 1000 > delivered_to // 1000:
            found.setdefault(due // 1000, []).append(position)
    return found


def magic_of(store: Path, position: int) -> int:
    path = max(path for path in (store / "timerlog").iterdir() if int(path.name) <= position)
    (magic,) = struct.unpack_from(">i", path.read_bytes(), position - int(path.name) + 12)
    return int(magic)


def recalled(store: Path) -> list[int]:
    """Return the intervals that have only recalls of other messages (magic 4), and no message."""
    return [
        interval
        for interval, positions in waiting(store).items()
        if all(magic_of(store, position) & 4 for position in positions)
    ]


def test_the_wheel_of_a_broker_is_right(store: Path) -> None:
    assert wheel_findings(store) == wheel_findings(store, quick=True) == []
    slots = slots_of(store)
    assert len(waiting(store)) > 10
    for interval, positions in waiting(store).items():
        slot = slots[interval % WHEEL_SLOTS]
        assert (slot["time"], slot["last"]) == (interval, positions[-1])


def test_a_lost_wheel_is_a_finding_and_a_repair_writes_the_slots_that_a_broker_had(
    store: Path,
) -> None:
    before, units = slots_of(store), units_of(store)
    extend(store)
    assert list(check_store(store)) == []
    (store / "timerwheel").unlink()
    expected = waiting(store)
    (finding,) = wheel_findings(store)
    assert f"{len(expected) - len(recalled(store))} slots of " in finding
    ran = run("repair", store)
    assert ran.code == FOUND, ran.err
    assert "write    timerwheel" in ran.out
    assert wheel_findings(store) == []
    after = slots_of(store)
    assert np.count_nonzero(after["time"]) == len(expected)
    for interval in expected:
        number = interval % WHEEL_SLOTS
        assert after[number]["time"] == before[number]["time"] == interval
        assert after[number]["last"] == before[number]["last"]
        assert after[number]["messages"] == before[number]["messages"]
    assert units_of(store)[: len(units)] == units


def test_only_wrong_slots_change(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    before = (store / "timerwheel").read_bytes()
    intervals = waiting(store)
    # A broker sets the slots of units in the last two files of this log itself.
    old = [one for one, positions in intervals.items() if positions[-1] < 5200]
    assert old
    wrong = bytearray(before)
    size = TIMER_SLOT.size
    at = old[0] % WHEEL_SLOTS * size
    wrong[at : at + size] = bytes(size)
    (store / "timerwheel").write_bytes(wrong)
    set_flushed(store, 20800)
    (finding,) = wheel_findings(store)
    assert finding.startswith(f"{store / 'timerwheel'}: 1 slot of ")
    TimerWheel(store).write()
    after = (store / "timerwheel").read_bytes()
    assert after[:at] + after[at + size :] == before[:at] + before[at + size :]
    assert after[at : at + 8] == before[at : at + 8]
    assert wheel_findings(store) == []


@pytest.mark.parametrize("size", [1, WHEEL_BYTES - 32, WHEEL_BYTES + 32])
def test_a_wheel_of_another_size_stops_a_broker_and_is_written_anew(
    golden: Golden, tmp_path: Path, size: int
) -> None:
    store = copy_store(golden("five_life").path, tmp_path / "store")
    with (store / "timerwheel").open("r+b") as file:
        file.truncate(size)
    for quick in (True, False):
        findings = [json.loads(line) for line in run(
            "check", store, "--format", "jsonl", *(["--quick"] if quick else [])
        ).lines if "timer_wheel" in line]  # fmt: skip
        assert findings[0]["at_next_start"] == "does not start"
        assert findings[0]["command"] == f"reput repair {store}"
    assert run("check", store).code == DAMAGED
    assert run("repair", store).code == FOUND
    assert (store / "timerwheel").stat().st_size == WHEEL_BYTES
    assert wheel_findings(store) == []


def test_hostile_units_and_slots_are_no_error(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    for path in (store / "timerlog").iterdir():
        units = np.frombuffer(bytearray(path.read_bytes()), TIMER_UNIT_DTYPE)
        hostile = [-1, 0, -(2**63), 2**63 - 1, *range(0, 20800, 52)]
        units["previous"] = np.resize(np.array(hostile, np.int64), len(units))
        path.write_bytes(units.tobytes())
    assert {one.kind for one in TimerWheel(store).findings} <= {Kind.TIMER_LOG}
    path = min((store / "timerlog").iterdir())
    units = np.frombuffer(bytearray(path.read_bytes()), TIMER_UNIT_DTYPE)
    units["write_time"][:4] = [2**63 - 1, -(2**63), 0, 2**62]
    units["delay"][:4] = [2**31 - 1, -(2**31), -1, 5]
    path.write_bytes(units.tobytes())
    slots = slots_of(store).copy()
    slots["first"][:3], slots["last"][:3] = [-1, 2**63 - 1, -(2**63)], 2**63 - 1
    (store / "timerwheel").write_bytes(slots.tobytes())
    wheel_findings(store)
    (store / "config" / "timercheck").write_bytes(struct.pack(">qq", 2**63 - 1, -(2**63)))
    assert wheel_findings(store) == []


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("number", "harm", "text"),
    [
        (-1, _cut, "has 1,000 bytes, but the others have 5,200"),
        (0, Path.unlink, "from position 0 to 5200 are lost"),
        (1, Path.unlink, "from position 5200 to 10400 are lost"),
        (3, Path.unlink, "from position 15600 to 17524 are lost"),
        (2, _cut, "has 1,000 bytes, but the others have 5,200"),
    ],
)
def test_a_quick_check_sees_lost_and_cut_files_of_the_timer_log(
    golden: Golden, tmp_path: Path, number: int, harm: Callable[[Path], None], text: str
) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    path = sorted((store / "timerlog").iterdir())[number]
    harm(path)
    (finding,) = check_store(store, quick=True)
    is_cut = harm is _cut
    file = path if is_cut else store / "timerlog"
    assert (finding.kind, finding.file) == (Kind.TIMER_LOG, str(file))
    assert finding.detail.endswith(text)
    # `MappedFileQueue.load` refuses files of another size.
    assert (finding.at_next_start == "does not start") is is_cut
    assert finding in list(check_store(store))


@pytest.mark.parametrize("quick", [True, False])
def test_a_lost_timer_log_is_damage(golden: Golden, tmp_path: Path, quick: bool) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    shutil.rmtree(store / "timerlog")
    (finding,) = (one for one in check_store(store, quick=quick) if one.kind is Kind.TIMER_LOG)
    assert finding.detail.endswith("from position 0 to 17524 are lost")


@pytest.mark.parametrize("data", [None, b"", bytes(4096)])
def test_a_lost_progress_of_the_timer_is_damage(
    golden: Golden, tmp_path: Path, data: bytes | None
) -> None:
    """Without it, `TimerMessageStore.recover` begins with the first message of the timer's topic."""
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    check = store / "config" / "timercheck"
    check.unlink()
    if data is not None:
        check.write_bytes(data)
    for quick in (True, False):
        (finding,) = (one for one in check_store(store, quick=quick) if one.is_wrong)
        assert (finding.kind, finding.file) == (Kind.TIMER_LOG, str(check))
        assert "delivers each of its messages again" in finding.at_next_start


def test_a_quick_check_names_the_units_that_it_did_not_read(golden: Golden) -> None:
    ran = run("check", golden("five_timer").path, "--quick")
    units = len(units_of(golden("five_timer").path))
    assert f", {units} timer units, the slots of the timer wheel)" in ran.out


def write_at(store: Path, position: int, data: bytes) -> None:
    path = max(path for path in (store / "timerlog").iterdir() if int(path.name) <= position)
    with path.open("r+b") as file:
        file.seek(position - int(path.name))
        file.write(data)


def link(store: Path, position: int, previous: int) -> None:
    """Let a unit lead to another position."""
    write_at(store, position + 4, struct.pack(">q", previous))


def chain_findings(store: Path) -> list[Finding]:
    return [one for one in check_store(store) if one.kind is Kind.TIMER_LOG]


def test_units_of_a_broker_lead_to_the_previous_one_of_their_interval(store: Path) -> None:
    assert chain_findings(store) == []
    assert any(len(positions) > 1 for positions in waiting(store).values())


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("harm", "text", "cost"),
    [
        (lambda own, other, foreign: own, "that is not older", "follows such a chain without end"),
        (lambda own, other, foreign: own + 52, "that is not older", "without end"),
        (lambda own, other, foreign: other + 1, "at which no unit begins", "not delivered"),
        (lambda own, other, foreign: -2, "at which no unit begins", "not delivered"),
        (lambda own, other, foreign: -1, "not the newest older one", "not delivered"),
        (lambda own, other, foreign: foreign, "of another interval", "at the wrong time"),
    ],
)
def test_each_wrong_link_of_a_chain_is_one_finding(
    store: Path, harm: Callable[[int, int, int], int], text: str, cost: str
) -> None:
    intervals = waiting(store)
    other, own = next(
        (positions[0], positions[1])
        for positions in intervals.values()
        if len(positions) == 2 and not magic_of(store, positions[0]) & 4
    )
    foreign = next(
        position for position, due in units_of(store) if position < own and due // 1000 not in intervals
    )  # fmt: skip
    link(store, own, harm(own, other, foreign))
    (finding,) = chain_findings(store)
    assert finding.detail.startswith("1 unit with a previous ")
    assert text in finding.detail
    assert cost in finding.cost
    path = max(path for path in (store / "timerlog").iterdir() if int(path.name) <= own)
    assert (finding.file, finding.file_offset) == (str(path), own - int(path.name))
    assert finding.cost.startswith("1 message is not delivered")


def test_a_length_of_intervals_that_no_wheel_shows_is_that_of_the_chains(store: Path) -> None:
    (store / "timerwheel").unlink()
    assert chain_findings(store) == []


def test_a_slot_whose_oldest_unit_is_none_of_its_interval_is_repaired(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    before = slots_of(store)
    interval, positions = next(
        (interval, positions) for interval, positions in waiting(store).items()
        if positions[-1] < 5200
    )  # fmt: skip
    set_flushed(store, 20800)
    slots = before.copy()
    slots[interval % WHEEL_SLOTS]["first"] = positions[0] + 1
    (store / "timerwheel").write_bytes(slots.tobytes())
    (finding,) = wheel_findings(store)
    assert "1 slot without the position of a unit of their interval as the oldest one" in finding
    TimerWheel(store).write()
    assert wheel_findings(store) == []
    assert slots_of(store)[interval % WHEEL_SLOTS]["first"] == positions[0]


def test_units_after_a_lost_one_keep_their_slots(golden: Golden, tmp_path: Path) -> None:
    """Units have one size. So those after bytes that are no unit are read, and a repair changes no slot of theirs."""
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    extend(store)
    assert TimerWheel(store).wrong == {}
    intervals = waiting(store)
    position = units_of(store)[0][0]
    later = [one for one in intervals.values() if position < one[-1] < 5200]
    assert later
    write_at(store, position, bytes(52))
    wrong = TimerWheel(store).wrong
    of_lost = {one % WHEEL_SLOTS for one, positions in intervals.items() if position in positions}
    assert wrong.keys() <= of_lost
    finding = next(one for one in chain_findings(store) if "are lost" in one.detail)
    assert finding.detail.endswith(f"from position {position} to {position + 52} are lost")
    assert finding.file_offset == position


def test_a_quick_check_sees_a_lost_wheel(store: Path) -> None:
    assert list(check_store(store, quick=True)) == []
    (store / "timerwheel").unlink()
    set_flushed(store, 20800)
    expected = wheel_findings(store)
    assert len(expected) == 1
    assert wheel_findings(store, quick=True) == expected
    (store / "timerwheel").touch()
    assert wheel_findings(store, quick=True) == expected


def _zero_slot(store: Path, interval: int) -> None:
    """Clear the slot of an interval. A broker does not set it, because its units lie far before the log's end."""
    slots = slots_of(store).copy()
    slots[interval % WHEEL_SLOTS] = 0
    (store / "timerwheel").write_bytes(slots.tobytes())
    (store / "timerlog" / f"{20800:020}").write_bytes(bytes(5200))
    set_flushed(store, 26000)


def test_a_wrong_slot_of_recalls_alone_is_no_finding(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    interval = recalled(store)[0]
    _zero_slot(store, interval)
    assert list(TimerWheel(store).wrong) == [interval % WHEEL_SLOTS]
    assert wheel_findings(store) == []


def test_a_wrong_slot_with_as_many_recalls_counts_no_message(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    interval, position = next(
        (interval, positions[-1])
        for interval, positions in waiting(store).items()
        if len(positions) == 2 and interval not in recalled(store)
    )
    path = max(path for path in (store / "timerlog").iterdir() if int(path.name) <= position)
    data = bytearray(path.read_bytes())
    at = position - int(path.name) + 12
    data[at : at + 4] = struct.pack(">i", 5)
    path.write_bytes(data)
    _zero_slot(store, interval)
    (finding,) = wheel_findings(store)
    assert "1 slot of messages and recalls does not lead to the newest unit" in finding
