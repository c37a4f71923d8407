"""A new form of queues in one file: registered, it is written, read, rebuilt, checked, repaired and recovered."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

import reput
from reput.base import SerialRunner, StoreConfig
from reput.core import (
    ConsumeQueueReader,
    DispatchBatch,
    Numbering,
    Queue,
    QueueForm,
    QueueIndex,
    QueueKind,
    QueueRecovery,
    QueueSetReader,
    QueueSetWriter,
    QueuesOf,
    StoreFacts,
    facts_of,
    open_queues,
    register_queue_form,
)
from reput.core.queues import forms
from reput.engine.compare import dispatched_entries, rocksdb_rules
from reput.engine.rebuild import (
    LogSummary,
    QueueBuild,
    QueueLayout,
    QueuePlan,
    QueueTask,
    RebuildReport,
    RunOne,
    Staging,
    WriteJob,
    WriteQueues,
    batches_of,
    rebuild_store,
    write_plan,
)
from reput.engine.writer import (
    EntryLayout,
    KeptQueue,
    MatchedRecovery,
    Message,
    OwnQueues,
    RankedEntries,
    RecoveryReport,
    StoreWriter,
)
from reput.errors import UsageError
from reput.format.consume_queue import ConsumeQueueEntry
from tests.check.checking import checked, kinds
from tests.small import SMALL

# Physical offset, size, tags code, store timestamp and checksum of the other fields.
ENTRY = struct.Struct(">qiqqI")
FIELDS = ("physical_offset", "size", "tags_code", "store_timestamp")
CONFIG = replace(SMALL, store_version="4.9")


def encode(*fields: int) -> bytes:
    return ENTRY.pack(*fields, crc32(b"%d %d %d %d" % fields))


def decode(data: bytes) -> ConsumeQueueEntry:
    return ConsumeQueueEntry(*ENTRY.unpack(data)[:3])


def decode_all(data: bytes) -> Iterator[ConsumeQueueEntry]:
    return (decode(data[at : at + ENTRY.size]) for at in range(0, len(data), ENTRY.size))


TOY = QueueKind(
    "toy queue",
    "toyqueue",
    ENTRY.size,
    (
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("checksum", ">u4"),
    ),
    Numbering.PLACE,
    "",
    lambda config: 0,
    decode,
    decode_all,
)


class ToyQueue(ConsumeQueueReader):
    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        for data in super().entry_bytes(queue_offset, stop):
            for entry in decode_all(data):
                yield struct.pack(">qiq", *entry)


class ToyQueues(QueueSetReader[ConsumeQueueReader]):
    kind = TOY

    def _open(self, folder: str, topic: str, queue_id: int) -> ToyQueue:
        return ToyQueue(folder, self._open_files, self._storage, TOY)


class ToyWriter(QueueSetWriter):
    """Writes each entry at the place of its queue offset in the queue's only file."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self._folder = store / TOY.folder
        self._ends: dict[Queue, int] = {}
        for path in files(store):
            queue = Queue(path.parent.parent.name, int(path.parent.name))
            self._ends[queue] = path.stat().st_size // ENTRY.size

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        grown: dict[Queue, int] = {}
        for queue, messages, numbers in dispatched_entries(batch):
            path = self._folder / queue.topic / str(queue.queue_id) / TOY.file_name(0)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            with path.open("r+b") as file:
                for number, *fields in zip(
                    numbers, *(messages[name] for name in FIELDS), strict=True
                ):
                    file.seek(int(number) * ENTRY.size)
                    file.write(encode(*map(int, fields)))
            grown[queue] = max(self._ends.get(queue, 0), int(numbers[-1]) + 1)
        self._ends |= grown
        return list(grown.items())

    def ends(self) -> dict[tuple[str, int], int]:
        return {(topic, queue_id): end for (topic, queue_id), end in self._ends.items()}

    def check_in_place(self) -> None:
        pass

    def close(self, sync: bool) -> None:
        pass


class RecoveredToys(OwnQueues):
    """What recovery needs: the entries that can be right, a way to write entries, and a writer."""

    folder = TOY.folder

    def __init__(self, store: Path, begin: int, log_end: int) -> None:
        super().__init__(begin, log_end)
        self._store = store

    def names(self) -> list[Queue]:
        return [
            Queue(path.parent.parent.name, int(path.parent.name)) for path in files(self._store)
        ]

    def _path(self, name: Queue) -> Path:
        return self._store / TOY.folder / name.topic / str(name.queue_id) / TOY.file_name(0)

    def survey(self, name: Queue) -> RankedEntries:
        data = self._path(name).read_bytes()
        entries = np.frombuffer(data[: len(data) // ENTRY.size * ENTRY.size], TOY.dtype)
        good = [
            encode(*map(int, list(entry)[:4])) == entry.tobytes()
            and entry["physical_offset"] + entry["size"] <= self.log_end
            for entry in entries
        ]
        rows = np.flatnonzero(np.array(good, np.bool_))
        return RankedEntries(EntryLayout(TOY), rows, entries[rows])

    def hold(self, name: Queue, kept: KeptQueue) -> None:
        data = bytearray(kept.end * ENTRY.size)
        for number, entry in zip(kept.numbers.tolist(), kept.entries, strict=True):
            ENTRY.pack_into(
                data, number * ENTRY.size, *ENTRY.unpack(encode(*map(int, list(entry)[:4])))
            )
        self._path(name).write_bytes(data)

    def writer(self) -> ToyWriter:
        return ToyWriter(self._store)


class ToyBuild:
    """Writes all queues in one task."""

    without: tuple[str, ...] = ("consumequeue",)

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    def plan(self, log: LogSummary, parallelism: int, run: RunOne) -> QueueLayout:
        write_plan(str(self._staging.plan), QueuePlan(log.staged, []))
        return QueueLayout(tasks=[QueueTask(0, "form", 0, len(log.staged), 1)])

    def writer(self) -> WriteQueues:
        return write_toy

    def finish(self, log: LogSummary, written: Sequence[object], report: RebuildReport) -> None:
        report.queue_entries = sum(count for count in written if isinstance(count, int))


def write_toy(job: WriteJob, task: QueueTask) -> int:
    writer, fields, count = (
        ToyWriter(Path(job.new)),
        (*FIELDS, "sys_flag", "queue", "queue_offset"),
        0,
    )
    for batch in batches_of(job, task.number, None, fields):
        writer.append(batch)
        count += len(batch.messages)
    return count


class ToyForm(QueueForm):
    name, title, signs, has_all = "toy", "toy queues", (TOY.folder + "/",), True

    def open(self, queues: QueuesOf) -> QueueIndex:
        return ToyQueues(queues.store, queues.storage)

    def recovery(
        self, store: Path, config: StoreConfig, batch_topics: frozenset[str]
    ) -> QueueRecovery:
        rules = rocksdb_rules(tuple(config.delay_table_ms()))
        return MatchedRecovery(store, rules, partial(RecoveredToys, store))

    def build(
        self,
        staging: Staging,
        output: Path,
        source: StoreFacts,
        *,
        in_place: bool,
        beside_files: bool,
    ) -> QueueBuild:
        return ToyBuild(staging)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_forms", dict(forms._forms))
    register_queue_form(ToyForm())


def files(store: Path) -> list[Path]:
    return sorted((store / TOY.folder).rglob(TOY.file_name(0)))


def contents(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in files(store)}


def put(store: Path, count: int = 60) -> None:
    with closing(StoreWriter(store, CONFIG)) as writer:
        for number in range(count):
            topic = f"topic-{number % 3}"
            writer.put(Message(topic, b"%d" % number, queue_id=number % 2, keys=f"key-{number}"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store whose folder says that its queues are toys."""
    store = tmp_path / "store"
    (store / TOY.folder).mkdir(parents=True)
    put(store)
    return store


def test_it_is_written_and_read(store: Path) -> None:
    assert len(files(store)) == 6
    assert not list((store / "consumequeue").iterdir())
    assert sum(len(data) for data in contents(store).values()) == 60 * 32
    put(store, 6)
    with closing(open_queues(store)) as index:
        assert index.topics() == ["topic-0", "topic-1", "topic-2"]
        assert index.queue("topic-1", 1).max_queue_offset() == 11
    by_queue = defaultdict(list)
    with reput.open_store(store) as opened:
        for topic, queue_id in opened.list_queues():
            for message in opened.pull(topic, queue_id, 0, 32).messages:
                assert (message.topic, message.queue_id) == (topic, queue_id)
                by_queue[topic, queue_id].append(message.queue_offset)
        assert opened.query("topic-2", "key-5").messages[0].body == b"5"
    assert by_queue.keys() == {(f"topic-{n}", queue_id) for n in range(3) for queue_id in range(2)}
    assert all(numbers == list(range(11)) for numbers in by_queue.values())


def test_it_is_rebuilt(store: Path, tmp_path: Path) -> None:
    expected = contents(store)
    for path in files(store)[::2]:
        path.write_bytes(b"\xff" * 64)
    report = rebuild_store(SerialRunner(), store)
    assert report.queue_entries == 60
    assert contents(store) == expected
    as_files, again = tmp_path / "files", tmp_path / "again"
    rebuild_store(SerialRunner(), store, output=as_files, queues="files")
    assert not files(as_files)
    assert list((as_files / "consumequeue").iterdir())
    rebuild_store(SerialRunner(), store, output=again, queues="toy")
    assert contents(again) == expected
    with pytest.raises(
        UsageError, match="must be 'files' or 'rocksdb' or 'toy' or 'both', not 'game'"
    ):
        rebuild_store(SerialRunner(), store, queues="game")


def test_it_becomes_files_in_place(store: Path) -> None:
    rebuild_store(SerialRunner(), store, queues="files")
    assert not (store / TOY.folder).exists()
    assert facts_of(store).has_queue_files
    assert checked(store) == []


def test_it_is_repaired(store: Path) -> None:
    expected = contents(store)
    files(store)[0].write_bytes(bytes(320))
    report = reput.repair(store)
    assert report.is_valid
    assert contents(store) == expected


def test_it_is_checked(store: Path) -> None:
    assert checked(store) == []
    path = files(store)[0]
    data = path.read_bytes()
    path.write_bytes(data[:32] + data[64:96] + data[64:])
    assert kinds(checked(store)) == {"wrong_queue_entry"}
    path.unlink()
    path.parent.rmdir()
    assert kinds(checked(store)) == {"missing_queue"}


def recover(store: Path) -> RecoveryReport:
    """Open the store as after a crash."""
    (store / "abort").touch()
    with closing(StoreWriter(store, CONFIG)) as writer:
        return writer.recovery


@pytest.mark.parametrize("kept", [0, 1, 100, 320])
def test_it_is_recovered(store: Path, kept: int) -> None:
    expected = contents(store)
    for path in files(store):
        path.write_bytes(path.read_bytes()[:kept])
    report = recover(store)
    assert contents(store) == expected
    assert report.entries_written == 0


@pytest.mark.parametrize("wrong", [bytes(32), b"\xff" * 32, encode(0, 1, 2, 3)])
def test_entries_before_the_last_are_written_again(store: Path, wrong: bytes) -> None:
    """The matcher of all forms finds messages without an entry, and entries with other fields than their message."""
    expected = contents(store)
    for path in files(store):
        data = path.read_bytes()
        path.write_bytes(data[:64] + wrong + data[96:160] + wrong + data[192:])
    recover(store)
    assert contents(store) == expected


def test_an_entry_with_other_fields_is_corrected(store: Path) -> None:
    expected = contents(store)
    path = files(store)[0]
    data = path.read_bytes()
    fields = list(ENTRY.unpack(data[96:128])[:4])
    path.write_bytes(data[:96] + encode(fields[0], fields[1], 77, fields[3]) + data[128:])
    recover(store)
    assert contents(store) == expected


def test_entries_beyond_the_log_are_removed(store: Path) -> None:
    expected = contents(store)
    for path in files(store):
        path.write_bytes(path.read_bytes() + encode(1 << 40, 100, 0, 0))
    recover(store)
    assert contents(store) == expected
