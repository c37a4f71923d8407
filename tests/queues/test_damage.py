"""Damaged ConsumeQueues: an answer belongs to the requested queue, or an error reports what is wrong."""

import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reput
from reput.cli.main import DAMAGED
from reput.core.query.message_store import MessageStore
from reput.core.queues.queue_index import LostEntriesError
from reput.core.queues.store_queues import ConsumeQueueSetReader
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.messages.topic_messages import messages_of_topic
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError
from reput.io.lock import locked
from tests.cli.running import reput as run
from tests.oracle.forge import RecordFields, forge_log
from tests.query.stores import build_store

ENTRY = struct.Struct(">qiq")
FILE_ENTRIES = 30
MESSAGES = 200
LMQ = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Messages of T/0 and U/1 in turns, each queue in files of 30 entries."""
    return new_store(tmp_path)


def new_store(tmp_path: Path, **fields: Any) -> Path:
    records = [
        RecordFields(
            topic="TU"[n % 2], queue_id=n % 2, queue_offset=n // 2, body=b"%d" % n, **fields
        )
        for n in range(MESSAGES)
    ]
    return build_store(tmp_path / "store", forge_log(records, file_bytes=4096).files(), 50, 900)


def queue_bytes(store: Path, topic: str = "T") -> bytearray:
    folder = store / "consumequeue" / topic / str("TU".index(topic))
    return bytearray(b"".join(path.read_bytes() for path in sorted(folder.iterdir())))


def write_queue(store: Path, data: bytes, topic: str = "T") -> None:
    folder = store / "consumequeue" / topic / str("TU".index(topic))
    for path in folder.iterdir():
        path.unlink()
    size = FILE_ENTRIES * ENTRY.size
    for start in range(0, len(data), size):
        part = data[start : start + size]
        (folder / f"{start:020d}").write_bytes(part.ljust(size, b"\0"))


def change(store: Path, edit: Callable[[bytearray], object]) -> None:
    data = queue_bytes(store)
    edit(data)
    write_queue(store, bytes(data))


def entry_of(number: int) -> slice:
    return slice(number * ENTRY.size, (number + 1) * ENTRY.size)


def body_at(opened: MessageStore, number: int) -> bytes:
    return opened.get_by_queue("T", 0, number).body


def tail(store: Path, count: int, topic: str | None = "T") -> tuple[list[int], list[str]]:
    with reput.open_store(store) as opened:
        end = LogTail(opened, TailFilter(topic))
        found = [message.queue_offset for message in end.last(count)]
        return found, [str(finding) for finding in end.damage]


def test_an_undamaged_store_is_read_in_every_way(store: Path) -> None:
    with reput.open_store(store) as opened:
        assert len(opened.pull("T", 0, 0, 1000).messages) == MESSAGES // 2
        assert opened.pull("T", 0, MESSAGES // 2).messages == ()
        assert body_at(opened, 7) == b"14"
    assert tail(store, 10) == ([*range(90, 100)], [])


def test_an_entry_of_another_topic_gives_no_message(store: Path) -> None:
    other = queue_bytes(store, "U")[entry_of(95)]
    change(store, lambda data: data.__setitem__(entry_of(95), other))
    with reput.open_store(store) as opened:
        for ask in (
            lambda: opened.pull("T", 0, 95),
            lambda: opened.pull_records("T", 0, 95),
            lambda: opened.get_by_queue("T", 0, 95),
        ):
            with pytest.raises(CorruptMessageError, match="a message of U/1, queue offset 95"):
                ask()
        assert body_at(opened, 96) == b"192"
    ran = run("show", store, "T/0/95")
    assert (ran.code, ran.out) == (DAMAGED, "")
    found, damage = tail(store, 9)
    assert found == [90, 91, 92, 93, 94, 96, 97, 98, 99]
    assert any(
        "queue offset 95: the entry leads to a message of another queue or queue offset" in x
        for x in damage
    )
    assert run("tail", store, "--topic", "T", "-n", 9).code == DAMAGED


def test_an_entry_of_another_place_of_the_queue_gives_no_message(store: Path) -> None:
    earlier = queue_bytes(store)[entry_of(40)]
    change(store, lambda data: data.__setitem__(entry_of(95), earlier))
    with reput.open_store(store) as opened:
        with pytest.raises(CorruptMessageError, match="a message of T/0, queue offset 40"):
            opened.pull("T", 0, 95)
        with pytest.raises(CorruptMessageError, match="T/0, queue offset 40"):
            opened.get_by_queue("T", 0, 95)


@pytest.mark.parametrize("lost", [range(50, 51), range(40, 75), range(90, 99), range(3)])
def test_empty_entries_before_others_are_damage(store: Path, lost: range) -> None:
    size = ENTRY.size * len(lost)
    start = ENTRY.size * lost.start
    change(store, lambda data: data.__setitem__(slice(start, start + size), bytes(size)))
    with reput.open_store(store) as opened:
        assert opened.max_queue_offset("T", 0) == 100
        assert opened.min_queue_offset("T", 0) == 0
        for ask in (
            lambda: opened.pull("T", 0, lost.start),
            lambda: opened.get_by_queue("T", 0, lost.start),
        ):
            with pytest.raises(LostEntriesError, match="lost, but later ones exist") as caught:
                ask()
            assert caught.value.resume_offset == lost.stop
        assert opened.pull("T", 0, lost.stop, 1).messages[0].queue_offset == lost.stop
    found, damage = tail(store, 100)
    assert found == [n for n in range(100) if n not in lost]
    assert damage
    assert run("tail", store, "--topic", "T", "-n", 100).code == DAMAGED
    assert run("show", store, f"T/0/{lost.start}").code == DAMAGED


def test_a_file_missing_between_others_is_damage(store: Path) -> None:
    (store / "consumequeue" / "T" / "0" / f"{30 * ENTRY.size:020d}").unlink()
    with reput.open_store(store) as opened:
        assert len(opened.pull("T", 0, 0, 30).messages) == 30
        with pytest.raises(LostEntriesError, match="30 to 59 are lost") as caught:
            opened.pull("T", 0, 30)
        assert caught.value.resume_offset == 60
    assert tail(store, 100)[1]


@pytest.mark.parametrize("end", [0, 10, 60, 99])
@pytest.mark.parametrize("how", ["zeroed", "cut"])
def test_a_queue_that_ends_before_the_logs_messages_of_it_is_damage(
    store: Path, end: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reput.core.query.queue_ends._PATIENCE_S", 0.001
    )  # no process dispatches here
    data = bytes(queue_bytes(store)[: end * ENTRY.size])
    write_queue(store, data if how == "cut" else data.ljust(MESSAGES // 2 * ENTRY.size, b"\0"))
    reason = "later message of it" if end else "messages of this queue, but the queue is lost"
    with reput.open_store(store) as opened:
        for ask in (
            lambda: opened.pull("T", 0, end),
            lambda: opened.pull("T", 0, end),
            lambda: opened.get_by_queue("T", 0, end),
        ):
            with pytest.raises(FormatError, match=reason):
                ask()
    found, damage = tail(store, 100)
    assert damage
    assert found[-1:] == ([end - 1] if end else [])
    assert run("tail", store, "--topic", "T", "-n", 100).code == DAMAGED


def test_messages_that_are_not_dispatched_yet_are_no_damage(store: Path) -> None:
    """The newest messages are in no queue and in no index, because dispatch has not reached them."""
    without_newest(store, 90)
    with locked(store / "lock", "a broker"), reput.open_store(store) as opened:
        assert opened.pull("T", 0, 90).messages == ()
        with pytest.raises(MessageNotFoundError):
            opened.get_by_queue("T", 0, 90)
        assert tail(store, 5) == ([95, 96, 97, 98, 99], [])


def test_messages_that_nobody_will_dispatch_are_damage(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues and index of an earlier state. A tail reads the newest messages from the log."""
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    without_newest(store, 90)
    with reput.open_store(store) as opened:
        for ask in (lambda: opened.pull("T", 0, 90), lambda: opened.get_by_queue("T", 0, 90)):
            with pytest.raises(FormatError, match="the CommitLog has a later message"):
                ask()
        opened.check_later("T", 0, before=opened.get_by_queue("T", 0, 89).physical_offset + 1)
        assert not messages_of_topic(opened, "T", 0, 2**62).coverage.is_complete
    assert tail(store, 5) == ([95, 96, 97, 98, 99], [])
    assert tail(store, 50) == ([*range(50, 100)], [])


def without_newest(store: Path, count: int) -> None:
    """Cut the queues to `count` entries, and delete the index."""
    for topic in "TU":
        write_queue(store, bytes(queue_bytes(store, topic)[: count * ENTRY.size]), topic)
    for path in (store / "index").iterdir():
        path.unlink()


def test_what_scans_have_shown_leads_over_more_than_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check may walk over a few records only. Files without the queue are passed at once."""
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    monkeypatch.setattr("reput.core.query.queue_ends._MOST_BYTES_A_LOOK", 2048)
    queues = [("T", 0)] * 5 + [("U", 1)] * 150 + [("T", 0)]
    counts = {queue: iter(range(MESSAGES)) for queue in queues}
    records = [
        RecordFields(topic=topic, queue_id=queue_id, queue_offset=next(counts[topic, queue_id]))
        for topic, queue_id in queues
    ]
    files = forge_log(records, file_bytes=2048).files()
    store = build_store(tmp_path / "store", files, FILE_ENTRIES, 900)
    with reput.open_store(store) as opened:
        assert opened.check_later("T", 0)
    write_queue(store, bytes(queue_bytes(store)[: 5 * ENTRY.size]))
    with reput.open_store(store) as opened:
        with pytest.raises(FormatError, match="a later message of it"):
            opened.check_later("T", 0)
        monkeypatch.setattr("reput.core.query.queue_ends._MOST_SCANNED_BYTES", 0)
        assert opened.check_later("U", 1)
    with reput.open_store(store) as opened:
        assert not opened.check_later("T", 0), "not searched to its end"


def test_a_lost_part_of_the_log_may_have_messages_for_queues_that_are_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only second message of U/1 is in a log file that was zeroed."""
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    queues = [("U", 1), *[("T", 0)] * 60, ("U", 1), *[("T", 0)] * 90]
    counts = {queue: iter(range(MESSAGES)) for queue in queues}
    records = [
        RecordFields(topic=topic, queue_id=queue_id, queue_offset=next(counts[topic, queue_id]))
        for topic, queue_id in queues
    ]
    log = forge_log(records, file_bytes=4096).files()
    store = build_store(tmp_path / "store", log, FILE_ENTRIES, 900)
    with reput.open_store(store) as opened:
        lost = opened.get_by_queue("U", 1, 1).physical_offset // 4096 * 4096
        starts = [opened.get_by_queue("T", 0, n).physical_offset for n in range(150)]
    (store / "commitlog" / f"{lost:020d}").write_bytes(bytes(4096))
    whole = bytes(queue_bytes(store))
    write_queue(store, bytes(queue_bytes(store, "U")[: ENTRY.size]), "U")
    write_queue(store, whole[: sum(start < lost for start in starts) * ENTRY.size])
    with reput.open_store(store) as opened, pytest.raises(FormatError, match="may have messages"):
        opened.pull("U", 1, 1)
    write_queue(store, whole)
    with reput.open_store(store) as opened:
        assert opened.pull("U", 1, 1).messages == (), "the lost part was dispatched"


def test_a_message_that_dispatch_passes_later_is_damage(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first look finds the message before dispatch has reached it. A later look must find it again."""
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    other = bytes(queue_bytes(store, "U"))
    without_newest(store, 99)
    with reput.open_store(store) as opened:
        with locked(store / "lock", "a broker"):
            assert opened.pull("T", 0, 99).messages == ()
        write_queue(store, other, "U")
        with pytest.raises(FormatError, match="the CommitLog has a later message"):
            opened.pull("T", 0, 99)


def test_a_slow_owner_may_still_dispatch_what_the_index_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch writes one queue after the other, and then the index. So only the index proves that an entry is lost."""
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    store = new_store(tmp_path, properties={"KEYS": "k"})
    write_queue(store, bytes(queue_bytes(store)[: 99 * ENTRY.size]))
    kept = {path: path.read_bytes() for path in (store / "index").iterdir()}
    for path in kept:
        path.unlink()
    with locked(store / "lock", "a broker"), reput.open_store(store) as opened:
        assert opened.pull("T", 0, 99).messages == ()
        for path, data in kept.items():
            path.write_bytes(data)
        with pytest.raises(FormatError, match="the CommitLog has a later message"):
            opened.pull("T", 0, 99)
    for path in kept:
        path.unlink()
    with (
        reput.open_store(store) as opened,
        pytest.raises(FormatError, match="the CommitLog has a later message"),
    ):
        opened.pull("T", 0, 99)


def test_an_entry_in_a_new_file_ends_the_wait(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bytes(queue_bytes(store))
    write_queue(store, whole[: 90 * ENTRY.size])  # three full files
    last = store / "consumequeue" / "T" / "0" / f"{90 * ENTRY.size:020d}"

    def dispatch(seconds: float) -> None:
        last.write_bytes(whole[90 * ENTRY.size :].ljust(FILE_ENTRIES * ENTRY.size, b"\0"))

    clock = SimpleNamespace(sleep=dispatch, monotonic=time.monotonic)
    monkeypatch.setattr("reput.core.query.queue_ends.time", clock)
    with reput.open_store(store) as opened:
        opened.pull("T", 0, 90)
        assert len(opened.pull("T", 0, 90).messages) == 10


def test_entries_that_were_cut_out_are_a_gap_and_those_twice_are_repeats(store: Path) -> None:
    data = queue_bytes(store)
    write_queue(store, bytes(data[: 90 * ENTRY.size] + data[93 * ENTRY.size :]))
    with (
        reput.open_store(store) as opened,
        pytest.raises(CorruptMessageError, match="T/0, queue offset 93"),
    ):
        opened.pull("T", 0, 90)
    _, damage = tail(store, 15)
    assert any("missing after it, queue offsets 90 to 92" in line for line in damage)
    write_queue(store, bytes(data[: 92 * ENTRY.size] + data[90 * ENTRY.size :]))
    _, damage = tail(store, 15)
    assert any("another entry of the queue has" in line for line in damage)


def test_a_queue_without_places_for_lost_messages_can_be_pulled(tmp_path: Path) -> None:
    """A broker leaves no places for messages that the log has lost, so later entries are at earlier places."""
    numbers = [n for n in range(40) if n not in (10, 11)]
    records = [RecordFields(topic="T", queue_offset=n) for n in numbers]
    path = build_store(tmp_path / "store", forge_log(records, file_bytes=4096).files(), 50, 900)
    with reput.open_store(path) as opened:
        found = opened.pull("T", 0, 0, 100).messages
        assert [message.queue_offset for message in found] == numbers
        assert opened.pull("T", 0, 20).messages[0].queue_offset == 22


def test_further_queues_lead_to_their_messages(tmp_path: Path) -> None:
    with reput.open_store(
        tmp_path / "s",
        mode="rw",
        config=reput.StoreConfig(1 << 15, 50, 64, 300, enable_multi_dispatch=True, enable_lmq=True),
    ) as store:
        for n in range(9):
            store.put(reput.Message("T", b"%d" % n, properties=LMQ, queue_id=3))
        assert store.wait_dispatched()
        for topic, queue_id in (("%LMQ%a", 0), ("%LMQ%b", 0), ("T", 3)):
            pulled = store.pull(topic, queue_id, 0)
            assert [message.body for message in pulled.messages] == [b"%d" % n for n in range(9)]
            assert store.get_by_queue(topic, queue_id, 4).body == b"4"
            assert store.pull(topic, queue_id, 9).messages == ()


def test_a_queue_of_garbage_after_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    good = b"".join(ENTRY.pack(100 * n, 100, 7) for n in range(1, 6))
    (folder / f"{0:020d}").write_bytes((good + bytes(80) + b"\xff" * 40).ljust(400, b"\0"))
    with ConsumeQueueSetReader(tmp_path) as queues:
        assert queues.queue("T", 0).max_queue_offset() == 5


def test_an_entry_that_is_just_being_written_is_read_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bytes(queue_bytes(store))
    holed = whole[: 40 * ENTRY.size] + bytes(2 * ENTRY.size) + whole[42 * ENTRY.size :]
    write_queue(store, holed)
    path = store / "consumequeue" / "T" / "0" / f"{FILE_ENTRIES * ENTRY.size:020d}"
    with reput.open_store(store) as opened:
        with pytest.raises(LostEntriesError):
            opened.get_by_queue("T", 0, 40)

        def write_entry(_: float) -> None:
            with path.open("r+b") as file:
                file.write(whole[FILE_ENTRIES * ENTRY.size : 41 * ENTRY.size])

        monkeypatch.setattr("reput.core.queues.reader.time", SimpleNamespace(sleep=write_entry))
        assert opened.get_by_queue("T", 0, 40).body == b"80"
        with pytest.raises(LostEntriesError):
            opened.get_by_queue("T", 0, 41)
