"""Compaction logs: the remaining messages of compacted topics, through the command and the table."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.cli.main import FOUND, NOT_FOUND
from reput.engine.five.compacted import CompactedLog, compacted_queues
from reput.engine.tables.arrow import to_arrow
from tests.cli.running import reput as run
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
TOPIC = "CompactTopic"


@pytest.fixture(scope="module")
def store(golden: Golden) -> GoldenStore:
    return golden("five_compaction")


def entries(store: Path, queue_id: int) -> list[tuple[int, int]]:
    """Return position and queue offset of each entry in the broker's queue files of a compaction log."""
    folder = store / "compaction" / "compactionCq" / TOPIC / str(queue_id)
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data) - 45, 46):
            position = int.from_bytes(data[at : at + 8], "big", signed=True)
            if any(data[at : at + 46]) and position >= 0:
                found.append((position, int.from_bytes(data[at + 28 : at + 36], "big")))
    return found


@pytest.mark.parametrize("queue_id", [0, 1])
def test_every_message_that_the_brokers_queue_names(store: GoldenStore, queue_id: int) -> None:
    queue = compacted_queues(str(store.path))[queue_id]
    assert (queue.topic, queue.queue_id) == (TOPIC, queue_id)
    log = CompactedLog(queue)
    found = [record.message() for record in log]
    assert log.damage == []
    assert [(one.physical_offset, one.queue_offset) for one in found] == entries(
        store.path, queue_id
    )
    put = {
        row.queue_offset: row for row in store.messages if (row.topic, row.queue_id) == queue[:2]
    }
    with reput.open_store(store.path) as opened:
        for one in found:
            original = opened.get(put[one.queue_offset].physical_offset)
            assert (one.body, one.properties_bytes) == (original.body, original.properties_bytes)


def test_the_newest_of_each_key(store: GoldenStore) -> None:
    for queue in compacted_queues(str(store.path)):
        messages = [record.message() for record in CompactedLog(queue)]
        newest = {one.properties["KEYS"]: one for one in messages}
        latest = [record.message() for record in CompactedLog(queue).latest()]
        assert {one.properties["KEYS"]: one for one in latest} == {
            keys: one for keys, one in newest.items() if one.body
        }
        assert len(latest) < len(messages)


def test_the_command(store: GoldenStore) -> None:
    ran = run("state", "compacted", store.path, "--format", "jsonl")
    rows = [json.loads(line) for line in ran.lines]
    assert ran.code == FOUND
    expected = [(q, offset) for q in (0, 1) for _, offset in entries(store.path, q)]
    assert [(row["queue_id"], row["queue_offset"]) for row in rows] == expected
    one = run(
        "state",
        "compacted",
        store.path,
        "--topic",
        TOPIC,
        "--queue-id",
        1,
        "--latest",
        "--format",
        "csv",
    )
    latest = CompactedLog(compacted_queues(str(store.path))[1]).latest()
    assert len(one.lines) - 1 == len(latest)
    assert run("state", "compacted", store.path, "--topic", "none").code == NOT_FOUND


def test_a_store_without_them(golden: Golden) -> None:
    ran = run("state", "compacted", golden("five_batch").path)
    assert ran.code == NOT_FOUND
    assert "has no compaction logs" in ran.err


@pytest.mark.parametrize("queue_id", [0, 1])
def test_the_table_of_one_queue(store: GoldenStore, queue_id: int) -> None:
    folder = store.path / "compaction" / "compactionLog" / TOPIC / str(queue_id)
    table = to_arrow(folder, ["physical_offset", "queue_offset", "keys"]).read_all()
    pairs = zip(
        table["physical_offset"].to_pylist(), table["queue_offset"].to_pylist(), strict=True
    )
    assert list(pairs) == entries(store.path, queue_id)
    key = table["keys"].to_pylist()[-1][0]
    found = to_arrow(folder, ["keys"], key=key).read_all()
    assert found["keys"].to_pylist() == [keys for keys in table["keys"].to_pylist() if key in keys]


@pytest.mark.slow
def test_the_export_of_all_queues(store: GoldenStore, tmp_path: Path) -> None:
    logs = store.path / "compaction" / "compactionLog" / "*" / "*"
    ran = run("export", logs, tmp_path / "lines", "--to", "jsonl")
    assert ran.code == FOUND
    assert len((tmp_path / "lines").read_text().splitlines()) == sum(
        len(entries(store.path, queue_id)) for queue_id in (0, 1)
    )


@given(data=st.data())
def test_damage_is_told_and_nothing_invented(
    store: GoldenStore, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    queue = compacted_queues(str(store.path))[0]
    sound = {record.physical_offset: record.record() for record in CompactedLog(queue)}
    path = tmp_path_factory.mktemp("damage")
    source = sorted(Path(queue.folder).iterdir())[1]
    content = bytearray(source.read_bytes())
    start = int(source.name)
    how = data.draw(st.sampled_from(["flip", "zero", "cut"]))
    at = data.draw(st.integers(0, len(content) - 1))
    if how == "flip":
        content[at] ^= data.draw(st.integers(1, 255))
    elif how == "zero":
        content[at : at + 100] = bytes(len(content[at : at + 100]))
    else:
        del content[at:]
    (path / source.name).write_bytes(content)
    log = CompactedLog(queue._replace(folder=str(path)))
    for record in log:
        assert len(record.record()) == record.layout.total_bytes
        assert start <= record.physical_offset < start + len(content)
        if how == "zero" and not at <= record.physical_offset - start < at + 100:
            original = sound[record.physical_offset]
            assert len(original) == len(record.record())
    for lost in log.damage:
        assert lost.file == str(path / source.name)
