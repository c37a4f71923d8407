"""Expiry: whole files from the front, and every state in which it can be interrupted is recovered."""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reput
from reput.config import StoreConfig
from reput.errors import MessageNotFoundError, StoreAccessError, UsageError
from reput.files.disk import Disk
from reput.files.mapped_writer import MappedWriter
from reput.query.pull import PullStatus
from reput.store.commit_log import CommitLog
from reput.store.expiry import carry_out, plan_by_time
from reput.store.file_age import newest_timestamp
from reput.store.put.message import Message, PutResult
from reput.store.retention import RetentionLimits
from reput.store.store_writer import StoreWriter, WriterSettings
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.golden.sparse import copy_store
from tests.golden.stores import SHIPPED, GoldenStore
from tests.store.checking import check_what_is_left, queue_entries
from tests.store.crashing import KilledError, dying
from tests.store.rebuilding import rebuild

Golden = Callable[[str], GoldenStore]
FILE_BYTES = 1 << 14
SMALL = StoreConfig(
    commit_log_file_bytes=FILE_BYTES, queue_entries=20, hash_slots=64, index_items=120
)
QUEUES = 3


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Made:
    """A store with messages that were put a second apart."""

    def __init__(
        self, path: Path, settings: WriterSettings | None = None, disk: Disk | None = None
    ) -> None:
        self.path, self.clock = path, Clock()
        self.writer = StoreWriter(path, SMALL, settings, disk, self.clock)
        self.puts: list[PutResult] = []

    def put(self, count: int) -> None:
        for _ in range(count):
            self.clock.now_ms += 1000
            number = len(self.puts)
            message = Message("T", b"x" * 300, [f"k{number}"], queue_id=number % QUEUES)
            self.puts.append(self.writer.put(message))

    def dispatch(self) -> None:
        self.writer.dispatcher.wait(self.writer.end_offset, 30)

    def close(self) -> "Made":
        self.writer.close()
        return self

    def log_begin_before(self, timestamp: int) -> int:
        """Where the log begins without the files whose last message was put before that time."""
        last: dict[int, int] = {}
        for put in self.puts:
            last[put.physical_offset // FILE_BYTES] = put.store_timestamp
        kept = [number for number, newest in last.items() if newest >= timestamp]
        return min(kept, default=max(last)) * FILE_BYTES


def log_begin(store: Path) -> int:
    return min(int(path.name) for path in (store / "commitlog").iterdir())


@pytest.mark.parametrize("age_s", [-1000, 0, 40, 150, 151, 152, 280, 399, 400, 10_000])
def test_files_whose_last_message_is_older_go(tmp_path: Path, age_s: int) -> None:
    made = Made(tmp_path / "store")
    made.put(400)
    made.dispatch()
    before = made.puts[0].store_timestamp + age_s * 1000
    dry = plan_by_time(made.path, before)
    names = {path for path in made.path.rglob("*") if path.is_file()}
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
    """A store that was not closed in order, and a time before which half of it was put."""
    made = Made(tmp_path / f"made{seed}")
    made.put(330)
    time_ms = made.puts[200].store_timestamp
    made.close()
    (made.path / "abort").touch()
    if seed % 2:
        (made.path / "reput.known").unlink()
    return made.path, time_ms


def test_a_death_at_any_step(tmp_path: Path) -> None:
    source, time_ms = interrupted(tmp_path, 1)
    with dying(None) as counted:
        plan = plan_by_time(copy_store(source, tmp_path / "all"), time_ms)
        carry_out(plan, Disk())
    assert counted.made > 10
    for steps in range(counted.made + 1):
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


def limited(**limits: Any) -> WriterSettings:
    return WriterSettings(clean_interval_s=3600, **limits)


def test_files_are_kept_for_so_many_hours(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", limited(file_reserved_hours=0.05))  # three minutes
    made.put(400)
    made.dispatch()
    report = made.writer.retention.clean()
    assert report is not None
    assert log_begin(made.path) == made.log_begin_before(made.clock.now_ms - 180_000) > 0
    assert made.writer.retention.clean() is None
    made.clock.now_ms += 60_000
    assert made.writer.retention.clean() is not None
    made.close()
    check_what_is_left(made.path, SMALL)


def test_no_more_files_than_so_many_bytes(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", limited(max_commit_log_bytes=5 * FILE_BYTES))
    for _ in range(10):
        made.put(40)
        made.dispatch()
        made.writer.retention.clean()
        assert len(list((made.path / "commitlog").iterdir())) <= 5
    assert len(list((made.path / "commitlog").iterdir())) == 5
    made.close()
    check_what_is_left(made.path, SMALL)


class FilledDisk(Disk):
    """A file system of a hundred CommitLog files, `others` of them not ours."""

    def __init__(self, others: int) -> None:
        self.others = others

    def usage(self, path: Path) -> tuple[int, int]:
        files = self.others + len(list((path / "commitlog").iterdir()))
        return files * FILE_BYTES, (100 - files) * FILE_BYTES

    def map(self, path: Path, size: int) -> MappedWriter:
        if path.parent.name == "commitlog" and not path.exists():
            used, _ = self.usage(path.parent.parent)
            if used >= 100 * FILE_BYTES:
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise StoreAccessError(f"{path}: cannot be allocated: {full.strerror}") from full
        return super().map(path, size)


def test_a_disk_is_not_used_to_more_than_so_much(tmp_path: Path) -> None:
    disk = FilledDisk(others=60)
    made = Made(tmp_path / "store", limited(disk_max_used_space_ratio=70), disk)
    made.put(600)
    made.dispatch()
    assert len(list((made.path / "commitlog").iterdir())) > 10
    made.writer.retention.clean()
    assert len(list((made.path / "commitlog").iterdir())) == 10
    disk.others = 95
    made.writer.retention.clean()
    assert len(list((made.path / "commitlog").iterdir())) == 1  # never the last
    made.put(300)  # the disk is full after four more
    assert len(list((made.path / "commitlog").iterdir())) <= 5
    assert made.puts[-1].physical_offset // FILE_BYTES > 10
    made.close()
    check_what_is_left(made.path, SMALL)


def test_a_full_disk_without_a_limit_of_space_is_told(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", limited(file_reserved_hours=0), FilledDisk(others=97))
    with pytest.raises(StoreAccessError, match="No space left"):
        made.put(600)
    made.dispatch()
    assert made.writer.retention.clean() is not None
    made.put(60)
    made.close()
    check_what_is_left(made.path, SMALL)


def test_the_oldest_goes_by_itself(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_commit_log_bytes": 3 * FILE_BYTES, "clean_interval_s": 0.01}
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL, **settings) as store:
        first = store.put(Message("T", b"1"))
        assert store.get(first.physical_offset).body == b"1"
        while log_begin(tmp_path / "store") == 0:
            store.put_many([Message("T", b"x" * 500)] * 20)
            store.wait_dispatched(timeout_s=20)
        until = time.monotonic() + 20
        while _is_there(store, first) and time.monotonic() < until:
            pass  # readers let go of a file once all that goes with it is gone
        with pytest.raises(MessageNotFoundError, match="any more"):
            store.get(first.physical_offset)
        dry = store.expire(1 << 60, dry_run=True)
        assert dry.log_begin >= log_begin(tmp_path / "store")
    check_what_is_left(tmp_path / "store", SMALL)


def _is_there(store: reput.LivingStore, put: PutResult) -> bool:
    try:
        return store.get(put.physical_offset).physical_offset == put.physical_offset
    except MessageNotFoundError:
        return False


def test_nothing_goes_unless_it_is_asked_for(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", WriterSettings(clean_interval_s=0.01))
    made.put(400)
    made.clock.now_ms += 10**12
    assert not made.writer.retention.make_room()
    made.close()
    assert log_begin(made.path) == 0


@pytest.mark.parametrize(
    "limits",
    [
        {"file_reserved_hours": -1},
        {"file_reserved_hours": float("nan")},
        {"disk_max_used_space_ratio": 0},
        {"disk_max_used_space_ratio": 101},
        {"max_commit_log_bytes": 0},
        {"clean_interval_s": 0},
    ],
)
def test_limits_that_cannot_be_right(tmp_path: Path, limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(limits))):
        reput.open_store(tmp_path / "store", mode="rw", **limits)
    assert not (tmp_path / "store").exists()
    assert not RetentionLimits().are_set


@pytest.mark.parametrize("name", SHIPPED)
def test_the_age_of_a_file_is_its_last_message_s(golden: Golden, name: str) -> None:
    store = golden(name)
    newest: dict[int, int] = {}
    size = store.commit_log_file_bytes
    for row in store.messages:
        newest[row.physical_offset // size] = row.store_timestamp
    log = CommitLog(store.path)
    for file in log.files:
        expected = newest.get(file.start // size)
        if expected is None:  # a file that is blank from its begin
            expected = os.stat(file.path).st_mtime_ns // 1_000_000
        assert newest_timestamp(log, file) == expected
    log.close()
