"""A scrub proves every file of a store, continues where it was killed, and remembers what it has found."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base import Kind
from reput.cli.main import DAMAGED, FOUND
from reput.engine.check.proofs import Proofs, ProofStore, path_of
from reput.engine.check.scrub_operation import Pace, scrub
from reput.errors import StoreLockedError, UsageError
from reput.io import FileReader, locked
from tests.cli.running import one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.query.test_following import CONFIG, writing_elsewhere

Golden = Callable[[str], GoldenStore]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the state of scrubs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def proofs_of(store: Path) -> Proofs:
    proofs = ProofStore(store).load()
    assert proofs is not None
    return proofs


def files_of(store: Path) -> set[str]:
    """Return the files of log, queues and IndexFiles."""
    folders = ("commitlog", "consumequeue", "batchconsumequeue", "index")
    return {
        str(path.relative_to(store))
        for folder in folders
        for path in (store / folder).rglob("*")
        if path.is_file() and path.name.isdecimal()
    }


def logs_of(store: Path) -> list[str]:
    return sorted(str(path) for path in (store / "commitlog").iterdir())


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["basic", "lmq", "five_batch"])
def test_a_pass_proves_every_file_and_writes_nothing_below_the_store(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    report = scrub(store, rate=None)
    assert (report.findings, report.is_valid, report.passes) == ((), True, 1)
    proofs = proofs_of(store)
    assert set(proofs.files) == files_of(store)
    assert report.files == len(proofs.files)
    assert all(one.proved_ms is not None for one in proofs.files.values())
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def killed(store: Path, steps: Path, kills: list[int]) -> bool:
    """Scrub in a child that is killed at a point. Return whether the pass was completed.

    The child appends to `steps` a line for each log file that it has read.
    """
    left = kills.pop(0) if kills else 1 << 30
    child = os.fork()
    if child == 0:
        code = 1
        try:
            points = 0

            def on_step(state: str, part: str) -> None:
                nonlocal points
                with steps.open("a") as file:
                    file.write(f"{state} {part}\n")
                points += 1
                if points == left:
                    os.kill(os.getpid(), signal.SIGKILL)

            code = 0 if scrub(store, rate=None, on_step=on_step).is_valid else 2
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def check_kills(store: Path, steps: Path, kills: list[int]) -> None:
    count = len(kills)
    passes = 0
    while kills:
        passes += killed(store, steps, kills)
    while not killed(store, steps, kills):
        pass
    passes += 1
    lines = [line.split(" ", 1) for line in steps.read_text().splitlines()]
    kept = [part for state, part in lines if state == "kept"]
    # Each pass has proved every log file once, in log order, however often it was killed.
    assert kept == logs_of(store) * passes
    # A kill costs at most the step in which it happens.
    read = [part for state, part in lines if state == "read"]
    assert len(read) - len(kept) <= count
    proofs = proofs_of(store)
    assert proofs.passes == passes
    assert set(proofs.files) == files_of(store)
    assert all(one.proved_ms is not None for one in proofs.files.values())


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["lmq", "basic"])
def test_a_killed_scrub_continues_where_it_stopped_and_misses_no_file(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    check_kills(store, tmp_path / "steps", [1, 2, 3, 1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lmq", "basic"])
def test_a_scrub_that_is_killed_a_hundred_times(golden: Golden, tmp_path: Path, name: str) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    check_kills(store, tmp_path / "steps", [1 + number * 7 % 5 for number in range(100)])


def test_damage_is_found_in_its_file_and_remembered_until_the_file_is_replaced(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    path = Path(logs_of(store)[3])
    sound = path.read_bytes()
    path.write_bytes(bytes(9) + sound[9:])
    ran = reput("check", "--scrub", "--passes", "1", store)
    assert ran.code == DAMAGED
    assert ran.lines[-1].startswith(f"{store}: pass 1: ")
    proofs = proofs_of(store)
    (found,) = proofs.damage()
    assert found.file == str(path)
    assert str(found) in ran.out
    other = path.with_name("other")
    other.write_bytes(sound)
    other.rename(path)
    assert list(proofs_of(store).damage()) == []
    ran = reput("check", "--scrub", "--passes", "1", store, "--format", "jsonl")
    assert ran.code == FOUND
    end = json.loads(ran.lines[-1])
    assert (end["valid"], end["pass"]) == (True, 2)


def test_the_unreadable_bytes_of_overlapping_findings_count_once(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    path = Path(logs_of(store)[2])
    with path.open("r+b") as file:
        file.seek(0)
        file.write(bytes(3000))
    report = scrub(store, rate=None)
    lost = [one for one in report.findings if one.kind == "unreadable_record"]
    assert proofs_of(store).unreadable_bytes == sum(one.length for one in lost) >= 3000


def test_a_file_that_takes_another_s_name_is_not_proved(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("lmq").path, tmp_path / "store")
    scrub(store, rate=None)
    first = proofs_of(store)
    path = Path(logs_of(store)[1])
    path.rename(tmp_path / "old")
    path.write_bytes((tmp_path / "old").read_bytes())
    steps: list[str] = []
    scrub(store, rate=None, on_step=lambda state, part: steps.append(part))
    assert steps[::2] == logs_of(store)
    second = proofs_of(store)
    assert set(second.files) == set(first.files)
    name = os.path.relpath(path, store)
    assert second.files[name].inode == path.stat().st_ino != first.files[name].inode
    assert path_of(store, name) == str(path)


def test_a_damaged_state_begins_anew_and_one_scrub_at_a_time_reads_a_store(
    golden: Golden, tmp_path: Path, cache: Path
) -> None:
    store = copy_store(golden("lmq").path, tmp_path / "store")
    scrub(store, rate=None)
    (state,) = (cache / "reput" / "scrubs").glob("*.json")
    state.write_bytes(state.read_bytes()[:-5])
    assert ProofStore(store).load() is None
    assert scrub(store, rate=None).passes == 1
    with (
        locked(ProofStore(store).lock_path(), "held"),
        pytest.raises(StoreLockedError, match="another process scrubs this store"),
    ):
        scrub(store, rate=None)


def test_reads_wait_until_their_bytes_may_be_read() -> None:
    now, slept = 100.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(1000, sleep, lambda: now)
    for _ in range(5):
        pace(500)
    assert slept == [0.5] * 4
    # A pause of any length allows no burst of more than a second's bytes.
    now += 3600
    slept.clear()
    for _ in range(5):
        pace(500)
    assert sum(slept) == 1.0


def test_each_read_of_a_file_is_metered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    counts: list[int] = []
    with FileReader.metered(counts.append), FileReader(str(path)) as reader:
        reader.read(10, 20)
    with FileReader(str(path)) as reader:
        reader.read(10, 30)
    assert counts == [20]


def test_options_of_a_scrub_are_for_a_scrub_only(golden: Golden) -> None:
    store = golden("lmq").path
    assert "--rate and --passes need --scrub" in one_line(reput("check", store, "--rate", "1MB/s"))
    assert "combined with --quick" in one_line(reput("check", store, "--scrub", "--quick"))
    with pytest.raises(UsageError, match="only stores on this machine"):
        scrub("s3://bucket/store")


@pytest.mark.parametrize("expires", [False, True])
def test_a_scrub_of_a_store_under_writes_has_no_false_finding(
    tmp_path: Path, expires: bool
) -> None:
    path = tmp_path / "store"
    with writing_elsewhere(path) if expires else writing_elsewhere(path, {}) as writer:
        for number in range(6):
            writer.proceed(60)
            report = scrub(path, rate=None, config=CONFIG)
            assert [one.kind for one in report.findings] == [Kind.STORE_IN_USE]
            proofs = proofs_of(path)
            assert proofs.passes == number + 1
            assert list(proofs.damage()) == []
    assert scrub(path, rate=None, config=CONFIG).findings == ()
    proofs = proofs_of(path)
    assert set(proofs.files) == files_of(path)
    assert all(one.proved_ms is not None for one in proofs.files.values())


def test_a_store_whose_log_is_elsewhere_keeps_its_proofs(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    log = tmp_path / "log"
    (store / "commitlog").rename(log)
    path = sorted(log.iterdir())[1]
    path.write_bytes(bytes(9) + path.read_bytes()[9:])
    place = f"{store},{log}"
    assert reput("check", "--scrub", "--passes", "1", place).code == DAMAGED
    assert (
        reput("check", "--scrub", "--passes", "1", place).lines[-1].startswith(f"{place}: pass 2")
    )
    report = json.loads(reput("fleet", place, "--format", "jsonl").lines[0])
    assert report["metrics"]["unreadable_bytes"] > 0
    assert report["metrics"]["unproved_bytes"] == 0
    assert len(report["files"]) > len(list(log.iterdir()))


def test_a_pattern_is_scrubbed_store_by_store_and_one_that_cannot_be_read_ends_nothing(
    golden: Golden, tmp_path: Path
) -> None:
    for name in ("a", "c"):
        copy_store(golden("lmq").path, tmp_path / "stores" / name)
    (tmp_path / "stores" / "b").mkdir()
    ran = reput("check", "--scrub", "--passes", "1", tmp_path / "stores" / "*")
    assert [line.split(": ")[0] for line in ran.lines] == [
        str(tmp_path / "stores" / name) for name in ("a", "c")
    ]
    missing = tmp_path / "missing"
    ran = reput("check", "--scrub", "--passes", "1", tmp_path / "stores" / "a", missing)
    assert (ran.code, len(ran.lines)) == (DAMAGED, 1)
    assert f"{missing}: not read" in ran.err
