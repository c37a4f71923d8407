"""The index of keys in RocksDB (5.4): rebuilt item for item, and compared by check."""

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

import reput
from reput.base import Kind
from reput.cli.main import FOUND, WRONG_USE
from reput.engine.writer.put.message import Message
from reput.errors import UsageError
from reput.format.commit_log import MessageExt
from reput.format.properties import encode_properties
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.five import CONFIG
from tests.index.test_rocksdb_index import index_items

rocksdict = pytest.importorskip("rocksdict")
GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden54" / "five4_nouniq.tar.xz"
Items = dict[bytes, bytes]
Made = tuple[Path, list[MessageExt]]
MARKS = (b"lastOffsetPy", b"lastStoreTimeStamp")


def items(folder: Path) -> Items:
    copy = folder.with_name("copy-of-database")
    shutil.copytree(folder, copy)
    options = rocksdict.Options(raw_mode=True)
    families = {
        name: rocksdict.Options(raw_mode=True)
        for name in rocksdict.Rdict.list_cf(str(copy), options)
    }
    database = rocksdict.Rdict(
        str(copy),
        options,
        column_families=families,
        access_type=rocksdict.AccessType.read_only(False),
    )
    found = dict(database.items())
    database.close()
    shutil.rmtree(copy)
    return found


def text(number: int, random: Random) -> str:
    """The properties of a message."""
    keys = " ".join(random.choices(["a", "b", "a@b", "\u00fc"], k=number % 3))
    properties = {"KEYS": keys} if keys else {}
    properties |= {"TAGS": "tag"} if number % 3 else {}
    properties |= {"UNIQ_KEY": f"U{number}"} if number % 5 else {}
    return encode_properties(properties) + "\x02" if properties else ""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[MessageExt]]:
    """A small store, and its messages: some have no unique key, some are rolled back."""
    path, random = tmp_path_factory.mktemp("index") / "store", Random(4)
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        places = [
            store.put(
                Message(
                    "TU"[number % 2], b"body" * 20, properties=text(number, random),
                    keys=None, tags=None, sys_flag=12 if number % 7 == 3 else 0,
                )
            ).physical_offset
            for number in range(60)
        ]  # fmt: skip
    with reput.open_store(path) as store:
        return path, [store.get(place) for place in places]


def test_it_has_the_items_that_a_broker_puts(made: Made, tmp_path: Path) -> None:
    store, messages = made
    report = reput.rebuild(store, output=tmp_path / "o", only="index", index="rocksdb")
    last = max((one for one in messages if index_items([one])), key=lambda one: one.physical_offset)
    found = items(tmp_path / "o" / "RocksDBMessageStore")
    assert {key: value for key, value in found.items() if key not in MARKS} == index_items(messages)
    assert int.from_bytes(found[b"lastOffsetPy"]) == last.physical_offset
    assert report.index_entries == len(found)
    assert (report.index_files, report.queue_files) == (0, 0)
    assert not (tmp_path / "o" / "index").exists()
    assert "in RocksDB" in str(report)


@pytest.mark.skipif(not GOLDEN.exists(), reason="needs ../shared/golden54 beside the checkout")
def test_the_index_of_a_store_is_rebuilt_in_place(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "nouniq"
    before = items(store / "RocksDBMessageStore")
    queues = {
        path: path.read_bytes() for path in (store / "consumequeue").rglob("0*") if path.is_file()
    }
    ran = run("rebuild", store, "--only", "index", "--index", "rocksdb")
    assert ran.code == FOUND
    after = items(store / "RocksDBMessageStore")
    assert {key: value for key, value in after.items() if key != MARKS[1]} == {
        key: value for key, value in before.items() if key != MARKS[1]
    }
    assert {path: path.read_bytes() for path in queues} == queues
    assert run("check", store).out == "valid\n"


def test_other_items_of_the_database_are_not_deleted(made: Made, tmp_path: Path) -> None:
    store = shutil.copytree(made[0], tmp_path / "store")
    database = rocksdict.Rdict(str(store / "RocksDBMessageStore"), rocksdict.Options(raw_mode=True))
    family = database.create_column_family("timer", rocksdict.Options(raw_mode=True))
    family[b"timeline_checkpoint"] = bytes(8)
    database.close()
    with pytest.raises(UsageError, match="also has timers, which a rebuild would delete"):
        reput.rebuild(store, index="rocksdb")
    reput.rebuild(store, output=tmp_path / "o", index="rocksdb")
    assert (tmp_path / "o" / "consumequeue").is_dir()
    for options in (["--only", "consumequeue"], ["--salvage"], ["--output", "s3://b/o"]):
        ran = run("rebuild", store, "--index", "rocksdb", *options)
        assert (ran.code, "rocksdb" in ran.err) == (2, True)
    with pytest.raises(UsageError, match="must be"):
        reput.rebuild(store, index="files2")  # type: ignore[call-overload]


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["files", "rocksdb", "both"])
def test_a_kind_of_queues_for_the_index_alone_is_refused(
    made: Made, tmp_path: Path, kind: str
) -> None:
    output = tmp_path / "output"
    ran = run("rebuild", made[0], "--only", "index", "--queues", kind, "--output", output)
    assert ran.code == 2
    assert "--queues cannot be combined with --only='index', which leaves them" in ran.err
    assert not output.exists()


@pytest.fixture
def checked(made: Made, tmp_path: Path) -> Path:
    """A store whose only index of keys is in RocksDB."""
    store = shutil.copytree(made[0], tmp_path / "store")
    shutil.rmtree(store / "index")
    reput.rebuild(store, only="index", index="rocksdb")
    return store


@pytest.mark.parametrize("options", [(), ("--only", "index"), ("--output", "out")])
def test_a_store_with_keys_in_rocksdb_only_gets_no_index_files_unasked(
    checked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(checked.rglob("*"))
    ran = run("rebuild", checked, *options)
    assert ran.code == WRONG_USE
    assert "has keys in RocksDB, and no IndexFiles; pass --index='rocksdb'" in one_line(ran)
    assert sorted(checked.rglob("*")) == before
    assert not (tmp_path / "out").exists()
    assert run("rebuild", checked, "--only", "consumequeue").code == FOUND
    assert not (checked / "index").exists()
    assert run("rebuild", checked, *options, "--index", "files").code == FOUND


def change(store: Path, changes: Mapping[bytes, bytes | None]) -> None:
    database = rocksdict.Rdict(str(store / "RocksDBMessageStore"), rocksdict.Options(raw_mode=True))
    for key, value in changes.items():
        if value is None:
            del database[key]
        else:
            database[key] = value
    database.close()


def found(store: Path) -> list[tuple[int, str]]:
    findings = reput.check(store).findings
    return [(one.count, one.detail) for one in findings if one.kind is Kind.INDEX_DATABASE]


def test_check_compares_it_with_the_log(checked: Path) -> None:
    assert not {"index_deleted", "index_database"} & {
        str(one.kind) for one in reput.check(checked).findings
    }
    stored = items(checked / "RocksDBMessageStore")
    keys = sorted(key for key in stored if key not in MARKS)
    change(checked, dict.fromkeys(keys[:3]))
    assert [count for count, _ in found(checked)] == [3]
    change(checked, {keys[0]: stored[keys[0]], keys[1]: stored[keys[1]], keys[2]: bytes(8)})
    assert found(checked) == [(1, "0 entries without a message, 1 with another time")]
    foreign = keys[0][:8] + b"@T@U@nobody@" + keys[0][-8:]
    change(checked, {keys[2]: stored[keys[2]], foreign: bytes(8)})
    assert found(checked) == [(1, "1 entry without a message, 0 with another time")]
    change(checked, {foreign: None, keys[0][:-8] + (1 << 60).to_bytes(8): bytes(8)})
    assert [count for count, detail in found(checked) if "after the end" in detail] == [1]


def test_a_deleted_index_is_damage_although_the_database_exists(checked: Path) -> None:
    change(checked, dict.fromkeys(items(checked / "RocksDBMessageStore")))
    for quick in (False, True):
        kinds = {str(one.kind) for one in reput.check(checked, quick=quick).findings}
        assert "index_deleted" in kinds


def test_a_database_that_cannot_be_read_is_a_finding(checked: Path) -> None:
    for path in (checked / "RocksDBMessageStore").glob("MANIFEST-*"):
        path.write_bytes(b"")
    assert "cannot be read" in found(checked)[0][1]


def test_a_repair_keeps_the_database(checked: Path) -> None:
    before = items(checked / "RocksDBMessageStore")
    path = checked / "consumequeue" / "T" / "0" / f"{0:020d}"
    entries = path.read_bytes()
    path.write_bytes(entries[:40] + bytes(20) + entries[60:])
    ran = run("repair", checked)
    assert ran.code == FOUND, ran.err
    assert items(checked / "RocksDBMessageStore") == before
    assert run("check", checked).out == "valid\n"
    assert path.read_bytes() == entries
