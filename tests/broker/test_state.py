"""A broker's data besides its store: topics, offsets, locks, groups; in memory and in config/."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from reput import Message, open_store
from reput.engine.writer.shared_store import SharedStore
from reput.errors import FormatError, UsageError
from reput.wings.serve.broker.groups import (
    SILENT_MS,
    Client,
    ClientGroups,
    ConsumerGroup,
    Joining,
    SubscriptionGroups,
    TopicSubscription,
)
from reput.wings.serve.broker.lag import QueueLag
from reput.wings.serve.broker.locks import LOCK_MS, MessageQueue, QueueLocks
from reput.wings.serve.broker.offsets import (
    ConsumerOffsets,
    PulledOffsets,
    _size,
    check_kept_in_files,
)
from reput.wings.serve.broker.topics import PERM_READ, PERM_WRITE, TopicTable
from tests.small import SMALL


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def saved(kept: ConsumerOffsets | TopicTable) -> None:
    for save in kept.unsaved():
        save()


def test_a_brokers_own_offsets_are_read_and_kept_in_its_form(tmp_path: Path) -> None:
    file = tmp_path / "config" / "consumerOffset.json"
    text = '{\n\t"offsetTable":{\n\t\t"T@g":{0:250,1:3\n\t\t}\n\t}\n}'
    write(file, text)
    offsets = ConsumerOffsets(tmp_path, is_writable=True)
    assert (offsets.committed("g", "T", 0), offsets.committed("g", "T", 2)) == (250, None)
    assert (offsets.topics_of("g"), offsets.groups_of("T")) == (["T"], ["g"])
    assert offsets.snapshot()().decode() == text
    offsets.commit("h", "T", 1, 9)
    saved(offsets)
    assert file.read_text() == text[: -len("\n\t}\n}")] + ',\n\t\t"T@h":{1:9\n\t\t}\n\t}\n}'
    assert file.with_name("consumerOffset.json.bak").read_text() == text


def test_a_save_that_began_before_a_removal_does_not_bring_offsets_back(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path, is_writable=True)
    offsets.commit("g", "T", 0, 39)
    early = list(offsets.unsaved())
    offsets.remove(lambda topic, group: True)
    offsets.save()
    for save in early:
        save()
    assert ConsumerOffsets(tmp_path, is_writable=True).committed("g", "T", 0) is None


def test_a_save_waits_for_the_one_that_has_taken_its_changes(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path, is_writable=True)
    offsets.commit("g", "T", 0, 39)
    encoding, may_encode, kept = Event(), Event(), list[int | None]()
    snapshot = offsets.snapshot

    def slow() -> Callable[[], bytes]:
        encode = snapshot()

        def encode_slowly() -> bytes:
            encoding.set()
            assert may_encode.wait(60)
            return encode()

        return encode_slowly

    offsets.snapshot = slow  # type: ignore[assignment,method-assign]
    (save,) = offsets.unsaved()
    first = Thread(target=save)
    first.start()
    assert encoding.wait(60)

    def save_too() -> None:
        offsets.save()
        kept.append(ConsumerOffsets(tmp_path, is_writable=True).committed("g", "T", 0))

    second = Thread(target=save_too)
    second.start()
    second.join(0.05)
    may_encode.set()
    first.join(60)
    second.join(60)
    assert kept == [39]


def test_offsets_of_a_store_that_is_only_read_are_not_written(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path, is_writable=False)
    offsets.commit("g", "T", 0, 5)
    saved(offsets)
    assert (offsets.committed("g", "T", 0), list(tmp_path.iterdir())) == (5, [])


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"offsetTable":{"T@g":{0:"x"}}}', '{"offsetTable":[1]}']
)
def test_a_file_that_is_not_one_is_named(tmp_path: Path, text: str) -> None:
    write(tmp_path / "config" / "consumerOffset.json", text)
    with pytest.raises(FormatError, match=r"consumerOffset\.json"):
        ConsumerOffsets(tmp_path, is_writable=True)


def test_damaged_offsets_give_way_to_those_before_and_are_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config" / "consumerOffset.json"
    write(file, '{"offsetTable":{"T@g":{0:"x"}}}')
    with pytest.raises(FormatError, match="move the file away to begin without it"):
        ConsumerOffsets(tmp_path, is_writable=True)
    write(file.with_name("consumerOffset.json.bak"), '{"offsetTable":{"T@g":{0:7}}}')
    for is_writable in (False, True):
        offsets = ConsumerOffsets(tmp_path, is_writable)
        assert offsets.committed("g", "T", 0) == 7
        assert "consumerOffset.json.bak is used instead" in caplog.text
        assert file.exists() is not is_writable
    killed = ConsumerOffsets(tmp_path, is_writable=True)
    assert killed.committed("g", "T", 0) == 7
    saved(offsets)
    assert file.read_bytes() == offsets.snapshot()()
    assert file.with_name("consumerOffset.json.damaged").exists()


def test_offsets_set_aside_are_written_even_if_none_changes(tmp_path: Path) -> None:
    file = tmp_path / "config" / "consumerOffset.json"
    write(file, "{")
    # The backup has the bytes that the next save would write. The save must write them although nothing changes.
    previous = ConsumerOffsets(tmp_path / "other", is_writable=True)
    previous.commit("g", "T", 0, 7)
    write(file.with_name("consumerOffset.json.bak"), previous.snapshot()().decode())
    saved(ConsumerOffsets(tmp_path, is_writable=True))
    file.with_name("consumerOffset.json.bak").unlink()
    assert ConsumerOffsets(tmp_path, is_writable=True).committed("g", "T", 0) == 7


@pytest.mark.parametrize("text", [None, ""])
def test_offsets_that_are_missing_or_empty_give_way_to_those_before(
    tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "config" / "consumerOffset.json"
    write(file.with_name("consumerOffset.json.bak"), '{"offsetTable":{"T@g":{0:7}}}')
    if text is not None:
        write(file, text)
    offsets = ConsumerOffsets(tmp_path, is_writable=False)
    assert offsets.committed("g", "T", 0) == 7


def test_more_offsets_than_may_be_are_served_without_those_of_unknown_topics(
    tmp_path: Path,
) -> None:
    table = ",".join(f'"{topic}@g":{{0:7}}' for topic in ("T", *(f"t{n}" for n in range(100))))
    write(tmp_path / "config" / "consumerOffset.json", f'{{"offsetTable":{{{table}}}}}')
    offsets = ConsumerOffsets(tmp_path, True, most_bytes=1000)
    offsets.drop_strangers(lambda topic: topic == "T")
    assert (offsets.committed("g", "T", 0), offsets.topics_of("g")) == (7, ["T"])
    offsets.commit("h", "T", 0, 1)
    saved(offsets)
    assert ConsumerOffsets(tmp_path, True).topics_of("g") == ["T"]


def test_offsets_of_as_many_bytes_as_may_be_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "config" / "consumerOffset.json", '{"offsetTable":{"T@g":{0:7,1:8}}}')
    most_bytes = _size(("T@g", {0: 7, 1: 8}))
    for less, topics in ((0, ["T"]), (1, [])):
        offsets = ConsumerOffsets(tmp_path, False, most_bytes=most_bytes - less)
        offsets.drop_strangers(lambda topic: False)
        assert offsets.topics_of("g") == topics


def test_a_long_file_of_offsets_starts(tmp_path: Path) -> None:
    entries = ",".join(f'"{"x" * 1000}{n}@g":{{0:{n}}}' for n in range(70_000))
    write(tmp_path / "config" / "consumerOffset.json", f'{{"offsetTable":{{{entries}}}}}')
    offsets = ConsumerOffsets(tmp_path, False)
    assert (tmp_path / "config" / "consumerOffset.json").stat().st_size > 64 << 20
    offsets.drop_strangers(lambda topic: False)
    assert list(offsets.entries()) == []


def test_a_lock_is_one_clients_until_it_is_given_back_or_forgotten() -> None:
    clock = Clock()
    locks, queues = QueueLocks(clock), [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
    assert locks.lock("g", "c1", queues) == queues
    assert locks.lock("g", "c2", queues) == []
    assert locks.lock("other", "c2", queues) == queues
    locks.unlock("g", "c2", queues)
    locks.unlock("g", "c1", queues[:1])
    assert locks.lock("g", "c2", queues) == queues[:1]
    clock.now += LOCK_MS
    assert locks.lock("g", "c1", queues[1:]) == queues[1:]
    clock.now += LOCK_MS + 1
    assert locks.lock("g", "c1", queues) == queues


def client(name: str) -> Client:
    return Client(name, name, "127.0.0.1:1", "JAVA", 399)


def test_members_are_told_when_a_group_changes() -> None:
    told: list[tuple[str, list[object]]] = []
    clock = Clock()
    groups = ClientGroups(lambda group, members: told.append((group, [*members])), clock)
    wanted = [TopicSubscription("T", "a", "TAG", 1, b"{}")]
    groups.register(client("c1"), [Joining("g", ConsumerGroup(), wanted)])
    groups.register(client("c1"), [Joining("g", ConsumerGroup(), wanted)])
    groups.register(client("c2"), [Joining("g", ConsumerGroup(), wanted)])
    groups.register(client("c1"), [], ["p"])
    assert told == [("g", ["c1"]), ("g", ["c1", "c2"])]
    assert groups.consumers_of("T") == ["g"]
    newer = [TopicSubscription("T", "b", "TAG", 2, b"{}")]
    groups.register(client("c1"), [Joining("g", ConsumerGroup(), newer)])
    groups.register(client("c2"), [Joining("g", ConsumerGroup(), wanted)])
    found = groups.subscription("g", "T")
    assert found is not None
    assert found.expression == "b"
    groups.disconnect("c1")
    assert (told[-1], groups.producers("p")) == (("g", ["c2"]), [])
    clock.now += SILENT_MS + 1
    groups.forget_silent()
    assert groups.consumer_group("g") is None


def test_topics_are_those_of_the_file_and_those_that_have_queues(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", mode="rw", config=SMALL) as made:
        made.put(Message("found", b"x", queue_id=5))
    table = '{"dataVersion":{"counter":3},"topicConfigTable":{"known":{"topicName":"known","readQueueNums":2,'
    write(tmp_path / "s" / "config" / "topics.json", table + '"writeQueueNums":2,"perm":6}}}')
    store = SharedStore(tmp_path / "s")
    topics = TopicTable(store, tmp_path / "s", is_writable=False)
    assert [each.name for each in topics.view().configs()] == ["found", "known"]
    found, known = topics.get("found"), topics.get("known")
    assert found is not None
    assert known is not None
    assert (found.read_queues, found.perm, known.read_queues, known.perm) == (
        6,
        PERM_READ,
        2,
        PERM_READ,
    )
    assert topics.get("missing") is None
    topics.create("made", 3)
    made_topic = topics.get("made")
    assert made_topic is not None
    assert made_topic.read_queues == 3
    assert "made" not in (tmp_path / "s" / "config" / "topics.json").read_text()
    store.close()


def test_created_topics_are_kept_where_the_store_is_written(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", mode="rw", config=SMALL) as store:
        topics = TopicTable(store, tmp_path / "s", is_writable=True)
        topics.create("made", 3)
        saved(topics)
        again = TopicTable(store, tmp_path / "s", is_writable=True)
        made = again.get("made")
        assert made is not None
        assert (made.write_queues, made.perm) == (3, PERM_READ | PERM_WRITE)
        assert again.data_version()["counter"] == 1


def test_groups_of_the_file_are_as_it_says_and_others_have_defaults(tmp_path: Path) -> None:
    table = (
        '{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,"consumeEnable":false}}}'
    )
    write(tmp_path / "config" / "subscriptionGroup.json", table)
    groups = SubscriptionGroups(tmp_path)
    assert (groups.get("g").most_retries, groups.get("g").may_consume) == (3, False)
    assert (groups.get("x").most_retries, groups.get("x").may_consume) == (16, True)


def test_a_reset_is_taken_once_and_leaves_those_of_other_queues(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path, is_writable=False)
    for queue_id in range(2):
        offsets.reset("g", "T", queue_id, 10 + queue_id)
    offsets.reset("other", "T", 0, 30)
    assert offsets.take_reset("g", "T", 0) == 10
    assert offsets.take_reset("g", "T", 0) is None
    assert not offsets.is_reset("g", "T", 0)
    assert offsets.is_reset("g", "T", 1)
    assert offsets.take_reset("g", "T", 1) == 11
    assert offsets.take_reset("other", "T", 0) == 30


def test_offsets_of_one_topic_are_copied_to_another_group(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path, is_writable=True)
    for group, topic, queue_id, offset in (
        ("g", "T", 0, 5),
        ("g", "T", 1, 6),
        ("g", "U", 0, 7),
        ("h", "T", 1, 9),
    ):
        offsets.commit(group, topic, queue_id, offset)
    offsets.clone("g", "h", "T")
    assert [offsets.committed("h", "T", queue_id) for queue_id in (0, 1)] == [5, 6]
    assert (offsets.topics_of("h"), offsets.topics_of("g")) == (["T"], ["T", "U"])


@pytest.mark.parametrize("is_database", [True, False])
def test_a_store_whose_broker_keeps_offsets_in_a_database_is_refused(
    tmp_path: Path, is_database: bool
) -> None:
    folder = tmp_path / "config" / "consumerOffsets"
    folder.mkdir(parents=True)
    (folder / ("CURRENT" if is_database else "other")).write_text("MANIFEST-000001\n")
    if is_database:
        with pytest.raises(UsageError, match="the broker keeps its configuration in RocksDB"):
            check_kept_in_files(tmp_path)
    else:
        check_kept_in_files(tmp_path)


def test_a_pull_of_a_new_queue_replaces_the_oldest_of_too_many() -> None:
    pulled = PulledOffsets(most=2)
    for queue_id, offset in ((0, 5), (1, 6), (0, 7), (2, 8)):
        pulled.note("g", "T", queue_id, offset)
    assert [pulled.get("g", "T", queue_id) for queue_id in range(3)] == [-1, 6, 8]
    pulled.note("g", "T", 1, 9)
    assert [pulled.get("g", "T", queue_id) for queue_id in range(3)] == [-1, 9, 8]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("committed", "ends", "problem", "lag", "expired"),
    [
        (3, (1, 10), None, 7, 0),
        (3, (5, 10), None, 7, 2),
        (-1, (2, 10), None, 10, 2),
        (12, (0, 10), None, 0, 0),
        (3, (None, None), None, None, 0),
        (3, (5, 10), "lost", None, 2),
    ],
)
def test_the_lag_of_a_group_counts_expired_messages_and_may_be_unknown(
    committed: int,
    ends: tuple[int | None, int | None],
    problem: str | None,
    lag: int | None,
    expired: int,
) -> None:
    queue = QueueLag("g", "T", 0, committed, *ends, problem)
    assert (queue.lag, queue.expired) == (lag, expired)


def test_the_group_of_the_revive_topics_commits_the_offset_of_its_last_message() -> None:
    queue = QueueLag("CID_RMQ_SYS_REVIVE_GROUP", "rmq_sys_REVIVE_LOG_c", 0, 9, 0, 10)
    assert (queue.lag, queue.lag_seconds, queue.outside) == (0, 0, None)
    assert QueueLag("CID_RMQ_SYS_REVIVE_GROUP", "T", 0, 7, 0, 10).lag == 2
