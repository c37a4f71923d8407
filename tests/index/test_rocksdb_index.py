"""The index of keys in RocksDB (RIP-82): queries through it match a scan, or it is not trusted."""

import shutil
import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.format.commit_log import MessageExt
from reput.format.rocksdb_index import IndexedKey, decode_item, hour_of, prefixes
from reput.index.key_index import Basis, KeyHashes
from reput.table.arrow import to_arrow
from reput.writer.put.message import Message
from tests.five import CONFIG

rocksdict = pytest.importorskip("rocksdict")
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


def test_queries_through_it_are_those_of_a_scan(
    made: tuple[Path, list[MessageExt]], tmp_path: Path
) -> None:
    path, messages = made
    some = messages[:200]
    store = with_index(path, tmp_path / "s", index_items(some), some[-1].physical_offset)
    assert answers(store) == answers(path)
    found = coverage(store)
    end = some[-1].physical_offset + some[-1].size_bytes
    assert [(one.start, one.stop, one.index_file, one.basis) for one in found.indexed] == [
        (0, end, "RocksDB", Basis.SPOT_CHECKED)
    ]
    assert found.scanned
    assert found.problems == ()
    assert coverage(path).indexed == ()
    with reput.open_store(store) as opened:
        for message in messages[::7]:
            unique = message.unique_key or ""
            expected = [] if message.sys_flag & 12 == 12 else [message.physical_offset]
            ids = opened.query(message.topic, unique).messages
            assert [one.physical_offset for one in ids] == expected


def test_many_keys_at_once(made: tuple[Path, list[MessageExt]], tmp_path: Path) -> None:
    path, messages = made
    store = with_index(path, tmp_path / "s", index_items(messages), messages[-1].physical_offset)
    for key in ("k1", "a@b"):
        bodies = [
            to_arrow(one, ["body"], key=key).read_all()["body"].to_pylist() for one in (path, store)
        ]  # fmt: skip
        assert bodies[0] == bodies[1] != []
    with reput.open_store(store) as opened:
        part = next(s.part for s in opened.key_planner().segments() if s.part is not None)
        named = KeyHashes(["T", "U"], ["k1", "a@b"])
        within = reput.open_store(store).key_planner().segments()[-1].range
        by_name = list(part.candidates(named, within))
        assert by_name == list(part.candidates(frozenset(named), within))


@pytest.mark.parametrize("lost", ["a sampled item", "no last offset", "wrong last offset"])
def test_an_index_that_contradicts_the_log_is_not_believed(
    made: tuple[Path, list[MessageExt]], tmp_path: Path, lost: str
) -> None:
    path, messages = made
    items, last = index_items(messages), messages[-1].physical_offset
    if lost == "a sampled item":
        sampled = next(one for one in reversed(messages) if one.keys and not one.sys_flag & 12)
        last = sampled.physical_offset
        end = struct.pack(">q", last)
        items = {key: value for key, value in items.items() if not key.endswith(end)}
    store = with_index(
        path, tmp_path / "s", items,
        {"no last offset": None, "wrong last offset": last + 1}.get(lost, last),
    )  # fmt: skip
    assert answers(store) == answers(path)
    found = coverage(store)
    assert found.indexed == ()
    assert bool(found.problems) == (lost != "no last offset")


def test_an_entry_of_another_message_has_its_stretch_scanned(
    made: tuple[Path, list[MessageExt]], tmp_path: Path
) -> None:
    path, messages = made
    items = index_items(messages)
    other = messages[5]
    hour = struct.pack(">q", hour_of(other.store_timestamp))
    items[hour + b"@T@K@none@u@" + struct.pack(">q", other.physical_offset)] = bytes(8)
    store = with_index(path, tmp_path / "s", items, messages[-1].physical_offset)
    assert answers(store) == answers(path)


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
