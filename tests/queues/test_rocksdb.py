"""Queues in RocksDB: read without a trace, also from incomplete databases, and nothing is invented for damage."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.base.config import StoreConfig
from reput.engine.five.rocksdb_database import RocksDatabase
from reput.engine.five.rocksdb_writer import create_database, opened_to_write
from reput.errors import FormatError, MessageNotFoundError, MissingExtraError, StoreError
from reput.format.consume_queue import ENTRY_BYTES, encode_entry
from reput.format.properties import SCHEDULE_TOPIC
from reput.format.rocksdb_queue import (
    CHECKPOINT_KEY,
    OFFSETS_FAMILY,
    QueueEnd,
    decode_end,
    decode_value,
    encode_checkpoint,
    encode_end,
    encode_value,
    end_key,
    entry_key,
    queue_offset_of,
    queue_prefix,
)
from reput.testing.strategies import int32, int64
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.slow import examples

Golden = Callable[[str], GoldenStore]
NAME = "five_rocksdb"
rocksdict = pytest.importorskip("rocksdict")


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file below a folder: its change time, inode and bytes."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_ctime_ns, path.stat().st_ino, path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted([folder, *folder.rglob("*")])
    }  # fmt: skip


@given(st.text(max_size=200), int32, int64, int64, int32, int64, int64)
def test_keys_and_values_come_back(
    topic: str, queue_id: int, offset: int, at: int, size: int, code: int, time: int
) -> None:
    prefix = queue_prefix(topic, queue_id)
    assert queue_offset_of(entry_key(prefix, offset), prefix) == offset
    assert queue_offset_of(entry_key(prefix, offset) + b"x", prefix) is None
    value = encode_value((at, size, code), time)  # type: ignore[arg-type]
    assert decode_value(value) == ((at, size, code), time)
    assert decode_value(value[1:]) is None
    assert decode_end(end_key(topic, queue_id), encode_end(at, offset)) == (
        topic, queue_id, at, offset,
    )  # fmt: skip
    assert decode_end(end_key(topic, queue_id, b"min"), encode_end(at, offset)) is None


def test_the_database_has_the_entries_that_the_broker_lists(golden: Golden) -> None:
    store = golden(NAME)
    database = RocksDatabase(str(store.path / "consumequeue"))
    for queue in store.queues:
        prefix = queue_prefix(queue.topic, queue.queue_id)
        rows = [
            row
            for row in store.queue_entries
            if (row.topic, row.queue_id) == (queue.topic, queue.queue_id)
        ]
        for row in rows:
            value = database.get(entry_key(prefix, row.queue_offset))
            assert value is not None
            assert decode_value(value)[0] == (row.physical_offset, row.size, row.tags_code)  # type: ignore[index]
    assert {(end.topic, end.queue_id, end.queue_offset + 1) for end in database.ends()} == {
        (queue.topic, queue.queue_id, queue.max_offset) for queue in store.queues
    }
    # The broker lists 4,895 entries. The other three are before the minimum offset of their queue.
    assert sum(1 for _ in database.items(b"")) == 4898
    last = store.messages[-1]
    assert database.checkpoint() <= last.physical_offset + last.size
    database.close()


def test_reading_leaves_no_trace(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden(NAME).path
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = tree(store)
    with reput.open_store(store) as opened:
        for queue in opened.list_queues():
            opened.pull(*queue, opened.min_queue_offset(*queue))
        assert [path.name[:11] for path in tmp_path.iterdir()] == ["reput-view-"]
    assert tree(store) == before
    assert list(tmp_path.iterdir()) == []


def test_the_minimum_is_that_of_the_first_entry(golden: Golden) -> None:
    with reput.open_store(golden(NAME).path) as opened:
        queue = opened.queues.queue("%LMQ%a", 0)
        numbers = [number for number, _ in queue.numbered(0, 1000)]
        assert numbers[:5] == [0, 1, 2, 4, 5]
        assert 42 not in numbers
        assert opened.min_queue_offset("%LMQ%a", 0) == 0
        assert opened.pull("%LMQ%a", 0, 42).messages[0].physical_offset == queue.entry(43)[0]
        with pytest.raises(MessageNotFoundError):
            queue.entry(42)
        for number in numbers:
            assert queue.min_queue_offset(queue.entry(number).physical_offset) == number


def test_entries_come_as_bytes_too(golden: Golden) -> None:
    with reput.open_store(golden(NAME).path) as opened:
        for topic, queue_id in opened.list_queues():
            queue = opened.queues.queue(topic, queue_id)
            for first, stop in ((0, 10_000), (3, 40), (5, 5)):
                expected = b"".join(map(encode_entry, queue.entries(first, stop)))
                assert b"".join(queue.entry_bytes(first, stop)) == expected


def test_entries_after_the_end_of_a_queue_are_none(golden: Golden, tmp_path: Path) -> None:
    """A broker that truncates its log lowers the ends of queues, but does not delete the entries after these ends."""
    store = copy_store(golden(NAME).path, tmp_path / "store")
    topic, queue_id, _, last = longest = ends_of(store)[0]
    database = opened_to_write(store / "consumequeue")
    changes = database.changes()
    with reput.open_store(store) as opened:
        kept = opened.queues.queue(topic, queue_id).entry(last - 3)
    end = encode_end(kept.physical_offset, last - 3)
    changes.put(end_key(topic, queue_id), end, OFFSETS_FAMILY)
    database.write(changes)
    database.close()
    with reput.open_store(store) as opened:
        queue = opened.queues.queue(topic, queue_id)
        assert queue.max_queue_offset() == last - 2 < longest.queue_offset
        assert [number for number, _ in queue.numbered(last - 4, last + 9)] == [last - 4, last - 3]
        assert len(b"".join(queue.entry_bytes(last - 4, last + 9))) == 2 * ENTRY_BYTES
        with pytest.raises(MessageNotFoundError):
            queue.entry(last)


def ends_of(store: Path) -> list[QueueEnd]:
    """Return the ends of all queues, the highest end first."""
    with closing(RocksDatabase(str(store / "consumequeue"))) as database:
        return sorted(database.ends(), key=lambda end: -end.queue_offset)


@pytest.fixture
def lagging(golden: Golden, tmp_path: Path) -> tuple[Path, GoldenStore]:
    """Return the store as a killed broker leaves it: the database ends in the middle of the log."""
    source = golden(NAME)
    store = copy_store(source.path, tmp_path / "store")
    for path in (store / "consumequeue").iterdir():
        path.unlink()
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(store / "consumequeue"), options)
    ends = database.create_column_family("offset", rocksdict.Options(raw_mode=True))
    middle = source.messages[len(source.messages) // 2]
    stored = {row.physical_offset: row.store_timestamp for row in source.messages}
    for row in source.queue_entries:
        if row.physical_offset < middle.physical_offset:
            key = entry_key(queue_prefix(row.topic, row.queue_id), row.queue_offset)
            entry = (row.physical_offset, row.size, row.tags_code)
            database[key] = encode_value(entry, stored[row.physical_offset])  # type: ignore[arg-type]
            end = encode_end(row.physical_offset, row.queue_offset)
            ends[end_key(row.topic, row.queue_id)] = end
    ends[CHECKPOINT_KEY] = encode_checkpoint(middle.physical_offset)
    ends.close()
    database.close()
    return store, source


def test_what_a_killed_broker_did_not_write_comes_from_the_log(
    lagging: tuple[Path, GoldenStore], golden: Golden
) -> None:
    store, source = lagging
    with reput.open_store(store) as opened, reput.open_store(source.path) as whole:
        assert opened.list_queues() == whole.list_queues()
        for topic, queue_id in whole.list_queues():
            stop = whole.max_queue_offset(topic, queue_id)
            assert opened.max_queue_offset(topic, queue_id) == stop
            expected = list(whole.queues.queue(topic, queue_id).numbered(4, stop))
            found = list(opened.queues.queue(topic, queue_id).numbered(4, stop))
            assert (topic, found) == (topic, expected)
            data = b"".join(encode_entry(entry) for _, entry in found)
            assert b"".join(opened.queues.queue(topic, queue_id).entry_bytes(4, stop)) == data


def test_delay_levels_are_those_that_the_database_shows_else_those_of_the_broker(
    lagging: tuple[Path, GoldenStore],
) -> None:
    store, source = lagging
    stored = {row.physical_offset: row for row in source.messages}
    shown = {  # levels with an entry in the database
        row.queue_id
        for row in source.messages[: len(source.messages) // 2]
        if row.topic == SCHEDULE_TOPIC
    }
    assert len(shown) > 3
    config = StoreConfig(delay_levels="7s 7s", enable_lmq=True)
    with reput.open_store(store, config=config) as opened:
        for queue_id in shown:
            for _, entry in opened.queues.queue(SCHEDULE_TOPIC, queue_id).numbered(0, 1000):
                assert entry.tags_code == stored[entry.physical_offset].tags_code
    shutil.rmtree(store / "consumequeue")
    create_database(store / "consumequeue", [], {})
    with reput.open_store(store, config=config) as opened:
        for _, entry in opened.queues.queue(SCHEDULE_TOPIC, 0).numbered(0, 1000):
            row = stored[entry.physical_offset]
            assert entry.tags_code == row.store_timestamp + 7000


def test_new_messages_are_seen_by_an_open_store(golden: Golden, tmp_path: Path) -> None:
    source = golden(NAME)
    store = copy_store(source.path, tmp_path / "store")
    last = source.messages[-1]
    file = max((store / "commitlog").iterdir())
    at, data = last.physical_offset - int(file.name), file.read_bytes()
    record = bytearray(data[at : at + last.size])
    with reput.open_store(store) as opened:
        stop = opened.max_queue_offset(last.topic, last.queue_id)
        record[20:28] = stop.to_bytes(8, "big")
        record[28:36] = (last.physical_offset + last.size).to_bytes(8, "big")
        with file.open("r+b") as target:
            target.seek(at + last.size)
            target.write(record)
        assert opened.max_queue_offset(last.topic, last.queue_id) == stop + 1
        (message,) = opened.pull(last.topic, last.queue_id, stop).messages
        assert message.physical_offset == last.physical_offset + last.size


def test_without_the_library_everything_but_queues_is_read(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    store = golden(NAME)
    row = next(row for row in store.messages if row.uniq_key)
    with reput.open_store(store.path) as opened:
        assert opened.get(row.physical_offset).topic == row.topic
        assert opened.query(row.topic, str(row.uniq_key)).is_complete
        with pytest.raises(MissingExtraError, match=r"pip install 'reput\[rocksdb\]'"):
            opened.list_queues()


@pytest.fixture(scope="module")
def damaged(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_store(golden(NAME).path, tmp_path_factory.mktemp("rocks") / "store")


@settings(max_examples=examples(12))
@given(data=st.data())
def test_damage_is_one_error_or_does_no_harm(
    damaged: Path, golden: Golden, data: st.DataObject
) -> None:
    rows = {row.physical_offset: row for row in golden(NAME).messages}
    files = sorted((damaged / "consumequeue").iterdir())
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    changed = bytearray(content)
    damage = data.draw(st.sampled_from(["cut", "zero", "flip", "delete"]))
    at = data.draw(st.integers(0, max(len(content) - 1, 0)))
    if damage == "cut":
        del changed[at:]
    elif damage == "zero":
        changed[at : at + 300] = bytes(len(changed[at : at + 300]))
    elif content and damage == "flip":
        changed[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        path.unlink()
        if damage != "delete":
            path.write_bytes(changed)
        with reput.open_store(damaged) as opened:
            for topic, queue_id in opened.list_queues()[::7]:
                for message in opened.pull(topic, queue_id, 5).messages:
                    assert message.size_bytes == rows[message.physical_offset].size
    except StoreError as error:
        assert "\n" not in str(error)  # noqa: PT017
    finally:
        path.write_bytes(content)


def test_a_folder_that_is_no_database_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("MANIFEST-000007\n")
    with pytest.raises(FormatError, match="RocksDB cannot read the database") as error:
        RocksDatabase(str(tmp_path))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["CURRENT"]
