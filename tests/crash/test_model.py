"""All events of a store's life, in any order, compared with a plain list of the messages.

After every step that leaves the store at rest, an independent slow reader reads all of it: each message is where it was
put, and has one entry in its queue and one index entry per key. There are no other records and entries.
"""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import reput
from reput.base.config import StoreConfig
from reput.engine.writer.put.arrow import from_columns
from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.put.results import PutResults
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import ReputError, StoreError, UsageError
from reput.format.host import Host
from tests.alive import copy_alive
from tests.crash.model import Model
from tests.oracle.consume_queue import ENTRY
from tests.oracle.walk import read_log, walk
from tests.recovery.checking import check_what_is_left
from tests.slow import examples
from tests.writer.test_interrupts import interrupted

pytestmark = pytest.mark.usefixtures("free_syncs")
CONFIG = StoreConfig(commit_log_file_bytes=1 << 12, queue_entries=7, hash_slots=16, index_items=30)
QUIET = WriterSettings(
    flush_interval_commit_log_s=60,
    flush_consume_queue_thorough_interval_s=60,
    flush_interval_consume_queue_s=60,
)
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["A", "B"]),
    body=st.binary(min_size=1, max_size=400),
    keys=st.lists(st.sampled_from(["k", "l", "m"]), max_size=3),
    tags=st.sampled_from(["", "t"]),
    queue_id=st.integers(0, 1),
)
MOST_RECORD_BYTES = 700  # more than the largest of these messages needs, with a blank after it
DAMAGES = ["delete", "cut", "zero", "garble", "hole", "again"]
SHARES = st.floats(0, 1, exclude_max=True)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "0"
        self.copies = 0
        self.model = Model(CONFIG)
        self.now = 1_700_000_000_000
        self.writer: StoreWriter | None = None
        self.is_log_damaged = False

    def clock(self) -> int:
        self.now += 1000
        return self.now

    @property
    def open_writer(self) -> StoreWriter:
        assert self.writer is not None
        return self.writer

    @initialize()
    def create(self) -> None:
        self.open()

    def is_open(self) -> bool:
        return self.writer is not None

    def is_closed(self) -> bool:
        return self.writer is None

    @precondition(is_open)
    @rule(message=MESSAGES)
    def put(self, message: Message) -> None:
        self.model.add([message], [self.open_writer.put(message)])

    @precondition(is_open)
    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=20))
    def put_many(self, messages: list[Message]) -> None:
        self.model.add(messages, self.open_writer.put_many(messages))

    @precondition(is_open)
    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=20))
    def put_columns(self, messages: list[Message]) -> None:
        columns = {
            "topic": [message.topic for message in messages],
            "body": [message.body for message in messages],
            "keys": pa.array(
                [list(message.keys or ()) for message in messages], pa.list_(pa.string())
            ),
            "queue_id": [message.queue_id for message in messages],
        }
        result = self.open_writer.put_columns(from_columns(columns, Host("127.0.0.1", 1)))
        offsets = zip(result.physical_offset.tolist(), result.queue_offset.tolist(), strict=True)
        self.model.add(messages, [PutResult(*pair, "", result.store_timestamp) for pair in offsets])

    @precondition(is_open)
    @rule()
    def flush_everything(self) -> None:
        self.open_writer.flush()
        self.open_writer._index_sync.run()

    @precondition(is_open)
    @rule()
    def wait_dispatched(self) -> None:
        assert self.open_writer.dispatcher.wait(self.open_writer.end_offset, None)

    @precondition(is_open)
    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=20), after=st.integers(1, 400))
    def put_and_interrupt(self, messages: list[Message], after: int) -> None:
        """Interrupt a put at a random call. It has stored no message, all of them, or those that filled a log file."""
        results: list[PutResults] = []
        before = self.open_writer.end_offset
        is_interrupted = interrupted(
            lambda: results.append(self.open_writer.put_many(messages)), after
        )
        if is_interrupted and self.open_writer.end_offset > before:
            assert self.open_writer.dispatcher.wait(self.open_writer.end_offset, None)
            there = results_after(before, self.path)
            self.model.add(messages[: len(there)], there)
            assert len(there) == len(messages) or room_left(self.open_writer) < MOST_RECORD_BYTES
        elif results:
            self.model.add(messages, results[0])

    @precondition(is_open)
    @rule(message=MESSAGES)
    def fork(self, message: Message) -> None:
        """The child can neither put nor stop a thread, and the parent continues."""
        with warnings.catch_warnings():
            # warnings about forks of processes with threads
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            left = 1
            try:
                self.open_writer.put(message)
            except UsageError:
                self.open_writer.close()
                left = 0
            finally:
                os._exit(left)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (self.path / "abort").exists()

    @precondition(is_open)
    @rule()
    def close(self) -> None:
        self.open_writer.close()
        self.writer = None
        self.check()

    @precondition(is_open)
    @rule()
    def crash(self) -> None:
        """Let the process die, at any point of its other threads. The system's page cache survives."""
        self.copies += 1
        target = self.folder / str(self.copies)
        copy_alive(self.path, target)
        self.open_writer.close()
        shutil.rmtree(self.path)
        self.path, self.writer = target, None

    @precondition(is_closed)
    @rule()
    def open(self) -> None:
        try:
            self.writer = StoreWriter(self.path, CONFIG, QUIET, clock_ms=self.clock)
        except StoreError as refused:
            # Readable messages follow a damaged record, and only a user may decide to lose them.
            if not self.is_log_damaged or "reput recover with as_broker" not in str(refused):
                raise
            as_broker = replace(QUIET, as_broker=True)
            self.writer = StoreWriter(self.path, CONFIG, as_broker, clock_ms=self.clock)
            assert Path(self.writer.recovery.kept).is_dir()
        self.is_log_damaged = False
        at_least = self.model.puts[-1].physical_offset if self.model.puts else -1
        assert self.writer.recovery.log_end > at_least

    @precondition(is_open)
    @rule(share=SHARES)
    def expire(self, share: float) -> None:
        if self.model.puts:
            before = self.model.puts[int(share * len(self.model.puts))].stored
            report = self.open_writer.expire(before)
            self.model.expire(before, report.log_begin)

    def log_files(self) -> list[Path]:
        return sorted((self.path / "commitlog").iterdir())

    @precondition(is_closed)
    @rule(share=SHARES)
    def damage_the_log(self, share: float) -> None:
        """Damage one record of the last log file that has records: the log then ends before this record."""
        if not self.model.puts:
            return
        last = self.model.puts[-1].physical_offset
        start = last - last % CONFIG.commit_log_file_bytes
        there = [put for put in self.model.puts if put.physical_offset >= start]
        hit = there[int(share * len(there))].physical_offset
        with touched(self.path / "commitlog" / f"{start:020d}") as path, path.open("r+b") as file:
            file.seek(hit - start + 4)
            file.write(b"\xda\xa3\x20\xa6")
        self.model.truncate(hit)
        self.is_log_damaged = True
        self.model.damage_indexes()

    @precondition(is_closed)
    @rule()
    def lose_the_last_log_file(self) -> None:
        files = self.log_files()
        if len(files) > 1:
            files[-1].unlink()
            self.model.truncate(int(files[-1].name))
            self.model.damage_indexes()

    def index_files(self) -> list[Path]:
        folders = (self.path / "consumequeue", self.path / "index")
        return sorted(p for folder in folders for p in folder.rglob("*") if p.is_file())

    @precondition(is_closed)
    @rule(share=SHARES, size=SHARES, how=st.sampled_from(DAMAGES))
    def damage_an_index(self, share: float, size: float, how: str) -> None:
        """A file of a ConsumeQueue, or an IndexFile, is lost, or shorter, or has other bytes at a place."""
        files = self.index_files()
        if not files:
            return
        self.model.damage_indexes()
        path = files[int(share * len(files))]
        data = path.read_bytes()
        place = int(size * len(data))
        if path.is_relative_to(self.path / "consumequeue"):
            place -= place % ENTRY.size
        if how == "delete":
            path.unlink()
            return
        with touched(path):
            path.write_bytes(damaged(data, place, how))

    @precondition(is_closed)
    @rule(share=SHARES)
    def put_a_link_in_place(self, share: float) -> None:
        """Links to files outside are refused, and these files stay unchanged."""
        files = [*self.log_files(), *self.index_files()]
        path = files[int(share * len(files))]
        outside = self.folder / "outside"
        path.rename(outside)
        path.symlink_to(outside)
        before = outside.read_bytes()
        try:
            with pytest.raises(StoreError, match=path.name):
                StoreWriter(self.path, CONFIG, QUIET, clock_ms=self.clock)
        finally:
            assert outside.read_bytes() == before
            path.unlink()
            outside.rename(path)

    @precondition(is_closed)
    @rule(share=SHARES, size=SHARES)
    def shorten_under_a_reader(self, share: float, size: float) -> None:
        """If a file is truncated during a query, the query raises, reports an incomplete answer, or is right."""
        files = [*self.log_files(), *self.index_files()]
        path = files[int(share * len(files))]
        data, times = path.read_bytes(), path.stat()
        with reput.open_store(self.path, config=CONFIG) as store:
            whole = [found.physical_offset for found in store.query("A", "k").messages]
            os.truncate(path, int(size * len(data)))
            try:
                answer = store.query("A", "k")
            except ReputError:
                pass
            else:
                found = [message.physical_offset for message in answer.messages]
                assert set(found) <= set(whole)
                assert not answer.is_complete or found == whole
            finally:
                path.write_bytes(data)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    @precondition(is_closed)
    @rule(folder=st.sampled_from(["consumequeue", "consumequeue/A", "consumequeue/B/1", "index"]))
    def lose_a_folder(self, folder: str) -> None:
        shutil.rmtree(self.path / folder, ignore_errors=True)
        self.model.damage_indexes()

    @precondition(is_closed)
    @rule(name=st.sampled_from(["checkpoint", "reput.known", "lock", "abort"]))
    def lose_a_note(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def check(self) -> None:
        found = check_what_is_left(self.path, CONFIG)
        self.model.check(found.records)
        with reput.open_store(self.path, config=CONFIG) as store:
            for put in self.model.puts[:: max(len(self.model.puts) // 10, 1)]:
                assert store.get(put.physical_offset).body == put.body
                where = store.get_by_queue(put.topic, put.queue_id, put.queue_offset)
                assert where.physical_offset == put.physical_offset
                assert store.get_by_id(where.properties["UNIQ_KEY"], put.topic).body == put.body
            for topic, key in (("A", "k"), ("B", "l")):
                wanted = [
                    p.physical_offset for p in self.model.puts if p.topic == topic and key in p.keys
                ]
                answer = [m.physical_offset for m in store.query(topic, key).messages]
                assert sorted(answer) == wanted

    def teardown(self) -> None:
        try:
            if self.writer is None:
                self.open()
            self.close()
        finally:
            if self.writer is not None:
                self.writer.close()  # its threads would outlive the test
            shutil.rmtree(self.folder)


def results_after(physical_offset: int, store: Path) -> list[PutResult]:
    """Return the messages from an offset on, as results of their puts. The oracle's walk finds them."""
    return [
        PutResult(at, record.queue_offset, "", record.store_timestamp)
        for at, record in walk(read_log(store)).records
        if at >= physical_offset
    ]


def room_left(writer: StoreWriter) -> int:
    """Return the free bytes of the last log file; 0 if it is full."""
    return -writer.end_offset % CONFIG.commit_log_file_bytes


def damaged(data: bytes, place: int, how: str) -> bytes:
    rest = {
        "cut": b"",
        "zero": bytes(len(data) - place),
        "garble": bytes(byte ^ 0x55 for byte in data[place:]),
        "hole": bytes(ENTRY.size) + data[place + ENTRY.size :],
        "again": data[max(place - ENTRY.size, 0) :],
    }[how]
    return (data[:place] + rest)[: len(data)]


@contextmanager
def touched(path: Path) -> Iterator[Path]:
    """Set the time at which a file was changed; two times within one tick of the clock are equal."""
    yield path
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


QUICK = settings(
    max_examples=examples(15),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=800, stateful_step_count=50)


def test_a_store_is_its_model() -> None:
    run_state_machine_as_test(StoreMachine, settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_store_is_its_model_for_long() -> None:
    run_state_machine_as_test(StoreMachine, settings=LONG)
