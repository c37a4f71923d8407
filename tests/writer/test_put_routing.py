"""Destinations of messages besides their own queue, and batches: cases that no golden store has."""

from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.engine.writer.put.message import Message
from reput.engine.writer.put.results import PutResults
from reput.engine.writer.store_writer import StoreWriter
from reput.errors import MessageRefusedError
from tests.oracle.records import Record, decode

SMALL = StoreConfig(commit_log_file_bytes=4096, queue_entries=20, hash_slots=10, index_items=40)
LMQ = StoreConfig(
    commit_log_file_bytes=4096, queue_entries=20, hash_slots=10, index_items=40,
    enable_multi_dispatch=True, enable_lmq=True,
)  # fmt: skip
WAYS = ("put", "put_many")


def put(writer: StoreWriter, way: str, message: Message) -> Record:
    """Put a message in one of these ways; return the record."""
    result = writer.put(message) if way == "put" else writer.put_many([message])[0]
    start = result.physical_offset - result.physical_offset % SMALL.commit_log_file_bytes
    data = (writer.path / "commitlog" / f"{start:020d}").read_bytes()
    record = decode(data, result.physical_offset - start)
    assert isinstance(record, Record)
    assert record.queue_offset == result.queue_offset
    return record


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("whole", [False, True])
def test_a_level_above_all_is_the_highest(tmp_path: Path, way: str, whole: bool) -> None:
    properties: dict[str, str] | str = {"UNIQ_KEY": "u", "DELAY": "99"}
    if whole:
        properties = "UNIQ_KEY\x01u\x02DELAY\x0199"
    writer = StoreWriter(tmp_path, SMALL)
    record = put(writer, way, Message("Topic", b"x", queue_id=3, properties=properties))
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
    assert record.properties == {
        "REAL_TOPIC": "Topic", "UNIQ_KEY": "u", "DELAY": "18", "REAL_QID": "3",
    }  # fmt: skip
    assert list(record.properties) == ["REAL_TOPIC", "UNIQ_KEY", "DELAY", "REAL_QID"]
    writer.close()


@pytest.mark.parametrize(
    "message",
    [
        Message("Topic", properties={"DELAY": "0"}),
        Message("Topic", properties={"DELAY": "-1"}),
        Message("Topic", properties={"DELAY": "5"}, sys_flag=4),
        Message("Topic", properties={"DELAY": "no number"}, sys_flag=12),
        Message("Topic", properties="NODELAY\x015"),
        Message("SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2", "REAL_TOPIC": "T"}),
        Message("Topic", properties={"DELAY": "1", "REAL_TOPIC": "Topic", "REAL_QID": "0"}),
    ],
)
def test_what_is_not_delayed_stays_as_it_is(tmp_path: Path, way: str, message: Message) -> None:
    writer = StoreWriter(tmp_path, SMALL)
    record = put(writer, way, message)
    assert (record.topic, record.queue_id) == (message.topic, 0)
    if isinstance(message.properties, dict):
        record.properties.pop("UNIQ_KEY")
        assert record.properties == message.properties
    else:
        assert record.properties_string == message.properties
    writer.close()


def test_a_committed_message_is_delayed(tmp_path: Path, way: str) -> None:
    writer = StoreWriter(tmp_path, SMALL)
    record = put(writer, way, Message("T", keys=["k"], properties={"DELAY": "1"}, sys_flag=8))
    assert (record.topic, record.queue_id, record.keys) == ("SCHEDULE_TOPIC_XXXX", 0, "k")
    writer.close()


def test_further_queues_go_on_after_a_restart(tmp_path: Path, way: str) -> None:
    message = Message(
        "Parent", b"x", queue_id=2, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,Plain", "WAIT": "true"}
    )  # fmt: skip
    for number in range(3):
        writer = StoreWriter(tmp_path, LMQ)
        for step in range(2):
            record = put(writer, way, message)
            expected = str(2 * number + step)
            assert record.properties["INNER_MULTI_QUEUE_OFFSET"] == f"{expected},{expected}"
            assert "WAIT" not in record.properties
        writer.close()
    for folder in ("%LMQ%a/0", "Plain/2", "Parent/2"):
        entries = (tmp_path / "consumequeue" / folder / f"{0:020d}").read_bytes()
        assert entries[5 * 20 + 8 : 5 * 20 + 12] != bytes(4) == entries[6 * 20 + 8 : 6 * 20 + 12]


def test_a_prepared_message_counts_in_no_further_queue(tmp_path: Path, way: str) -> None:
    writer = StoreWriter(tmp_path, LMQ)
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    for sys_flag in (4, 12, 0, 8):
        put(writer, way, Message("Parent", properties=properties, sys_flag=sys_flag))
    record = put(writer, way, Message("Parent", properties=properties))
    assert record.properties["INNER_MULTI_QUEUE_OFFSET"] == "2"
    writer.close()


def test_without_the_setting_a_broker_does_not_look_at_it(tmp_path: Path, way: str) -> None:
    writer = StoreWriter(tmp_path, SMALL)
    record = put(writer, way, Message("P", properties={"INNER_MULTI_DISPATCH": "a,a,,"}))
    assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties
    writer.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("T", properties={"DELAY": "soon"}), "must be a whole number"),
        (Message("SCHEDULE_TOPIC_XXXX", properties={"DELAY": "1x"}, sys_flag=4), "must be a whole number"),
        (Message("T", properties="DELAY\x01 5"), "must be a whole number"),
        (Message("a/b", properties={"DELAY": "1"}), "name of a folder"),
        (Message("T", queue_id=-1, properties={"DELAY": "1"}), "queue_id -1"),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "a,,b"}), "name of a folder"),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "a/b"}), "name of a folder"),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "x" * 128}), "topic of 128 bytes"),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "a,b,a"}), "name each queue once"),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "a,T"}), "name each queue once"),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "a", "p": "x" * 32_722}), "properties of"),
    ],
)  # fmt: skip
def test_what_a_broker_would_lose_is_refused(
    tmp_path: Path, way: str, message: Message, reason: str
) -> None:
    writer = StoreWriter(tmp_path, LMQ)
    with pytest.raises(MessageRefusedError, match=reason):
        put(writer, way, message)
    assert writer.end_offset == 0
    assert put(writer, way, Message("T")).queue_offset == 0
    writer.close()


def test_a_batch_is_not_parted(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, SMALL)
    writer.put(Message("Topic", bytes(2000)))
    batch = [Message("Topic", bytes(500), [f"k{number}"]) for number in range(4)]
    results = writer.put_batch(batch)
    assert isinstance(results, PutResults)
    assert results[0].physical_offset == 4096
    assert [one.queue_offset for one in results] == [1, 2, 3, 4]
    assert {one.store_timestamp for one in results} == {results[-1].store_timestamp}
    assert writer.put(batch[0]).queue_offset == 5
    writer.close()


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ([], "at least one"),
        ([Message("A"), Message("B")], "one topic and one queue"),
        ([Message("A"), Message("A", queue_id=1)], "one topic and one queue"),
        (
            [Message("A"), Message("A", sys_flag=8)],
            "message 1: a batch cannot contain messages of transactions",
        ),
        (
            [Message("A", properties={"DELAY": "1"})],
            "message 0: a batch cannot contain delayed messages",
        ),
        (
            [Message("A", properties={"INNER_MULTI_DISPATCH": "q"})],
            "cannot have INNER_MULTI_DISPATCH",
        ),
        ([Message("A", bytes(1000))] * 4, "at most 4088 bytes"),
        ([Message("A"), Message("A", properties={"p": "a\x02b"})], "x02"),
    ],
)
def test_what_is_no_batch_is_refused_as_a_whole(
    tmp_path: Path, batch: list[Message], reason: str
) -> None:
    writer = StoreWriter(tmp_path, LMQ)
    with pytest.raises(MessageRefusedError, match=reason):
        writer.put_batch(batch)
    assert writer.end_offset == 0
    assert writer.put(Message("A")).queue_offset == 0
    writer.close()
