"""Tiered storage: every message that a broker uploaded, by queue and by key, on a disk and on S3."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND, WRONG_USE
from reput.engine.five.tiered import LocalIndexFile, TieredStore
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.message_id import spellings
from reput.format.tiered import (
    decode_local_item,
    decode_local_items,
    decode_tiered_header,
    decode_tiered_items,
    decode_tiered_slot,
    parse_segment_name,
    segment_name,
    tiered_key_hash,
)
from reput.io.storage import LOCAL
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def store(golden: Golden) -> GoldenStore:
    return golden("five_tiered")


@pytest.fixture(scope="module")
def originals(store: GoldenStore) -> dict[tuple[str, int, int], MessageExt]:
    """Return the uploaded messages from the broker's own log, by topic, queue and queue offset."""
    local_only = ("rmq_sys_", "%LMQ%", "SCHEDULE_TOPIC", "RMQ_SYS_")
    with reput.open_store(store.path) as opened:
        return {
            (row.topic, row.queue_id, row.queue_offset): opened.get(row.physical_offset)
            for row in store.messages
            if not row.topic.startswith(local_only) and not row.sys_flag & 4
        }


def same(one: MessageExt, other: MessageExt) -> bool:
    """Return whether two messages are equal except for their places."""
    names = ("topic", "queue_id", "queue_offset", "body", "properties_bytes", "store_timestamp")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def test_every_message_of_every_queue(
    store: GoldenStore, originals: dict[tuple[str, int, int], MessageExt]
) -> None:
    tiered = TieredStore(store.path)
    found: dict[tuple[str, int, int], MessageExt] = {}
    for queue in tiered.queues():
        walked = [record.message() for record in queue.records(tiered.damage)]
        pulled = tiered.pull(queue.topic, queue.queue_id, 0, 1000)
        assert [record.message() for record in pulled] == walked
        assert [one.queue_offset for one in walked] == list(range(queue.max_offset))
        found |= {(one.topic, one.queue_id, one.queue_offset): one for one in walked}
    assert tiered.damage == []
    assert found.keys() == originals.keys()
    assert len(found) == 380
    assert all(same(found[place], original) for place, original in originals.items())


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("part", ["store", "running"])
def test_every_key_is_found(
    store: GoldenStore,
    originals: dict[tuple[str, int, int], MessageExt],
    part: str,
    scan: bool,
) -> None:
    tiered = TieredStore(store.root / part)
    uploaded = {
        (queue.topic, queue.queue_id, number)
        for queue in tiered.queues()
        for number in range(queue.max_offset)
    }
    by_key: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
    for place, message in originals.items():
        if place in uploaded:
            for key in {*message.keys, message.unique_key or ""} - {""}:
                by_key.setdefault((message.topic, key), []).append(place)
    for (topic, key), places in list(by_key.items())[:: 20 if scan else 1]:
        found = [record.message() for record in tiered.query(topic, key, scan)]
        assert sorted((one.topic, one.queue_id, one.queue_offset) for one in found) == sorted(
            places
        )
        times = [one.store_timestamp for one in found]
        assert times == sorted(times, reverse=True)
    topic, unique_key = next(name for name in by_key if len(spellings(name[1].lower())) == 2)
    assert tiered.query(topic, unique_key.lower(), scan) == tiered.query(topic, unique_key, scan)
    assert tiered.query("TopicA", "missing", scan) == []
    assert tiered.damage == []


def test_what_the_broker_still_has_is_not_uploaded(store: GoldenStore, tmp_path: Path) -> None:
    running = copy_store(store.root / "running", tmp_path / "running")
    whole = TieredStore(store.root / "running")
    shutil.rmtree(running / "tiered_index_file")
    tiered, lacking = TieredStore(running), 0
    for queue in tiered.queues():
        for record in list(queue.records(tiered.damage))[::4]:
            message = record.message()
            if message.unique_key:
                at = message.topic, message.unique_key
                assert whole.query(*at)
                assert tiered.query(*at, scan=True)
                lacking += not tiered.query(*at)
    assert lacking > 0


def test_the_command(store: GoldenStore) -> None:
    root = store.path / "tiered"
    assert run("state", "tiered", root).out == run("state", "tiered", store.path).out
    assert len(run("state", "tiered", root).lines) == 1 + len(TieredStore(root).queues())
    cluster = next(root.iterdir())
    assert run("state", "tiered", cluster).out == run("state", "tiered", root).out
    rows = [
        json.loads(line)
        for line in run(
            "state", "tiered", root, "--topic", "TopicB", "--queue-id", 3, "--offset", 2, "-n", 4, "--format", "jsonl",
        ).lines
    ]  # fmt: skip
    assert [row["queue_offset"] for row in rows] == [2, 3, 4, 5]
    key = rows[0]["unique_key"]
    found = run("state", "tiered", root, "--topic", "TopicB", "--key", key, "--format", "jsonl")
    assert found.code == FOUND
    assert json.loads(found.lines[0])["unique_key"] == key
    assert run("state", "tiered", root, "--topic", "TopicB", "--key", "none").code == NOT_FOUND
    assert run("state", "tiered", root, "--key", "none").code == WRONG_USE
    assert run("state", "tiered", root, "--topic", "TopicB").code == WRONG_USE
    assert "has no tiered storage" in run("state", "tiered", store.root / "running" / "index").err


def test_what_was_not_uploaded(store: GoldenStore) -> None:
    tiered = TieredStore(store.path)
    with pytest.raises(MessageNotFoundError):
        tiered.queue("TopicB", 99)
    with pytest.raises(MessageNotFoundError):
        tiered.queue("TopicB", 3).get(10_000)
    with pytest.raises(StoreNotFoundError):
        TieredStore(store.path / "index")


@given(data=st.data())
def test_damage_is_told_and_nothing_invented(
    store: GoldenStore,
    originals: dict[tuple[str, int, int], MessageExt],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    broker = next((store.path / "tiered").glob("*/*"))
    kinds = ("TopicB/3/COMMIT_LOG", "TopicB/3/CONSUME_QUEUE", "rmq_sys_INDEX/0/INDEX")
    kind = data.draw(st.sampled_from(kinds))
    root = tmp_path_factory.mktemp("damage") / "0123abcd_c" / "b"
    for name in kinds:
        shutil.copytree(broker / name, root / name)
    path = data.draw(st.sampled_from(sorted((root / kind).iterdir())))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["flip", "zero", "cut", "delete"]))
    if how == "flip":
        content[at] ^= data.draw(st.integers(1, 255))
    elif how == "zero":
        content[at : at + 60] = bytes(len(content[at : at + 60]))
    else:
        del content[at:]
    path.write_bytes(content)
    if how == "delete":
        path.unlink()
    tiered = TieredStore(root.parent.parent)
    queue = tiered.queue("TopicB", 3)
    for record in queue.records(tiered.damage):
        record.message()
    for number in range(queue.min_offset, queue.max_offset):
        try:
            queue.get(number).message()
        except (CorruptMessageError, MessageNotFoundError):
            continue
    key = originals["TopicB", 3, 1].unique_key or ""
    for scan in (False, True):
        assert all(
            record.message().unique_key == key for record in tiered.query("TopicB", key, scan)
        )


@given(data=st.data())
def test_a_damaged_index_file_of_the_broker_is_told(
    store: GoldenStore, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    source = next(
        p for p in (store.root / "running" / "tiered_index_file").iterdir() if p.is_file()
    )
    content = bytearray(source.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1) | st.integers(0, 900))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    path = tmp_path_factory.mktemp("local") / source.name
    path.write_bytes(content)
    hashes = [tiered_key_hash("TopicB", f"key{number}") for number in range(40)]
    try:
        file = LocalIndexFile(LOCAL.entry(str(path)), LOCAL)  # type: ignore[arg-type]
        for key_hash in (*hashes, *range(100), -1):
            assert len(list(file.items(key_hash))) <= len(content)
    except ValueError:
        return


def test_an_index_file_of_another_size_is_told(store: GoldenStore, tmp_path: Path) -> None:
    source = next(
        p for p in (store.root / "running" / "tiered_index_file").iterdir() if p.is_file()
    )
    running = copy_store(store.root / "running", tmp_path / "running")
    (running / "tiered_index_file" / source.name).write_bytes(source.read_bytes() + bytes(1 << 20))
    tiered = TieredStore(running)
    tiered.query("TopicB", "key")
    assert "cannot be determined" in str(tiered.damage[0])
    assert run("state", "tiered", running, "--topic", "TopicB", "--key", "key").code == DAMAGED


def test_names_of_segments(store: GoldenStore) -> None:
    names = [path.name for path in (store.path / "tiered").rglob("*") if path.is_file()]
    assert len(names) == 113
    offsets = [parse_segment_name(name) for name in names]
    assert [segment_name(offset) for offset in offsets if offset is not None] == names
    assert parse_segment_name("0" * 28) is None
    assert parse_segment_name("cfcd2084") is None
    assert tiered_key_hash("T", "k") >= 0


@given(st.binary(max_size=80), st.integers(0, 1 << 40))
def test_bytes_that_are_no_index_are_refused(data: bytes, size: int) -> None:
    decode_tiered_items(data)
    for decode in (
        lambda: decode_tiered_header(data, size), lambda: decode_tiered_slot(data),
        lambda: decode_local_items(data), lambda: decode_local_item(data),
    ):  # fmt: skip
        try:
            decode()
        except ValueError:
            continue
    for name in (data.hex(), data.decode("latin-1")):
        offset = parse_segment_name(name)
        assert offset is None or segment_name(offset) == name


@pytest.mark.slow
def test_on_s3(store: GoldenStore) -> None:
    from tests.remote.s3_server import s3_server, upload_whole

    with s3_server() as options:
        url = upload_whole(store.path / "tiered", "tiered", options)
        there, here = TieredStore(url, options), TieredStore(store.path / "tiered")
        assert [q.topic for q in there.queues()] == [q.topic for q in here.queues()]
        pulled = there.pull("TopicB", 3, 0, 100)
        assert [one.record() for one in pulled] == [
            one.record() for one in here.pull("TopicB", 3, 0, 100)
        ]
        key = pulled[0].message().unique_key or ""
        assert [one.record() for one in there.query("TopicB", key)] == [
            one.record() for one in here.query("TopicB", key)
        ]
