"""Items for tags, which brokers of 5.4 and later put into IndexFiles: written, trusted, checked and searched."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import reput
from reput.base.config import StoreConfig
from reput.cli.main import FOUND
from reput.core.query.answers import QueryResult
from reput.engine.check.run import check_store
from reput.engine.writer import file_sizes
from reput.engine.writer.put.message import Message
from reput.engine.writer.survey import survey_of
from reput.errors import UsageError
from reput.format.commit_log import MessageExt, decode
from reput.format.index_file import index_key, key_hash, tag_key
from tests.cli.running import reput as run
from tests.oracle.index_file import write_index_files
from tests.oracle.walk import walk
from tests.small import SMALL_16K

OLD, NEW = replace(SMALL_16K, store_version="5.3"), replace(SMALL_16K, store_version="5.5")
TAGS = ["a", "b", "a || b", "\u00fc", None]


def random_messages(seed: int, count: int) -> Iterator[Message]:
    random = Random(seed)
    for number in range(count):
        keys = [f"k{random.randrange(9)}" for _ in range(random.randrange(3))]
        yield Message(
            "TU"[random.randrange(2)], b"%d" % number, keys=keys, tags=random.choice(TAGS),
            sys_flag=random.choice((0, 0, 0, 12)),
        )  # fmt: skip


def put(path: Path, config: StoreConfig | None, messages: Iterable[Message]) -> None:
    with reput.open_store(path, mode="rw", config=config) as store:
        store.put_many(messages)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 5.5 with several log files and IndexFiles."""
    path = tmp_path_factory.mktemp("tags") / "store"
    put(path, NEW, random_messages(1, 400))
    return path


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a broker of 5.3 has begun, and one of 5.5 has continued."""
    path = tmp_path_factory.mktemp("upgraded") / "store"
    put(path, OLD, random_messages(2, 150))
    put(path, NEW, random_messages(3, 150))
    return path


def log_of(path: Path) -> list[tuple[int, bytes]]:
    return [(int(file.name), file.read_bytes()) for file in sorted((path / "commitlog").iterdir())]


def index_of(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted((path / "index").iterdir())]


def expected_index(path: Path, tags_from: int | None) -> list[bytes]:
    made = write_index_files(
        walk(log_of(path)).dispatched, hash_slots=SMALL_16K.hash_slots,
        index_items=SMALL_16K.index_items, tags_from=tags_from,
    )  # fmt: skip
    return [file.to_bytes() for file in made]


def tagged(messages: Iterable[MessageExt], topic: str, tags: str) -> list[int]:
    return [
        one.physical_offset
        for one in messages
        if (one.topic, one.tags) == (topic, tags) and one.sys_flag & 12 != 12
    ]


def all_messages(path: Path) -> list[MessageExt]:
    return [message for name, data in log_of(path) for message in _decoded(name, data)]


def _decoded(start: int, data: bytes) -> Iterator[MessageExt]:
    for record in walk([(start, data)]).dispatched:
        yield decode(data, record.physical_offset - start)


def assert_answers(opened: reput.MessageStore, path: Path, key: str) -> QueryResult:
    """Compare the answer for a key with all messages of the log."""
    result = opened.query("T", key)
    expected = [
        message.physical_offset
        for message in all_messages(path)
        if message.topic == "T" and key in message.keys and message.sys_flag & 12 != 12
    ]
    assert [message.physical_offset for message in result.messages] == expected[::-1]
    assert result.coverage.problems == ()
    return result


def test_a_store_of_5_5_has_the_items_of_the_oracle(store: Path) -> None:
    assert len(index_of(store)) > 1
    assert index_of(store) == expected_index(store, 0) != expected_index(store, None)


def test_the_files_show_that_tags_are_indexed(store: Path, upgraded: Path, tmp_path: Path) -> None:
    config = survey_of(store).config
    assert (config.index_tags_from, config.is_since_5_4) == (0, True)
    # Without other signs of 5.x, the items still show it.
    copy = tmp_path / "copy"
    for name in ("commitlog", "consumequeue", "index"):
        shutil.copytree(store / name, copy / name)
    text = run("inspect", copy).out
    assert "RocketMQ 5.4 or later: shown by items for tags in index/" in text
    assert (survey_of(copy).config.index_tags_from, survey_of(copy).config.store_version) == (
        0,
        "5.4",
    )
    assert survey_of(upgraded).config.index_tags_from is not None
    put(tmp_path / "old", OLD, random_messages(2, 150))
    old = survey_of(tmp_path / "old").config
    assert (old.index_tags_from, old.store_version) == (None, "5.3")


@pytest.fixture(params=[False, True], ids=["", "with its database"])
def rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """A store that a broker of 5.5 has begun, and one of 5.3 has continued."""
    path = tmp_path / "rolled_back"
    put(path, NEW, random_messages(2, 150))
    with monkeypatch.context() as context:
        context.setattr(file_sizes, "index_tags_from", lambda *_, **__: None)
        put(path, OLD, random_messages(3, 150))
    if request.param:
        (path / "RocksDBMessageStore").mkdir()
    return path


def test_items_for_tags_stay_valid_after_a_roll_back(rolled_back: Path) -> None:
    every, none = (b"".join(expected_index(rolled_back, tags)) for tags in (0, None))
    assert every != b"".join(index_of(rolled_back)) != none
    assert list(check_store(rolled_back)) == []
    assert list(check_store(rolled_back, quick=True)) == []
    assert run("repair", rolled_back).out.endswith("is valid: nothing to repair\n")
    before = index_of(rolled_back)
    with reput.open_store(rolled_back) as opened:
        for key in ("k1", "k5", "none"):
            assert_answers(opened, rolled_back, key)
    (rolled_back / "abort").touch()
    put(rolled_back, None, random_messages(4, 50))
    assert list(check_store(rolled_back)) == []
    assert index_of(rolled_back)[0] == before[0]


def test_a_stale_item_is_a_finding_in_a_store_with_tags(rolled_back: Path) -> None:
    file = min((rolled_back / "index").iterdir())
    keyed = next(one for one in all_messages(rolled_back) if one.keys)
    hashed = key_hash(index_key(keyed.topic, keyed.keys[0]))
    item = hashed.to_bytes(4, "big") + keyed.physical_offset.to_bytes(8, "big")
    data = bytearray(file.read_bytes())
    at = data.index(item)
    data[at : at + 4] = (hashed ^ 1).to_bytes(4, "big")
    file.write_bytes(data)
    kinds = {finding.kind.value for finding in check_store(rolled_back)}
    assert {"missing_index_entry", "stale_index_entry"} <= kinds


def test_an_upgraded_store_has_tags_from_its_upgrade_on(upgraded: Path) -> None:
    tags_from = survey_of(upgraded).config.index_tags_from
    assert tags_from is not None
    assert tags_from > 0
    assert index_of(upgraded) == expected_index(upgraded, tags_from)
    assert expected_index(upgraded, tags_from) not in (
        expected_index(upgraded, 0), expected_index(upgraded, None),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["store", "upgraded"])
def test_check_finds_nothing_and_a_rebuild_gives_the_same(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(name)
    assert list(check_store(path)) == []
    assert list(check_store(path, quick=True)) == []
    reput.rebuild(path, output=tmp_path / "out", runner="serial")
    assert index_of(tmp_path / "out") == index_of(path)
    assert survey_of(path).config == survey_of(path).refresh().config


@pytest.mark.parametrize("name", ["store", "upgraded"])
def test_the_index_is_trusted(name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(name)
    with reput.open_store(path) as opened:
        for key in ("k1", "k5", "none"):
            result = assert_answers(opened, path, key)
            indexed = sum(part.size_bytes for part in result.coverage.indexed)
            assert indexed > result.coverage.log.size_bytes * 3 // 4


def test_a_key_that_looks_like_tags_is_another_key(tmp_path: Path) -> None:
    path = tmp_path / "s"
    messages = [Message("T", b"x", keys=["T#a"], tags="b"), Message("T", b"y", tags="a")] * 20
    put(path, NEW, messages)
    assert key_hash(index_key("T", "T#a")) == key_hash(index_key("T", tag_key("a")))
    with reput.open_store(path) as opened:
        assert {one.body for one in opened.query("T", "T#a").messages} == {b"x"}
        assert {decoded.body for decoded in opened.find_by_tags("T", "a").decoded().messages} == {
            b"y"
        }


def test_keys_that_look_like_tags_show_no_version(tmp_path: Path) -> None:
    put(tmp_path / "s", OLD, [Message("T", b"x", keys=["k", "T#a"], tags="a")] * 20)
    assert survey_of(tmp_path / "s").config.index_tags_from is None


@pytest.mark.parametrize("name", ["store", "upgraded", "old"])
def test_messages_are_found_by_tags(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if name == "old":
        path = tmp_path / "old"
        put(path, OLD, random_messages(4, 200))
    else:
        path = request.getfixturevalue(name)
    messages = all_messages(path)
    with reput.open_store(path) as opened:
        for topic in "TU":
            for tags in ("a", "b", "a || b", "\u00fc", "c"):
                expected = tagged(messages, topic, tags)[::-1]
                result = opened.find_by_tags(topic, tags)
                assert [one.physical_offset for one in result.records] == expected
                assert result.is_complete
                page, cursor, pages = [], None, 0
                while pages == 0 or cursor is not None:
                    part = opened.find_by_tags(topic, tags, limit=7, after=cursor)
                    page += [one.physical_offset for one in part.records]
                    cursor, pages = part.cursor, pages + 1
                assert page == expected
        assert result.coverage.indexed == ()


def test_the_owner_continues_as_the_broker(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(store, path)
    put(path, None, random_messages(9, 100))
    assert index_of(path) == expected_index(path, 0)
    assert list(check_store(path)) == []


def test_a_repair_and_an_archive_restore_the_items(store: Path, tmp_path: Path) -> None:
    path, archive, restored = tmp_path / "s", tmp_path / "archive", tmp_path / "restored"
    shutil.copytree(store, path)
    sorted((path / "index").iterdir())[1].unlink()
    assert run("repair", path).code == FOUND
    assert index_of(path) == index_of(store)
    reput.archive(path, archive, with_last=True)
    assert run("restore", archive, restored).code == FOUND
    assert index_of(restored) == index_of(store)


@pytest.mark.parametrize("config", [NEW, OLD])
def test_a_store_is_recovered_as_the_broker_wrote_it(tmp_path: Path, config: StoreConfig) -> None:
    """Copy a store that is open, so that the copy looks as after a crash, and open it with 5.5."""
    path, crashed = tmp_path / "s", tmp_path / "crashed"
    with reput.open_store(path, mode="rw", config=config) as store:
        store.put_many(random_messages(5, 150))
        store.wait_dispatched()
        shutil.copytree(path, crashed)
    for file in sorted((crashed / "index").iterdir())[1:]:
        file.unlink()
    assert (crashed / "abort").exists()
    put(crashed, NEW, random_messages(6, 50))
    assert list(check_store(crashed)) == []
    tags_from = survey_of(crashed).config.index_tags_from
    assert tags_from is not None
    assert (tags_from == 0) == (config is NEW)
    with reput.open_store(crashed) as opened:
        for key in ("k1", "k2", "k3"):
            expected = [
                one.physical_offset
                for one in all_messages(crashed)
                if one.topic == "U" and key in one.keys and one.sys_flag & 12 != 12
            ]
            found = [one.physical_offset for one in opened.query("U", key).messages]
            assert found == expected[::-1]


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_it_is_not_written_as_an_older_store(store: Path, tmp_path: Path, version: str) -> None:
    path = tmp_path / "s"
    shutil.copytree(store, path)
    (path / "abort.bak").unlink()
    with pytest.raises(
        UsageError, match=f"5.4 or later, and cannot be written as a store of {version}"
    ):
        put(path, replace(SMALL_16K, store_version=version), [])


def test_a_lost_item_for_tags_is_a_finding(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(store, path)
    file = min((path / "index").iterdir())
    tags = next(one for one in all_messages(path) if one.tags)
    hashed = key_hash(index_key(tags.topic, tag_key(tags.tags or "")))
    item = hashed.to_bytes(4, "big") + tags.physical_offset.to_bytes(8, "big")
    data = bytearray(file.read_bytes())
    at = data.index(item)
    data[at : at + 4] = (hashed ^ 1).to_bytes(4, "big")
    file.write_bytes(data)
    kinds = {finding.kind.value for finding in check_store(path)}
    assert "missing_index_entry" in kinds


def test_a_damaged_log_or_index_shows_nothing(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(store, path)
    for file in (path / "commitlog").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    assert survey_of(path).config.index_tags_from is None
