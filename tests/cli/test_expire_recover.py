"""`reput expire` and `reput recover`: their effect on a store, output, and exit codes."""

import json
from pathlib import Path

import pytest

import reput as api
from reput.cli.main import DAMAGED, FAILED, WRONG_USE
from tests.cli.running import one_line, reput
from tests.recovery.checking import check_store, check_what_is_left

CONFIG = api.StoreConfig(1 << 14, 20, 64, 120)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with api.open_store(path, mode="rw", config=CONFIG) as opened:
        opened.put_many(api.Message("T", b"x" * 300, [f"k{n}"], queue_id=n % 3) for n in range(300))
    return path


def files(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file()
    }


def test_expire(store: Path) -> None:
    before = files(store)
    ran = reput("expire", store, "--before", "now", "--dry-run", "--format", "json")
    dry = json.loads(ran.out)
    assert (ran.code, ran.err, dry["dry_run"]) == (0, "", True)
    assert files(store) == before
    logs = sorted(str(path) for path in (store / "commitlog").iterdir())
    assert dry["log_files"] == logs[:-1]
    assert dry["log_begin"] == int(Path(logs[-1]).name)
    ran = reput("expire", store, "--before", "now")
    assert ran.code == 0
    assert ran.lines[0].startswith(f"Deleted from {store} messages stored before 2")
    assert ran.lines[1:] == [
        f"  CommitLog     {len(logs) - 1} files; the log begins at {dry['log_begin']:,}",
        f"  ConsumeQueue  {len(dry['queue_files'])} files",
        f"  IndexFile     {len(dry['index_files'])} files",
        ran.lines[4],
    ]
    gone = {*dry["log_files"], *dry["queue_files"], *dry["index_files"]}
    assert {name for name in before if str(store / name) in gone}.isdisjoint(files(store))
    check_what_is_left(store, CONFIG)
    again = json.loads(reput("expire", store, "--before", "now", "--format", "json").out)
    assert (again["log_files"], again["freed_bytes"]) == ([], 0)


def test_expire_what_is_too_young(store: Path) -> None:
    ran = reput("expire", store, "--before", "2 days ago")
    assert ran.code == 0
    assert "CommitLog     no file; the log begins at 0" in ran.out
    check_store(store, CONFIG)


def test_expire_that_is_not_understood(store: Path, tmp_path: Path) -> None:
    ran = reput("expire", store)
    assert ran.code == WRONG_USE
    assert "--before" in one_line(ran)
    ran = reput("expire", store, "--before", "yesterdayish")
    assert ran.code == WRONG_USE
    assert "is not a time" in one_line(ran)
    for command in (("expire", "--before", "now"), ("recover",)):
        ran = reput(command[0], tmp_path / "none", *command[1:])
        assert ran.code == WRONG_USE
        assert "not a RocketMQ store" in one_line(ran)
        assert not (tmp_path / "none").exists()


def test_a_store_with_an_owner(store: Path) -> None:
    with api.open_store(store, mode="rw") as opened:
        opened.put(api.Message("T", b"one more"))
        assert opened.wait_dispatched()
        for command in (("expire", "--before", "now"), ("recover",)):
            ran = reput(command[0], store, *command[1:])
            assert ran.code == FAILED
            assert "another process, such as a broker, owns this store" in one_line(ran)
        assert reput("expire", store, "--before", "now", "--dry-run").code == 0
    check_store(store, CONFIG)


def test_recover_a_store_that_is_in_order(store: Path) -> None:
    ran = reput("recover", store)
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith(f"{store} was shut down cleanly; recovered in ")
    assert "  cut off       0 bytes, 0 files" in ran.lines
    assert "  ConsumeQueue  complete" in ran.lines
    check_store(store, CONFIG)


def test_recover_states_what_it_did_not_read(store: Path) -> None:
    first = min((store / "commitlog").iterdir())
    with first.open("r+b") as file:
        file.seek(4)
        file.write(b"damage")
    ran = reput("recover", store)
    assert ran.code == 0
    read_from = ran.lines[1].split()[-2]
    assert read_from != "0"
    command = f"reput check {store}"
    assert f"  not read      {read_from} bytes; to find damage there: {command}" in ran.lines
    assert reput("check", store).code == DAMAGED


def test_recover_a_store_without_indexes(store: Path) -> None:
    (store / "abort").touch()
    for path in (store / "index").iterdir():
        path.unlink()
    for path in (store / "consumequeue" / "T" / "1").iterdir():
        path.unlink()
    ran = reput("recover", store, "--hash-slots", 64, "--index-items", 120, "--format", "json")
    report = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert (report["is_clean"], report["truncated_bytes"], report["deleted_files"]) == (
        False,
        0,
        [],
    )
    assert 0 <= report["queues_from"] < 1000
    assert report["index_from"] == 0
    check_store(store, CONFIG)
    assert not (store / "abort").exists()


def test_recover_a_log_that_is_cut_short(store: Path) -> None:
    (store / "abort").touch()
    with api.open_store(store) as opened:
        cut = opened.get_by_queue("T", 1, 90).physical_offset
    path = store / "commitlog" / f"{cut - cut % (1 << 14):020d}"
    with path.open("r+b") as file:
        file.seek(cut % (1 << 14) + 100)
        file.write(b"damage")
    assert "reput repair with --salvage keeps these messages" in reput("recover", store).err
    ran = reput("recover", store, "--as-broker")
    assert ran.code == DAMAGED
    assert f"  CommitLog     0 to {cut:,}, read from 0 on" in ran.lines
    assert "not read" not in ran.out
    assert any(line.startswith("  copy") for line in ran.lines)
    assert check_store(store, CONFIG).end_offset == cut
    assert reput("recover", store).code == 0


def test_recover_deletes_a_preallocated_file(store: Path) -> None:
    (store / "abort").touch()
    last = max((store / "commitlog").iterdir())
    next_file = store / "commitlog" / f"{int(last.name) + 2 * (1 << 14):020d}"
    for path in (store / "commitlog" / f"{int(last.name) + (1 << 14):020d}", next_file):
        path.write_bytes(bytes(1 << 14))
    ran = reput("recover", store)
    assert ran.code == 0
    assert "  cut off       0 bytes, 0 files; 2 preallocated deleted" in ran.lines
    assert not next_file.exists()
    check_store(store, CONFIG)


def test_recover_names_the_messages_of_a_lost_file(store: Path) -> None:
    with api.open_store(store) as opened:
        end = opened.broker_end()
    *_, before, last = sorted((store / "commitlog").iterdir())
    last.unlink()
    ran = reput("recover", store)
    assert ran.code == DAMAGED
    assert "  cut off       0 bytes, 0 files" in ran.lines
    known = f"ConsumeQueues have entries for messages up to {end:,}"
    assert f"  missing       {known}; the CommitLog ends before them" in ran.lines
    assert int(before.name) < check_store(store, CONFIG).end_offset < int(last.name)
    assert reput("recover", store).code == 0


@pytest.mark.usefixtures("ordinary_user")
def test_a_store_that_may_not_be_written(store: Path) -> None:
    (store / "commitlog").chmod(0o500)
    try:
        ran = reput("expire", store, "--before", "now")
        assert ran.code == FAILED
        assert "cannot be deleted" in one_line(ran)
    finally:
        (store / "commitlog").chmod(0o700)
