"""Readers of a store that other processes or threads write to, roll and expire: never a wrong answer.

Readers set the pace of the writer: it puts messages a number of times for each pass of a reader. So what a reader sees
depends on neither clocks nor on the machine's speed, and still they run at the same time.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reput
from reput.base.config import StoreConfig
from reput.core.query.answers import PullStatus
from reput.core.query.message_store import MessageStore
from reput.engine.writer.writable_store import WritableStore
from reput.errors import MessageNotFoundError

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 15, queue_entries=20, hash_slots=64, index_items=200
)
LIMITS: dict[str, Any] = {"max_commit_log_bytes": 6 << 15, "clean_resource_interval_s": 0.02}
QUEUES = 3
_PASSES = 60
# In a long lead, files expire that a reader has not read. (The limit is 6 files, of some 80 messages each.)
_LEAD, _LONG_LEAD = 3, 50


class Writer:
    """Puts messages into random queues. Each body begins with the expected topic, queue id and queue offset."""

    def __init__(self, store: WritableStore, seed: int) -> None:
        self.store, self.random = store, Random(seed)
        self.ends: dict[tuple[str, int], int] = {}

    def put_some(self) -> None:
        messages = [self._message() for _ in range(self.random.randrange(1, 30))]
        if self.random.random() < 0.3:
            for message in messages:
                self.store.put(message)
        else:
            self.store.put_many(messages)

    def warm_up(self) -> None:
        """Compile all kernels that the test needs."""
        self.store.put(self._message())
        self.store.put_many([self._message()])
        self.store.wait_dispatched()

    def _message(self) -> reput.Message:
        newest = sum(self.ends.values()) // 800
        queue = f"T{self.random.randrange(newest + 1)}", self.random.randrange(QUEUES)
        number = self.ends.get(queue, 0)
        self.ends[queue] = number + 1
        name = f"{queue[0]}-{queue[1]}-{number}"
        padding = b"." * self.random.randrange(600)
        return reput.Message(
            queue[0], name.encode() + b"|" + padding, [name], f"t{number % 3}", queue[1]
        )


class Follower:
    """Read all queues to their ends, repeatedly, and query the same messages in other ways."""

    def __init__(
        self, store: MessageStore | WritableStore, topics: Callable[[], list[str]], seed: int
    ) -> None:
        self.store, self.topics, self.random = store, topics, Random(seed)
        self.positions: dict[tuple[str, int], int] = {}
        self.seen = self.skipped = self.asked = 0

    def follow(self) -> None:
        for topic in self.topics():
            for queue_id in range(QUEUES):
                if (topic, queue_id) in self.positions or self._is_there(topic, queue_id):
                    self._pull(topic, queue_id)

    def _is_there(self, topic: str, queue_id: int) -> bool:
        try:
            return self.store.max_queue_offset(topic, queue_id) >= 0
        except MessageNotFoundError:
            return False

    def _pull(self, topic: str, queue_id: int) -> None:
        queue = topic, queue_id
        position = self.positions.get(queue, 0)
        tags = self.random.choice([None, "t0 || t2"])
        result = self.store.pull(topic, queue_id, position, 32, tags)
        if result.status == PullStatus.OFFSET_TOO_SMALL:
            assert position < result.min_offset == result.next_begin_offset
            self.skipped += result.next_begin_offset - position
        else:
            expected = [
                n
                for n in range(position, result.next_begin_offset)
                if tags is None or n % 3 in (0, 2)
            ]
            assert [message.queue_offset for message in result.messages] == expected
            assert result.status != PullStatus.OFFSET_TOO_LARGE
        assert position <= result.next_begin_offset <= result.max_offset
        self.positions[queue] = result.next_begin_offset
        for message in result.messages:
            self._check(message, topic, queue_id, message.queue_offset)
        self.seen += len(result.messages)
        if result.messages:
            self._ask(self.random.choice(result.messages), queue)

    def _check(
        self, message: reput.MessageExt, topic: str, queue_id: int, queue_offset: int
    ) -> None:
        assert message.body.partition(b"|")[0].decode() == f"{topic}-{queue_id}-{queue_offset}"
        assert message.body_crc_ok

    def _ask(self, known: reput.MessageExt, queue: tuple[str, int]) -> None:
        """Check that a known message is found by offset, queue offset, id and key, or else has expired."""
        self.asked += 1
        offset = known.physical_offset
        ways: list[Callable[[], reput.MessageExt]] = [
            lambda: self.store.get(offset),
            lambda: self.store.get_by_queue(*queue, known.queue_offset),
            lambda: self.store.get_by_id(known.properties["UNIQ_KEY"], known.topic),
        ]
        for get in ways:
            try:
                assert get() == known
            except MessageNotFoundError:
                assert self._log_begin() > offset
        found = self.store.query(known.topic, known.properties["KEYS"])
        assert found.is_complete, found.coverage
        assert found.messages == (known,) or (
            found.messages == () and found.coverage.log.start > offset
        )
        least = self.store.min_queue_offset(*queue)
        try:
            first = self.store.get_by_queue(*queue, least)
            self._check(first, *queue, least)
        except MessageNotFoundError:
            assert self.store.min_queue_offset(*queue) >= least
        at = self.store.offset_by_time(*queue, known.store_timestamp)
        assert at <= max(known.queue_offset, self.store.min_queue_offset(*queue))

    def _log_begin(self) -> int:
        return self.store.query("no such topic", "k").coverage.log.start


class WriterElsewhere:
    """A process that puts messages.

    Attributes:
        ends: the queues' ends, known after the process has ended.
    """

    def __init__(self, pace: int) -> None:
        self._pace = pace
        self.ends: dict[str, int] = {}

    def proceed(self, times: int) -> None:
        """Let the process put messages some times more. It does so while the caller continues."""
        os.write(self._pace, bytes(times))


def lead_of(number: int) -> int:
    """Return how many times the writer may put messages during a reader's pass of that number."""
    return _LONG_LEAD if number % 20 == 19 else _LEAD


@contextmanager
def writing_elsewhere(path: Path, limits: dict[str, Any] = LIMITS) -> Iterator[WriterElsewhere]:
    """Put messages from another process during the `with` block, at the pace that the caller sets."""
    reading, writing = os.pipe()
    paced, pace = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.close(pace)
            with reput.open_store(path, mode="rw", config=CONFIG, **limits) as store:
                writer = Writer(store, 7)
                writer.warm_up()
                os.write(writing, b"\n")
                while os.read(paced, 1):
                    writer.put_some()
                store.wait_dispatched()
            told = {f"{topic} {number}": end for (topic, number), end in writer.ends.items()}
            os.write(writing, json.dumps(told).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    os.close(paced)
    elsewhere = WriterElsewhere(pace)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        try:
            assert pipe.read(1), "the store exists when this byte comes"
            yield elsewhere
        finally:
            os.close(pace)
            answer = pipe.readall()
            assert os.waitpid(child, 0)[1] == 0
    elsewhere.ends.update(json.loads(answer))


@pytest.mark.parametrize("config", [CONFIG, None])
def test_a_reader_beside_a_writing_process(tmp_path: Path, config: StoreConfig | None) -> None:
    path = tmp_path / "store"
    with writing_elsewhere(path) as writer, reput.open_store(path, config=config) as store:
        follower = Follower(store, store.queues.topics, 1)
        for number in range(_PASSES):
            writer.proceed(lead_of(number))
            follower.follow()
    with reput.open_store(path, config=config) as store:
        follower.store, follower.topics = store, store.queues.topics
        for _ in range(sum(writer.ends.values())):
            before = dict(follower.positions)
            follower.follow()
            if before == follower.positions:
                break
    assert {f"{t} {n}": end for (t, n), end in follower.positions.items()} == writer.ends
    assert follower.seen > 200
    assert follower.asked > 20
    assert first_offset(path) > 0


def first_offset(path: Path) -> int:
    """Return the physical offset at which the log begins: 0 until its first file has expired."""
    return int(min(file.name for file in (path / "commitlog").iterdir()))


def test_threads_that_ask_the_store_that_they_put_into(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    with reput.open_store(tmp_path / "store", mode="rw", config=CONFIG, **LIMITS) as store:
        writer = Writer(store, 3)
        writer.warm_up()
        followers = [Follower(store, store.topics, seed) for seed in range(4)]

        # All meet before each pass, so that none is ahead of the others by more than a pass.
        meeting = threading.Barrier(1 + len(followers))

        def run(work: Callable[[int], None]) -> None:
            try:
                for number in range(_PASSES):
                    meeting.wait()
                    work(number)
            except BaseException as error:
                failed.append(error)
                meeting.abort()
                raise

        def put(number: int) -> None:
            for _ in range(lead_of(number)):
                writer.put_some()

        works = [put, *((lambda number, each=each: each.follow()) for each in followers)]
        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert store.wait_dispatched()
        for follower in followers:
            assert follower.asked > 5
            for queue, end in writer.ends.items():
                while follower.positions.get(queue, 0) < end:
                    follower._pull(*queue)
