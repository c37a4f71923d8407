"""The power is cut: any unsynced pages and names are lost, but no acknowledged message is.

The tests cut the power at random moments, and at every crash point of a life in which a store is created, filled,
expired, closed and opened again.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from reput.base.config import StoreConfig
from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.recovery.checking import check_store, check_what_is_left

pytestmark = pytest.mark.usefixtures("free_syncs")
CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 13, queue_entries=15, hash_slots=64, index_items=100
)
QUIET = WriterSettings(
    flush_interval_commit_log_s=60,
    flush_consume_queue_thorough_interval_s=60,
    flush_interval_consume_queue_s=60,
)
AS_BROKER = replace(QUIET, as_broker=True)
Bodies = dict[int, bytes]
Life = Callable[[Path, ForgetfulDisk, Bodies], None]


def some(random: Random, count: int, size: int = 300) -> list[Message]:
    return [
        Message("T", random.randbytes(random.randrange(size)), [f"k{n}"], queue_id=n % 3)
        for n in range(count)
    ]


def put_and_flush(writer: StoreWriter, messages: list[Message], durable: Bodies) -> PutResult:
    """Put messages with one time stamp, durably; return the result of the first."""
    results = writer.put_many(messages)
    writer.flush()
    durable |= {r.physical_offset: m.body for r, m in zip(results, messages, strict=True)}
    return results[0]


def whole_life(store: Path, disk: ForgetfulDisk, durable: Bodies) -> None:
    """Create a store, fill it until each kind of file was rolled, close it, open it, fill and expire it, close it."""
    random, clock = Random(7), iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    for opening in range(2):
        writer = StoreWriter(store, CONFIG, QUIET, disk, lambda: next(clock))
        for count in (1, 60, 50):
            last = put_and_flush(writer, some(random, count), durable)
            writer.dispatcher.wait(writer.end_offset, None)
            writer._index_sync.run()
        if opening == 1:
            for offset in [at for at in durable if at < last.physical_offset]:
                del durable[offset]  # the message may have expired when the power is cut
            assert 0 < writer.expire(last.store_timestamp).log_begin <= last.physical_offset
        writer.put_many(some(random, 30))
        writer.close()


def recovery(store: Path, disk: ForgetfulDisk, durable: Bodies) -> None:
    """A store that was damaged is opened, put into, and closed."""
    writer = StoreWriter(store, CONFIG, AS_BROKER, disk)
    assert not writer.recovery.is_clean
    put_and_flush(writer, some(Random(8), 50), durable)
    writer.close()


def killed(store: Path, disk: ForgetfulDisk, durable: Bodies) -> None:
    """A process dies and the system survives: unsynced data is still visible, and the next process must sync it."""
    writer = StoreWriter(store, CONFIG, QUIET, disk)
    put_and_flush(writer, some(Random(12), 20), durable)
    writer.dispatcher.wait(writer.end_offset, None)  # recovery needs queues and an IndexFile
    writer.put_many(some(Random(13), 90))
    die(writer)
    writer = StoreWriter(store, CONFIG, QUIET, disk)
    assert not writer.recovery.is_clean
    put_and_flush(writer, some(Random(14), 50), durable)
    writer.dispatcher.wait(writer.end_offset, None)
    writer._index_sync.run()
    put_and_flush(writer, some(Random(15), 20), durable)
    writer.close()


def die(writer: StoreWriter) -> None:
    """End the threads and release the lock, without closing the store."""
    writer._resources.close()


def damaged_store(store: Path) -> Bodies:
    """Damage each file of a store. Return the messages that were put before."""
    durable: Bodies = {}
    writer = StoreWriter(store, CONFIG, QUIET)
    put_and_flush(writer, some(Random(9), 120), durable)
    writer.dispatcher.wait(writer.end_offset, None)
    writer._index_sync.run()
    kept = writer.end_offset
    end = writer.put(Message("T", b"torn")).physical_offset
    writer.put_many(some(Random(10), 60))
    writer.close()
    (store / "abort").touch()
    path = store / "commitlog" / f"{end - end % CONFIG.commit_log_file_bytes:020d}"
    data = bytearray(path.read_bytes())
    data[end % CONFIG.commit_log_file_bytes + 4] ^= 1
    path.write_bytes(data)
    queue = sorted((store / "consumequeue" / "T" / "1").iterdir())[-1]
    queue.write_bytes(queue.read_bytes()[:-100])
    index = sorted((store / "index").iterdir())[-1]
    index.write_bytes(index.read_bytes()[:-50] + bytes(range(50)))
    assert {at for at in durable if at >= kept} == set()
    return durable


def cut_at(
    point: str, occurrence: int, life: Life, source: Path, durable: Bodies, random: Random
) -> tuple[Path, Bodies]:
    """Run on a forgetful disk; return the store after a power cut at that point, and its guaranteed messages."""
    disk = ForgetfulDisk(source)
    target = source.with_name("found")
    promised: Bodies = {}

    def cut(passed: str) -> None:
        if passed == point and disk.points[passed] == occurrence:
            promised.update(durable)
            disk.cut_power(random, target)

    disk.on_point = cut
    life(source, disk, durable)
    assert disk.points[point], f"{point} was not passed"
    # Threads interleave differently in each run. If this run passed the point less often, cut the power at its end.
    if not target.exists():
        promised.update(durable)
        disk.cut_power(random, target)
    return target, promised


def check_found(target: Path, promised: Bodies, settings: WriterSettings | None = None) -> None:
    """Check that the store opens, has every guaranteed message and indexes it once, and accepts new messages.

    `settings` are for the first opening.
    """
    StoreWriter(target, CONFIG, settings).close()
    found = check_what_is_left(target, CONFIG)
    bodies = {at: bytes(record.body) for at, record in found.records}
    assert promised.items() <= bodies.items()
    writer = StoreWriter(target, CONFIG)
    assert writer.recovery.truncated_bytes == 0
    writer.put_many(some(Random(11), 40))
    writer.close()
    check_what_is_left(target, CONFIG)


LIVES: dict[str, tuple[Life, Callable[[Path], Bodies]]] = {
    "whole life": (whole_life, lambda store: {}),
    "recovery": (recovery, damaged_store),
    "killed": (killed, lambda store: {}),
}


def points_of(folder: Path, name: str) -> dict[str, int]:
    life, begin = LIVES[name]
    source = folder / "source"
    source.mkdir()
    durable = begin(source)
    disk = ForgetfulDisk(source)
    life(source, disk, durable)
    shutil.rmtree(source)
    return dict(disk.points)


def check_points(
    folder: Path, name: str, occurrences: Callable[[int], list[int]], stride: int = 1
) -> None:
    life, begin = LIVES[name]
    points = sorted(points_of(folder, name).items())
    for number, (point, passed) in list(enumerate(points))[::stride]:
        for occurrence in occurrences(passed):
            source = folder / "source"
            source.mkdir()
            durable = begin(source)
            target, promised = cut_at(
                point, occurrence, life, source, durable, Random(number + 1000 * occurrence)
            )
            check_found(target, promised, AS_BROKER if name == "recovery" else None)
            shutil.rmtree(source)
            shutil.rmtree(target)


KINDS = (
    "sync folder store", "sync folder commitlog", "sync folder index", "sync folder consumequeue",
    "sync folder consumequeue/TOPIC", "sync folder consumequeue/TOPIC/QUEUE", "open abort",
    "delete abort", "map commitlog/file", "sync commitlog/file", "map index/file",
    "sync index/file", "open consumequeue/TOPIC/QUEUE/file", "write consumequeue/TOPIC/QUEUE/file",
    "sync consumequeue/TOPIC/QUEUE/file", "write replacement of checkpoint", "replace checkpoint",
    "write replacement of reput.known", "replace reput.known",
)  # fmt: skip
EXPIRING = (
    "delete commitlog/file", "delete index/file", "delete consumequeue/TOPIC/QUEUE/file",
)  # fmt: skip


def test_a_life_passes_every_point(tmp_path: Path) -> None:
    points = set(points_of(tmp_path, "whole life"))
    for kind in (*KINDS, *EXPIRING):
        assert {kind, f"{kind} done"} <= points


@pytest.mark.parametrize("name", LIVES)
def test_a_cut_at_some_points(tmp_path: Path, name: str) -> None:
    check_points(tmp_path, name, lambda passed: [(passed + 1) // 2], stride=5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LIVES)
def test_cuts_at_many_occurrences_of_each_point(tmp_path: Path, name: str) -> None:
    check_points(
        tmp_path, name, lambda passed: sorted({1, passed, *range(2, passed, max(passed // 8, 1))})
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_what_was_flushed_survives(tmp_path: Path, seed: int) -> None:
    cut_now_and_then(tmp_path, Random(seed))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 400))
def test_what_was_flushed_survives_for_long(tmp_path: Path, seed: int) -> None:
    cut_now_and_then(tmp_path, Random(seed))


def cut_now_and_then(folder: Path, random: Random) -> None:
    source = folder / "0"
    flushed: Bodies = {}
    for cut in range(3):  # each time on the store that the previous cut left
        disk = ForgetfulDisk(source)
        writer = StoreWriter(source, CONFIG, QUIET, disk)
        fresh: Bodies = {}
        for _ in range(random.randrange(1, 6)):
            messages = some(random, random.randrange(1, 60), 2000)
            results = writer.put_many(messages)
            fresh |= {r.physical_offset: m.body for r, m in zip(results, messages, strict=True)}
            step = random.randrange(4)
            if step > 1:
                writer.dispatcher.wait(writer.end_offset, None)
            if step < 2:
                writer.flush()
                flushed |= fresh
            if step == 1:
                writer._index_sync.run()
        target = folder / str(cut + 1)
        disk.cut_power(random, target)
        writer.close()
        if cut == 0 and not (target / "commitlog").exists():
            assert not flushed
        StoreWriter(target, CONFIG).close()
        bodies = {at: record.body for at, record in check_store(target, CONFIG).records}
        assert flushed.items() <= bodies.items()
        source = target
