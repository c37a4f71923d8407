"""The index of keys in RocksDB (RIP-82): it proves nothing, so stores with it are scanned."""

import shutil
import struct
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.base.findings import Kind
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.writer.put.message import Message
from reput.format.commit_log import MessageExt
from reput.format.rocksdb_index import IndexedKey, decode_item, prefixes
from tests.five import CONFIG

rocksdict = pytest.importorskip("rocksdict")
GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden54" / "five4_nouniq.tar.xz"
KEYS = [*(f"k{n}" for n in range(12)), "a@b", "@", "\u00fc"]
Items = dict[bytes, bytes]


def index_items(messages: list[MessageExt]) -> Items:
    """The entries of a broker of 5.4 for messages, an independent implementation."""
    items: Items = {}
    for message in messages:
        unique = message.unique_key
        if unique is None or message.sys_flag & 12 == 12:
            continue
        hour = struct.pack(">q", message.store_timestamp // 3_600_000 * 3_600_000)
        offset = struct.pack(">q", message.physical_offset)
        value = struct.pack(">q", message.store_timestamp)
        parts = [f"U@{unique}@", *(f"K@{key}@{unique}@" for key in {*message.keys})]
        parts += [f"T@{message.tags}@{unique}@"] if message.tags else []
        for part in parts:
            items[hour + f"@{message.topic}@{part}".encode() + offset] = value
    return items


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[MessageExt]]:
    """A store without IndexFiles over four hours, and its messages."""
    path = tmp_path_factory.mktemp("index") / "store"
    random, clock = Random(4), iter(range(1_700_000_000_000, 1_800_000_000_000, 60_000))
    writer = reput.open_store(path, mode="rw", config=CONFIG)
    writer._writer._log._clock_ms = lambda: next(clock)
    with writer as store:
        places = [
            store.put(
                Message(
                    "TU"[random.randrange(2)], random.randbytes(80), tags="tag",
                    keys=random.choices(KEYS, k=random.randrange(3)),
                    sys_flag=random.choice([0, 0, 0, 12]),
                )
            ).physical_offset
            for _ in range(250)
        ]  # fmt: skip
        messages = [store.get(place) for place in places]
    for file in (path / "index").iterdir():
        file.unlink()
    (path / "reput.known").unlink()
    return path, messages


def with_index(source: Path, target: Path, items: Items, last: int | None) -> Path:
    shutil.copytree(source, target)
    database = rocksdict.Rdict(
        str(target / "RocksDBMessageStore"), rocksdict.Options(raw_mode=True)
    )
    for key, value in items.items():
        database[key] = value
    if last is not None:
        database[b"lastOffsetPy"] = struct.pack(">q", last)
        database[b"lastStoreTimeStamp"] = struct.pack(">q", 1)
    database.close()
    return target


def answers(path: Path) -> dict[tuple[str, str], list[int]]:
    with reput.open_store(path) as store:
        return {
            (topic, key): [one.physical_offset for one in store.query(topic, key).messages]
            for topic in ("T", "U")
            for key in (*KEYS, "none")
        }


def coverage(path: Path) -> reput.reports.Coverage:
    with reput.open_store(path) as store:
        return store.query("T", "k1").coverage


@pytest.mark.parametrize("lacks", ["nothing", "messages without a unique key", "a file"])
def test_it_proves_nothing(made: tuple[Path, list[MessageExt]], tmp_path: Path, lacks: str) -> None:
    path, messages = made
    indexed = {
        "nothing": messages,
        "messages without a unique key": [m for n, m in enumerate(messages) if n % 3 or n == 249],
        "a file": [m for m in messages if m.physical_offset // 16384 != 1],
    }[lacks]
    store = with_index(path, tmp_path / "s", index_items(indexed), messages[-1].physical_offset)
    assert answers(store) == answers(path)
    found = coverage(store)
    assert (found.indexed, found.problems, found.is_complete) == ((), (), True)
    keys = [("T", "k1"), ("U", "a@b")]
    tables = [reput.look_up(one, keys, columns=["body"]).read_all() for one in (path, store)]
    assert tables[0]["body"].to_pylist() == tables[1]["body"].to_pylist() != []


def test_its_last_entry_shows_a_lost_end(
    made: tuple[Path, list[MessageExt]], tmp_path: Path
) -> None:
    path, messages = made
    last = messages[-1].physical_offset + messages[-1].size_bytes
    store = with_index(path, tmp_path / "s", index_items(messages), last)
    with reput.open_store(store) as opened:
        result = opened.query("T", "k1")
    assert not result.is_complete
    assert [lost.kind for lost in result.coverage.unreadable] == [Kind.LOST_LOG_END]


def with_lost_key(store: Path, message: MessageExt, key: str) -> None:
    """Change a letter of a key in the properties of a record. No checksum of the record covers them."""
    for file in (store / "commitlog").iterdir():
        data = bytearray(file.read_bytes())
        start = message.physical_offset - int(file.name)
        if 0 <= start < len(data):
            record = data[start : start + message.size_bytes]
            data[start + record.rindex(key.encode())] ^= 1
            file.write_bytes(data)


@pytest.mark.parametrize("is_unique", [False, True])
def test_an_entry_shows_that_a_record_has_lost_its_key(
    made: tuple[Path, list[MessageExt]], tmp_path: Path, is_unique: bool
) -> None:
    path, messages = made
    lost = next(one for one in messages[30:] if one.keys and one.sys_flag & 12 != 12)
    key, topic, at = (
        lost.unique_key if is_unique else lost.keys[0],
        lost.topic,
        lost.physical_offset,
    )
    assert key is not None
    store = with_index(path, tmp_path / "s", index_items(messages), messages[-1].physical_offset)
    time = lost.store_timestamp
    with reput.open_store(store) as opened:
        assert opened.query(topic, key).is_complete
        assert opened.query(None, key).is_complete
        with_lost_key(store, lost, key)
        for other in (topic, None):
            result = opened.query(other, key)
            assert at not in [one.physical_offset for one in result]
            assert [one.start for one in result.coverage.unreadable] == [at]
            assert not opened.query(other, key, time, time).is_complete
            assert opened.query(other, key, time + 1).is_complete
        assert opened.query("TU".replace(topic, ""), key).is_complete
        assert not opened.find_by_id(key).is_complete or not is_unique
        *_, last = opened.query_steps(topic, key)
        assert isinstance(last, reput.reports.QueryResult)
        assert not last.is_complete
    table = reput.look_up(store, [(topic, key), (topic, "none")], columns=["body"]).read_all()
    complete = dict(zip(table["key"].to_pylist(), table["is_complete"].to_pylist(), strict=True))
    assert complete == {key: False, "none": True}
    named: dict[str, Any] = {"unique_key" if is_unique else "key": key}
    dataset = reput.dataset(store, topic=topic, **named)
    with pytest.raises(reput.errors.ReputError):
        dataset.to_table()


def test_entries_of_an_overwritten_part_of_the_log_are_no_damage(
    made: tuple[Path, list[MessageExt]], tmp_path: Path
) -> None:
    path, messages = made
    items = index_items(messages)
    other = messages[20]
    hour = struct.pack(">q", other.store_timestamp // 3_600_000 * 3_600_000)
    before = f"@{other.topic}@K@old@unique@".encode() + struct.pack(">q", other.physical_offset)
    items[hour + before] = struct.pack(">q", other.store_timestamp - 1)
    store = with_index(path, tmp_path / "s", items, messages[-1].physical_offset)
    with reput.open_store(store) as opened:
        assert opened.query(other.topic, "old").is_complete


def test_negative_hours_end_the_search(made: tuple[Path, list[MessageExt]], tmp_path: Path) -> None:
    path, messages = made
    items = index_items(messages)
    for hour in (-1, -(1 << 63), (1 << 63) - 1):
        items[struct.pack(">q", hour) + b"@T@K@k1@u@" + bytes(8)] = bytes(8)
        items[struct.pack(">q", hour) + b"@\xff\xfe@K@k1@u@" + bytes(8)] = bytes(8)
    store = with_index(path, tmp_path / "s", items, messages[-1].physical_offset)
    with reput.open_store(store) as opened:
        assert opened.query(None, "k1").is_complete


@pytest.mark.parametrize("quick", [False, True])
def test_a_check_accepts_it_in_place_of_index_files(
    made: tuple[Path, list[MessageExt]], tmp_path: Path, quick: bool
) -> None:
    path, messages = made
    store = with_index(path, tmp_path / "s", index_items(messages), messages[-1].physical_offset)
    kinds = [
        {finding.kind for finding in reput.check(one, quick=quick).findings}
        for one in (path, store)
    ]
    assert [Kind.INDEX_DELETED in each for each in kinds] == [True, False]


@pytest.mark.skipif(not GOLDEN.exists(), reason="needs ../shared/golden54 beside the checkout")
def test_messages_without_a_unique_key_are_found(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    (log,) = tmp_path.rglob("commitlog")
    store, keyed = log.parent, 0
    with reput.open_store(store) as opened:
        for message in LogTail(opened, TailFilter()).last(1000):
            if message.unique_key is None and message.keys:
                keyed += 1
                result = opened.query(message.topic, message.keys[0])
                assert result.is_complete
                assert message.physical_offset in [one.physical_offset for one in result.messages]
    assert keyed == 100


def test_a_database_that_cannot_be_read_is_one_problem(
    made: tuple[Path, list[MessageExt]], tmp_path: Path
) -> None:
    path, messages = made
    store = with_index(path, tmp_path / "s", index_items(messages), messages[-1].physical_offset)
    for file in (store / "RocksDBMessageStore").glob("MANIFEST*"):
        file.write_bytes(b"")
    assert answers(store) == answers(path)
    assert len(coverage(store).problems) == 1


def test_without_rocksdict_the_log_is_scanned(
    made: tuple[Path, list[MessageExt]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, messages = made
    store = with_index(path, tmp_path / "s", index_items(messages), messages[-1].physical_offset)
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    assert answers(store) == answers(path)
    assert "rocksdict" in str(coverage(store).problems[0])


@given(st.binary(max_size=60))
def test_any_key_is_an_item_or_none(key: bytes) -> None:
    item = decode_item(key)
    if item is not None:
        assert all(name.key and "@" not in name.topic for name in item.names)


@given(
    st.text(st.characters(exclude_characters="@", codec="utf-8"), min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.integers(0, 1 << 50),
)
def test_items_are_found_by_their_prefix(topic: str, key: str, unique: str, offset: int) -> None:
    name = IndexedKey(topic, key)
    _, prefix = prefixes(0, name)
    item = decode_item(prefix + f"{unique}@".encode() + struct.pack(">q", offset))
    assert item is not None
    assert name in item.names
    assert item.physical_offset == offset
    only, _ = prefixes(0, name)
    assert decode_item(only + struct.pack(">q", offset)) == (0, offset, (name,))
