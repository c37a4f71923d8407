"""Power cuts of a 5.x store with batch queues: each flushed message survives, and has one entry."""

import shutil
from pathlib import Path
from random import Random

import pytest

from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.crash.test_power_cut import QUIET, Bodies, die
from tests.five import CONFIG, batch_queue_bytes, inner_batch, write_topics
from tests.oracle.records import Record
from tests.oracle.walk import read_log, walk

pytestmark = pytest.mark.usefixtures("free_syncs")


def put_some(writer: StoreWriter, random: Random, count: int) -> Bodies:
    """Put messages and inner batches into two batch queues and an ordinary one."""
    put: Bodies = {}
    for number in range(count):
        message = Message("T", random.randbytes(random.randrange(200)), [f"k{number}"])
        if number % 3:
            bodies = [random.randbytes(30) for _ in range(random.randrange(1, 5))]
            message = inner_batch("B", bodies, number % 2)
        put[writer.put(message).physical_offset] = message.body
    return put


def live(store: Path, disk: ForgetfulDisk, durable: Bodies) -> None:
    """Create and close a store, open it and let it die, recover and close it. Files of batch queues roll and expire."""
    random, clock = Random(5), iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    for opening in range(3):
        writer = StoreWriter(store, CONFIG, QUIET, disk, lambda: next(clock))
        for _ in range(2):
            fresh = put_some(writer, random, 30)
            writer.flush()
            durable |= fresh
            writer.dispatcher.wait(writer.end_offset, None)
            writer._index_sync.run()
        put_some(writer, random, 20)
        if opening == 1:
            writer.dispatcher.wait(writer.end_offset, None)
            die(writer)
            continue
        if opening == 2:
            first = writer.end_offset - 2 * CONFIG.commit_log_file_bytes
            for offset in [at for at in durable if at < first]:
                del durable[offset]  # the message may have expired when the power is cut
            writer.expire(next(clock) - 100_000)
        writer.close()


def check(store: Path, promised: Bodies) -> None:
    """Open the store twice, the second time unchanged: the batch queues match the log, byte for byte."""
    for clean in (None, True):
        writer = StoreWriter(store, CONFIG)
        assert clean is None or writer.recovery.is_clean
        writer.close()
        check_batch_queues(store)
    bodies = {at: bytes(record.body) for at, record in walk(read_log(store)).records}
    begin = read_log(store)[0][0]
    assert {at: body for at, body in promised.items() if at >= begin}.items() <= bodies.items()


def check_batch_queues(store: Path) -> None:
    """Check that the batch queues contain exactly the entries of the messages in the log. Ignore expired messages."""
    records: dict[tuple[str, int], list[Record]] = {}
    for _, record in walk(read_log(store)).records:
        if record.topic == "B":
            records.setdefault((record.topic, record.queue_id), []).append(record)
    begin, size = read_log(store)[0][0], 46
    for (topic, queue_id), expected in records.items():
        files = sorted((store / "batchconsumequeue" / topic / str(queue_id)).iterdir())
        data = b"".join(path.read_bytes() for path in files)
        entries = [data[at : at + size] for at in range(0, len(data), size)]
        found = [one for one in entries if any(one) and int.from_bytes(one[:8], "big") >= begin]
        made = batch_queue_bytes(expected, size)
        assert found == [made[name] for name in sorted(made)]
        kept = sum(any(one) for one in entries)
        assert not any(map(any, entries[kept:]))
        assert all(path.stat().st_size == CONFIG.batch_queue_file_bytes for path in files)


def cut_at(folder: Path, point: str, occurrence: int, random: Random) -> None:
    source, target = folder / "source", folder / "found"
    write_topics(source, "B")
    disk = ForgetfulDisk(source)
    durable: Bodies = {}
    promised: Bodies = {}

    def cut(passed: str) -> None:
        if passed == point and disk.points[passed] == occurrence and not target.exists():
            promised.update(durable)
            disk.cut_power(random, target)

    disk.on_point = cut
    live(source, disk, durable)
    # threads interleave differently each time, so the point may be passed less often
    if target.exists():
        write_topics(target, "B")
        check(target, promised)
        shutil.rmtree(target)
    shutil.rmtree(source)


def points_of(folder: Path) -> dict[str, int]:
    source = folder / "points"
    write_topics(source, "B")
    disk = ForgetfulDisk(source)
    live(source, disk, {})
    check_batch_queues(source)
    shutil.rmtree(source)
    return dict(disk.points)


def check_points(folder: Path, stride: int, times: int) -> None:
    points = sorted(points_of(folder).items())
    for number, (point, passed) in list(enumerate(points))[::stride]:
        for occurrence in sorted({1 + n * passed // times for n in range(times)}):
            cut_at(folder, point, occurrence, Random(number + 1000 * occurrence))


def test_a_cut_at_some_points(tmp_path: Path) -> None:
    check_points(tmp_path, stride=17, times=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_cuts_at_every_point(tmp_path: Path) -> None:
    check_points(tmp_path, stride=1, times=4)


@pytest.mark.parametrize("damage", ["entry", "file", "folder", "short", "known", "longer"])
def test_damaged_batch_queues_are_made_anew(tmp_path: Path, damage: str) -> None:
    store = tmp_path / "store"
    write_topics(store, "B")
    writer = StoreWriter(store, CONFIG, QUIET)
    put_some(writer, Random(1), 80)
    if damage in ("entry", "known"):
        writer.dispatcher.wait(writer.end_offset, None)
        writer._index_sync.run()
        put_some(writer, Random(1), 9)
    writer.close()
    queue = store / "batchconsumequeue" / "B" / "1"
    first, *_, last = sorted(queue.iterdir())
    (store / "abort").touch()
    if damage == "entry":
        last.write_bytes(bytes(46) + last.read_bytes()[46:])
    elif damage == "file":
        last.unlink()
    elif damage == "folder":
        shutil.rmtree(queue)
    elif damage == "short":
        last.write_bytes(last.read_bytes()[:50])
    elif damage == "known":
        (store / "reput.known").unlink()
        first.write_bytes(bytes(len(first.read_bytes())))
    else:
        name = f"{int(last.name) + CONFIG.batch_queue_file_bytes:020d}"
        last.with_name(name).write_bytes(last.read_bytes())
    check(store, {})
