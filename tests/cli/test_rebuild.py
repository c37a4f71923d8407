"""`reput rebuild`, also as a process, and its output."""

import fcntl
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from reput.base.config import StoreConfig
from reput.base.findings import Finding, Kind
from reput.cli import progress as progress_bars
from reput.cli.main import DAMAGED, FAILED, FOUND, WRONG_USE
from reput.cli.progress import PhaseBars
from reput.engine.rebuild.report import RebuildReport, damage_lines
from tests.cli.running import one_line, reput, reput_process
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
SIZES = ("--hash-slots", 1000, "--index-items", 4000, "--queue-entries", 1000)


def contents(folder: Path) -> list[tuple[str, bytes]]:
    """Return the name and the bytes of every file. IndexFiles have no names, because theirs are creation times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = folder.name != "index"
    return [(str(p.relative_to(folder)) if named else "", p.read_bytes()) for p in files]


@pytest.mark.every_case
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--runner", "processes"),
        pytest.param(("--master", "local[2]"), marks=pytest.mark.slow),
    ],
    ids=["default", "processes", "spark"],
)
def test_a_lost_index_and_lost_queues_come_back_with_the_brokers_bytes(
    golden: Golden, tmp_path: Path, options: tuple[str, ...]
) -> None:
    broker = golden("orders").path
    store = copy_store(broker, tmp_path / "store")
    for path in sorted((store / "index").iterdir()):
        path.unlink()
    config = tmp_path / "broker.conf"
    config.write_text(
        "maxHashSlotNum = 1000\nmaxIndexNum = 4000\nmappedFileSizeConsumeQueue = 20000\n"
    )
    ran = reput_process("rebuild", store, "--broker-config", config, *options)
    assert ran.code == FOUND
    assert ran.err == ""
    for folder in ("index", "consumequeue"):
        assert contents(store / folder) == contents(broker / folder)
    assert ran.lines[0].startswith(f"Rebuilt {store} in ")
    assert "0 to 6,549,067, 6.2 MiB at " in ran.out
    assert "19,622 (" in ran.out
    assert "58,866 keys" in ran.out
    assert "19 queues, 35 files, 19,622 entries" in ran.out
    assert "15 files of 1,000 slots and 4,000 items" in ran.out
    assert ran.lines[-1].split() == ["damage", "none"]


def test_every_option_and_a_damaged_log(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    log = store / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[53821 + 4] ^= 1  # the magic of one message
    log.write_bytes(content)
    before = contents(store)
    output = tmp_path / "new"
    ran = reput(
        "rebuild", store, "--only", "index", "--output", output, *SIZES, "--split-size", "300KiB",
        "--runner", "processes", "--salvage", "--format", "json",
    )  # fmt: skip
    assert ran.code == DAMAGED
    damage = one_line(ran)
    assert damage.startswith(f"reput: {log}: offset 53821: 277 bytes lost: ")
    report = json.loads(ran.out)
    assert (report["messages"], report["index_files"]) == (19621, 15)
    assert report["splits"] > 20
    assert [damage["physical_offset"] for damage in report["damage"]] == [53821]
    assert sorted(path.name for path in output.iterdir()) == ["checkpoint", "index"]
    assert contents(store) == before, "the store itself stays as it was"


def test_a_store_that_a_broker_owns_is_left_alone(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    before = contents(store)
    with (store / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        ran = reput("rebuild", store, *SIZES)
    assert ran.code == FAILED
    assert "stop it, or choose another --output" in one_line(ran)
    (store / "lock").unlink()
    assert contents(store) == before


def test_a_master_that_is_none_is_one_line(golden: Golden) -> None:
    ran = reput("rebuild", golden("orders").path, *SIZES, "--master", "nonsense")
    assert ran.code == WRONG_USE
    assert "not nonsense" in one_line(ran)


def report(**changes: object) -> RebuildReport:
    made = RebuildReport(
        "/s", "/s", log_end=1000, log_bytes=1000, messages=7, keys=9, total_s=2.0, scan_s=1.0,
        config=StoreConfig(),
    )  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_summary_tells_what_is_odd() -> None:
    kind, file = Kind.UNREADABLE_RECORD, "/s/commitlog/\x1b[31m"
    damage = [Finding(kind, file, "bad", 10 * n, 10 * n, length=5) for n in range(60)]
    text = str(
        report(
            damage=damage,
            notes=["odd\x1b[0m"],
            torn_tail=True,
            queue_files=1,
            queue_entries_dropped=3,
        )
    )
    assert "with a torn end" in text
    assert "3 repeated ones left out" in text
    assert "  note          odd\\x1b[0m" in text
    assert "60 places, 300 bytes of the CommitLog could not be read" in text
    assert "7 (4/s), 9 keys" in text
    lines = list(damage_lines(report(damage=damage).damage))
    assert len(lines) == 51
    assert lines[-1] == "… and 10 more damaged places"
    assert "\x1b" not in "".join(lines)


def test_the_summary_of_nothing() -> None:
    lines = str(RebuildReport("/s", "/o")).splitlines()
    assert lines[0] == "Rebuilt /o in 0.0 s (read 0.0 s, write 0.0 s, commit 0.0 s)"
    assert [line.split()[0] for line in lines[1:]] == ["CommitLog", "messages", "written", "damage"]


def test_progress_has_a_bar_a_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr(progress_bars, "console", lambda stderr: terminal)
    monkeypatch.setattr(progress_bars, "stderr_is_terminal", lambda: True)
    with PhaseBars() as progress:
        progress("scan", 0, 4 << 20)
        progress("scan", 2 << 20, 4 << 20)
        progress("scan", 4 << 20, 4 << 20)
        progress("write", 1, 3)
    shown = written.getvalue()
    assert "starting" in shown
    assert "reading the CommitLog" in shown
    assert "100%" in shown
    assert "/s" in shown
    assert "writing queues and indexes" in shown


def test_no_progress_where_nobody_watches(capfd: pytest.CaptureFixture[str]) -> None:
    with PhaseBars() as progress:
        progress("scan", 1, 2)
    assert capfd.readouterr() == ("", "")
