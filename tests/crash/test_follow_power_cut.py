"""The power is cut while indexes follow a log: when continued, they match a rebuild, byte for byte."""

import shutil
from pathlib import Path
from random import Random

import pytest

from reput.base.config import StoreConfig
from reput.engine.rebuild.follow import follower as followed_log
from reput.engine.rebuild.follow.follower import Follower
from reput.engine.rebuild.follow.state import begin
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.follow.following import GrowingLog, catch_up, open_follower, resumed
from tests.oracle.forge import LogForge, RecordFields, forge_log

pytestmark = pytest.mark.usefixtures("free_syncs")
CONFIG = StoreConfig(queue_entries=20, hash_slots=64, index_items=60)


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "_SETTLED_S", 0)


def forged(random: Random, count: int, first_timestamp: int) -> list[RecordFields]:
    return [
        RecordFields(
            topic="T", queue_id=n % 3, queue_offset=n // 3, store_timestamp=first_timestamp + n,
            properties={"KEYS": f"k{random.randrange(50)}"} if random.random() < 0.9 else {},
            body=random.randbytes(random.randrange(300)),
        )
        for n in range(count)
    ]  # fmt: skip


def written(folder: Path, made: LogForge) -> GrowingLog:
    return GrowingLog(folder / "store", made.files())


def live(log: GrowingLog, made: LogForge, output: Path, disk: ForgetfulDisk, first: int) -> None:
    """Follow for some steps, end cleanly, and follow again."""
    for opening in range(2):
        follower = Follower(log.path, output, begin(log.path, output, CONFIG), disk)
        for step in range(1, 5):
            log.write_to(made.offsets[first + opening * 80 + step * 20])
            catch_up(follower)
            if step % 2:
                follower.sync()
        follower.close()


def begun(folder: Path) -> tuple[GrowingLog, LogForge, ForgetfulDisk]:
    """A log, and indexes of its beginning that are durable."""
    made = forge_log(forged(Random(5), 300, 1_700_000_000_000), file_bytes=1 << 13)
    log = written(folder, made)
    log.write_to(made.offsets[60])
    follower = open_follower(log, folder / "out", CONFIG)
    catch_up(follower)
    follower.close()
    return log, made, ForgetfulDisk(folder / "out")


def points(folder: Path) -> dict[str, int]:
    log, made, disk = begun(folder)
    live(log, made, folder / "out", disk, 60)
    return dict(disk.points)


def cut_at(folder: Path, point: str, occurrence: int, random: Random) -> None:
    log, made, disk = begun(folder)
    found, ends = folder / "found", []

    def cut(passed: str) -> None:
        if passed == point and disk.points[passed] == occurrence:
            disk.cut_power(random, found)
            ends.append(log.end)

    disk.on_point = cut
    live(log, made, folder / "out", disk, 60)
    if not ends:
        disk.cut_power(random, found)
        ends.append(log.end)
    shutil.rmtree(folder / "out")
    kind = random.randrange(3)
    if kind == 0:  # the log has also lost its end, and has grown again
        kept = random.randrange(30, next(n for n, at in enumerate(made.offsets) if at >= ends[0]))
        fresh = forged(random, 80, 1_710_000_000_000)
        again = forge_log(
            [*forged(Random(5), 300, 1_700_000_000_000)[:kept], *fresh], file_bytes=1 << 13
        )
        shutil.rmtree(log.path)
        log, made = written(folder, again), again
        log.write_to(again.offsets[kept + random.randrange(80)])
    else:
        log.write_to(ends[0] if kind == 1 else made.offsets[250])
    resumed(log, found, CONFIG)
    log.write_to(log.last)
    assert resumed(log, found, CONFIG).report.compared_from > 0


def test_a_life_passes_the_points_that_matter(tmp_path: Path) -> None:
    passed = set(points(tmp_path))
    for kind in (
        "replace .reput-follow", "replace .reput-follow.known", "replace checkpoint",
        "sync index/file", "sync consumequeue/TOPIC/QUEUE/file", "map index/file",
        "sync folder consumequeue/TOPIC/QUEUE", "sync folder index",
    ):  # fmt: skip
        assert {kind, f"{kind} done"} <= passed


@pytest.mark.slow
def test_a_cut_at_each_point(tmp_path: Path) -> None:
    for number, (point, passed) in enumerate(sorted(points(tmp_path / "first").items())):
        folder = tmp_path / str(number)
        cut_at(folder, point, (passed + 1) // 2, Random(number))
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(40))
def test_cuts_at_any_moment(tmp_path: Path, seed: int) -> None:
    random = Random(1000 + seed)
    for number, (point, passed) in enumerate(sorted(points(tmp_path / "first").items())):
        folder = tmp_path / str(number)
        cut_at(folder, point, random.randrange(passed) + 1, random)
        shutil.rmtree(folder)
