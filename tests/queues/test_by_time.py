"""Offsets by time against a slow oracle, with clocks that step back, on every kind of queue."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reput
from reput.base.tasks import SerialRunner
from reput.core.log import known_ranges, range_scan, scan
from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import TimedPiece
from reput.core.query.message_store import MessageStore
from reput.core.queues.by_time import QueueTimes
from reput.core.queues.reader import ConsumeQueueReader
from reput.engine.messages.topic_messages import messages_of_topic
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.writer.put.message import Message
from reput.errors import CorruptMessageError
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry, encode_entry
from tests.five import CONFIG, inner_batch, write_topics
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, FIVE_LIFE, GoldenStore
from tests.small import SMALL

Golden = Callable[[str], GoldenStore]
BEGIN = 1_700_000_000_000
_SOME = {"timed", "extremes", "lmq", "five_batch", "five_rocksdb", "five_ext"}


@pytest.fixture(params=[900, 64 << 10])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save store times also for small files: per few messages, or per file."""
    monkeypatch.setattr(scan, "_READ_BYTES", 2000)
    monkeypatch.setattr(range_scan, "_LEAST_PIECE_BYTES", request.param)
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", 1)
    monkeypatch.setattr(known_ranges, "_LEAST_GROWTH_BYTES", 1)


def _times(kind: str, count: int) -> Iterator[int]:
    """Return store times of a clock that steps back never, sometimes, for long, or all the time."""
    random, now = Random(kind), BEGIN
    for number in range(count):
        match kind:
            case "now and then":
                now += -random.randrange(90_000) if random.random() < 0.03 else 1000
            case "once":
                now += -150_000 if number == 150 else 1000
            case "always":
                now = BEGIN + random.randrange(300_000)
            case _:
                now += random.choice((0, 0, 700))
        yield now


def _stored(store: MessageStore, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
    """Return (queue offset, the next one, store time) of each readable entry of a queue."""
    queue, found = store.queues.queue(topic, queue_id), []
    start = queue.min_queue_offset(store.commit_log.min_offset)
    for number, entry in queue.numbered(start, queue.max_queue_offset()):
        if entry != PRE_BLANK:
            located = store.commit_log.locate(entry.physical_offset)
            found.append((number, queue.after(number, entry), located.store_timestamp()))
    return found


def _check(store: MessageStore, random: Random, questions: int) -> int:
    """Compare answers with the oracle. Return how many of them a plain bisection of all times would get wrong."""
    wrong = 0
    for topic, queue_id in store.list_queues():
        rows = _stored(store, topic, queue_id)
        times = [time for *_, time in rows]
        least = store.min_queue_offset(topic, queue_id)
        most = store.max_queue_offset(topic, queue_id)
        some = random.sample(times, min(len(times), questions))
        for time in {*some, *(one + 1 for one in some), 0, 1 << 62, -(1 << 70), 1 << 70}:
            first = next((number for number, _, stored in rows if stored >= time), most)
            assert store.offset_by_time(topic, queue_id, time) == first
            end = next((after for _, after, stored in reversed(rows) if stored <= time), least)
            # The end may be before or after queue offsets without an entry.
            following = next((number for number, *_ in rows if number >= end), most)
            assert end <= store.end_offset_by_time(topic, queue_id, time) <= following
            wrong += sum(stored < time for stored in times) + least != first
    return wrong


@pytest.fixture(scope="module", params=["ordinary", "batch", "rocksdb", "gaps"])
def queues(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def _store(path: Path, queues: str, clock: Iterator[int]) -> Path:
    """Return a store whose topics B and T have queues of that kind, in many small files."""
    if queues == "batch":
        write_topics(path, "B")
    config = replace(CONFIG, append_record_crc=False, commit_log_file_bytes=1 << 13)
    if queues == "gaps":
        config = replace(config, store_version="4.9")
    writer = reput.open_store(path, mode="rw", config=config)
    writer._writer._log._clock_ms = lambda: next(clock)
    random = Random(queues)
    with writer as opened:
        for _ in range(300):
            topic, queue_id = random.choice(("B", "T")), random.randrange(2)
            if queues == "batch" and topic == "B" and random.random() < 0.7:
                bodies = [b"b"] * random.randrange(1, 5)
                opened.put(inner_batch("B", bodies, queue_id))
            else:
                opened.put(Message(topic, random.randbytes(60), queue_id=queue_id))
    if queues == "rocksdb":
        rebuild_store(SerialRunner(), path, output=path.parent / "rocks", queues="rocksdb")
        (path.parent / "rocks" / "commitlog").symlink_to(path / "commitlog")
        return path.parent / "rocks"
    if queues == "gaps":  # write pre-blank entries, as a rebuild writes in place of lost messages
        for file in path.glob("consumequeue/*/*/*"):
            data = bytearray(file.read_bytes())
            for at in (100, 120, 140, 400):
                if any(data[at : at + 20]) and any(data[at + 20 : at + 40]):
                    data[at : at + 20] = encode_entry(PRE_BLANK)
            file.write_bytes(data)
    return path


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("kind", ["never", "now and then", "once", "always"])
def test_any_clock(tmp_path: Path, queues: str, kind: str) -> None:
    store = _store(tmp_path / "s", queues, _times(kind, 3000))
    wrong = 0
    for seed in range(2):  # the second time with the store times that the first saved
        with MessageStore(store) as opened:
            wrong += _check(opened, Random(seed), 12)
    if kind in ("once", "always") and queues != "gaps":
        assert wrong > 9


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    "name",
    [
        name if name in _SOME else pytest.param(name, marks=pytest.mark.slow)
        for name in (*EVERY_STORE, *EVERY_FIVE, FIVE_LIFE)
    ],
)
def test_stores_of_brokers(golden: Golden, name: str) -> None:
    with MessageStore(golden(name).path) as opened:
        _check(opened, Random(name), 3)


@pytest.mark.usefixtures("pieces")
def test_a_window_has_every_message_of_its_time(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", "ordinary", _times("now and then", 400))
    with MessageStore(store) as opened:
        every = messages_of_topic(opened, "T", limit=400).messages
        times = [one.store_timestamp for one in every]
        assert times != sorted(times, reverse=True)
        for begin in times[::17]:
            for end in (begin, begin + 30_000, 1 << 60):
                found = messages_of_topic(opened, "T", begin, end, limit=400)
                assert not found.problems
                expected = [one for one in every if begin <= one.store_timestamp <= end]
                assert list(found.messages) == expected


def test_messages_put_since_are_seen(tmp_path: Path) -> None:
    clock = _times("always", 400)
    writer = reput.open_store(tmp_path / "s", mode="rw", config=SMALL)
    writer._writer._log._clock_ms = lambda: next(clock)
    with writer as opened, MessageStore(tmp_path / "s") as reader:
        for _ in range(20):
            for _ in range(10):
                opened.put(Message("T", b"x" * 50))
            opened.wait_dispatched()
            _check(reader, Random(1), 3)


def test_what_cannot_be_read_is_passed_over_without_a_check(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("timed").path, tmp_path / "s")
    with MessageStore(path) as opened:
        topic, queue_id = max(opened.list_queues(), key=lambda key: opened.max_queue_offset(*key))
        rows = _stored(opened, topic, queue_id)
        lost = opened.queues.queue(topic, queue_id).entry(rows[5][0]).physical_offset
        file = opened.commit_log.file_at(lost)
        assert file is not None
    with open(file.path, "r+b") as log:
        log.seek(lost - file.start + 4)
        log.write(bytes(4))
    del rows[5]
    with MessageStore(path) as opened:
        for _, _, time in rows[::7]:
            first = next(number for number, _, stored in rows if stored >= time)
            assert opened.offset_by_time(topic, queue_id, time, check=False) == first
            # The lost message may have been stored up to an hour after the messages around it.
            if first >= rows[5][0] and time <= rows[5][2] + 3_600_000:
                with pytest.raises(CorruptMessageError):
                    opened.offset_by_time(topic, queue_id, time)


class KnownPieces:
    """The store times of pieces of a log that ends at 116,198."""

    def end(self) -> int:
        return 116_198

    def pieces(self, begin: int, end: int, *, newest_first: bool = False) -> list[TimedPiece]:
        assert newest_first
        return [TimedPiece(start, start + 16_384, 1, 2, start) for start in (98_304, 81_920)]


def test_ranges_of_a_queue_that_is_damaged_while_it_is_open_do_not_overlap(tmp_path: Path) -> None:
    """The first file gets the entries of later messages, and loses entries at its end."""
    later = (
        64529, 66054, 68071, 73908, 76641, 79508, 81282, 84440, 86186, 87738, 92711, 94501, 96752,
        98823, 100735, 104350,
    )  # fmt: skip
    second = (
        73688, 75420, 77200, 79229, 84946, 91471, 98304, 100555, 101287, 103129, 106822, 109574,
        114688, 115919,
    )  # fmt: skip
    paths = tmp_path / ("0" * 20), tmp_path / f"{400:020}"
    for path, offsets in zip(paths, (range(1000, 61_000, 3000), second), strict=True):
        path.write_bytes(_entries(offsets))
    known: Any = KnownPieces()
    with closing(ConsumeQueueReader(str(tmp_path))) as queue:
        times = QueueTimes(queue, known, lambda number, entry: 1)
        assert times.spans(1, 2) == [range(24, 32)]
        paths[0].write_bytes(_entries(later))
        numbers = [number for span in times.spans(1, 2) for number in span]
    assert len(numbers) == len({*numbers})
    assert {*range(24, 32)} <= {*numbers}


def _entries(offsets: Iterable[int]) -> bytes:
    entries = (encode_entry(ConsumeQueueEntry(offset, 200, 0)) for offset in offsets)
    return b"".join(entries).ljust(400, b"\0")
