"""Expiry: whole files from the front, and every state in which it can be interrupted is recovered."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import reput
from reput.core.log.files import CommitLogFile
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.query.answers import PullStatus
from reput.engine.writer.expiry import carry_out, newest_timestamp, plan_by_time
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from reput.errors import MessageNotFoundError
from reput.io.disk import Disk
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.golden.sparse import copy_store
from tests.golden.stores import SHIPPED, GoldenStore
from tests.rebuild.rebuilding import rebuild
from tests.recovery.checking import check_what_is_left, queue_entries
from tests.slow import slow_from
from tests.writer.aging import FILE_BYTES, QUEUES, SMALL, Made, log_begin
from tests.writer.crashing import KilledError, dying

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize("age_s", [-1000, 0, 40, 150, 151, 152, 280, 399, 400, 10_000])
def test_files_whose_last_message_is_older_go(tmp_path: Path, age_s: int) -> None:
    made = Made(tmp_path / "store")
    made.put(400)
    made.dispatch()
    before = made.puts[0].store_timestamp + age_s * 1000
    dry = plan_by_time(made.path, before)
    # The checkpoint is replaced meanwhile, so its temporary file may exist.
    names = {path for path in made.path.rglob("*") if path.is_file() and path.suffix != ".tmp"}
    begin = made.log_begin_before(before)
    with reput.open_store(made.path) as reader:
        assert reader.min_queue_offset("T", 1) == 0
        report = made.writer.expire(before)
        assert dry.log_begin == report.log_begin == log_begin(made.path) == begin
        assert {Path(name) for name in (*report.log_files, *report.queue_files)} <= names
        gone = {*report.log_files, *report.queue_files, *report.index_files}
        assert {str(path) for path in names} - gone <= {str(path) for path in made.path.rglob("*")}
        assert not any(os.path.exists(path) for path in gone)
        assert (report.freed_bytes > 0) == bool(gone)
        for queue_id in range(QUEUES):
            puts = made.puts[queue_id::QUEUES]
            left = [put.queue_offset for put in puts if put.physical_offset >= begin]
            least = min(left, default=len(puts))
            assert reader.min_queue_offset("T", queue_id) == least
            early = reader.pull("T", queue_id, least - 1)
            assert (early.status, early.next_begin_offset) == (
                PullStatus.OFFSET_TOO_SMALL,
                least,
            )
            first = reader.pull("T", queue_id, least, 1).messages
            assert [message.queue_offset for message in first] == left[:1]
        for number, put in enumerate(made.puts[::7]):
            found = reader.query("T", f"k{7 * number}").messages
            assert bool(found) == (put.physical_offset >= begin)
    again = made.writer.expire(before)
    assert (again.log_files, again.queue_files, again.index_files) == ((), (), ())
    made.put(100)
    made.close()
    check_what_is_left(made.path, SMALL)
    reopened = StoreWriter(made.path, SMALL)
    assert reopened.recovery.queues_from == reopened.recovery.log_end
    assert reopened.put(Message("T", queue_id=1)).queue_offset == 167
    reopened.close()


def test_a_plan_begins_again_when_a_file_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path / "store")
    made.put(200)
    made.close()
    planned = plan_by_time(made.path, 1 << 60).log_files
    assert len(planned) > 1
    before = newest_timestamp

    def after_deletion(log: CommitLogReader, file: CommitLogFile) -> int:
        if file.path == planned[0]:
            Path(file.path).unlink()
        return before(log, file)

    monkeypatch.setattr("reput.engine.writer.expiry.newest_timestamp", after_deletion)
    assert plan_by_time(made.path, 1 << 60).log_files == planned[1:]


def test_only_what_points_into_the_log_is_kept(tmp_path: Path) -> None:
    made = Made(tmp_path / "store")
    made.put(600)
    report = made.writer.expire(made.clock.now_ms)
    begin = report.log_begin
    assert begin == (made.puts[-1].physical_offset // FILE_BYTES) * FILE_BYTES
    for folder in (made.path / "consumequeue" / "T").iterdir():
        for path in sorted(folder.iterdir())[:-1]:
            first = int(path.name) // 20
            assert queue_entries(folder, SMALL)[first + SMALL.queue_entries - 1][0] >= begin
    index = sorted((made.path / "index").iterdir())
    assert len(index) == 1 + sum(path.name > index[0].name for path in index)
    assert len(report.index_files) >= 6
    made.close()


def test_a_queue_without_messages_any_more_goes_on_counting(tmp_path: Path) -> None:
    made = Made(tmp_path / "store")
    old = [made.writer.put(Message("old", b"1")) for _ in range(50)]
    made.put(200)
    made.writer.expire(made.clock.now_ms)
    with reput.open_store(made.path) as reader:
        assert (reader.min_queue_offset("old", 0), reader.max_queue_offset("old", 0)) == (50, 50)
        assert reader.pull("old", 0, 7).next_begin_offset == 50
        assert reader.pull("old", 0, 50).status == PullStatus.NO_NEW_MESSAGE
        with pytest.raises(MessageNotFoundError, match="any more"):
            reader.get(old[0].physical_offset)
        with pytest.raises(MessageNotFoundError):
            reader.get_by_queue("old", 0, 3)
        with pytest.raises(MessageNotFoundError):
            reader.get_by_queue("old", 0, 45)
    made.close()
    check_what_is_left(made.path, SMALL)
    report = rebuild(made.path, tmp_path / "rebuilt", SMALL)
    assert report.damage == []
    for path in (made.path / "commitlog").iterdir():
        target = tmp_path / "rebuilt" / "commitlog" / path.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    check_what_is_left(tmp_path / "rebuilt", SMALL)
    with reput.open_store(made.path, mode="rw") as store:
        assert store.put(Message("old")).queue_offset == 50


def interrupted(tmp_path: Path, seed: int) -> tuple[Path, int]:
    """A store that was not shut down cleanly, and a time before which half of it was put."""
    made = Made(tmp_path / f"made{seed}")
    made.put(330)
    time_ms = made.puts[200].store_timestamp
    made.close()
    (made.path / "abort").touch()
    if seed % 2:
        (made.path / "reput.known").unlink()
    return made.path, time_ms


@pytest.mark.parametrize("every", slow_from(1, [6, 1]))
def test_a_death_at_any_step(tmp_path: Path, every: int) -> None:
    source, time_ms = interrupted(tmp_path, 1)
    with dying(None) as counted:
        plan = plan_by_time(copy_store(source, tmp_path / "all"), time_ms)
        carry_out(plan, Disk())
    assert counted.made > 10
    for steps in range(0, counted.made + 1, every):
        store = copy_store(source, tmp_path / f"{steps}")
        with dying(steps):
            carry_out(plan_by_time(store, time_ms), Disk())
        before = log_begin(store)
        writer = StoreWriter(store, SMALL)
        assert writer.recovery.log_begin == before
        assert writer.recovery.queues_from == writer.recovery.log_end, "nothing was missing"
        check_what_is_left(store, SMALL)
        report = writer.expire(time_ms)
        assert report.log_begin == plan.log_begin
        assert writer.put(Message("T", queue_id=0)).queue_offset == 110
        writer.close()
        check_what_is_left(store, SMALL)
        left = {str(path.relative_to(store)) for path in store.glob("*/**/*") if path.is_file()}
        assert left == {
            str(path.relative_to(tmp_path / "all"))
            for path in (tmp_path / "all").glob("*/**/*")
            if path.is_file()
        }


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_any_step(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    source, time_ms = interrupted(tmp_path, seed)
    disk = ForgetfulDisk(source)
    steps = random.randrange(80)

    def die(_: str) -> None:
        if sum(disk.points.values()) > steps:
            raise KilledError

    disk.on_point = die
    with suppress(KilledError):
        carry_out(plan_by_time(source, time_ms), disk)
    disk.cut_power(random, tmp_path / "after")
    writer = StoreWriter(tmp_path / "after", SMALL)
    assert writer.put(Message("T", queue_id=0)).queue_offset == 110
    writer.close()
    check_what_is_left(tmp_path / "after", SMALL)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_age_of_a_file_is_its_last_message_s(golden: Golden, name: str) -> None:
    store = golden(name)
    newest: dict[int, int] = {}
    size = store.commit_log_file_bytes
    for row in store.messages:
        newest[row.physical_offset // size] = row.store_timestamp
    log = CommitLogReader(StoreLog(store.path))
    for file in log.files:
        expected = newest.get(file.start // size)
        if expected is None:  # a file without records
            expected = os.stat(file.path).st_mtime_ns // 1_000_000
        assert newest_timestamp(log, file) == expected
    log.close()


def test_a_damaged_file_is_as_young_as_the_messages_after_the_damage(tmp_path: Path) -> None:
    made = Made(tmp_path / "store")
    made.put(400)
    made.dispatch()
    made.writer.close()
    inside = [put for put in made.puts if put.physical_offset < FILE_BYTES]
    log = CommitLogReader(StoreLog(made.path))
    (file, *_) = log.files
    for number in (0, len(inside) // 2, len(inside) - 2):
        with Path(file.path).open("r+b") as data:
            data.seek(inside[number].physical_offset + 4)
            data.write(b"\0")
        assert newest_timestamp(log, file) == inside[-1].store_timestamp
    log.close()
    plan = plan_by_time(made.path, inside[-1].store_timestamp)
    assert plan.log_files == ()
    assert len(plan_by_time(made.path, inside[-1].store_timestamp + 1).log_files) == 1
