"""Queues in files and in RocksDB beside each other, as brokers of 5.4 may have them (CombineConsumeQueueStore)."""

import shutil
import tarfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

import reput
from reput.base.config import StoreConfig
from reput.core.store.facts import facts_of
from reput.errors import UsageError
from tests.check.checking import checked, kinds
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, forge_log, write_store
from tests.rocksdb_queues import cut_database, delete_queues, items

pytest.importorskip("rocksdict")
from reput.engine.five.rocksdb_writer import opened_to_write
from reput.format.rocksdb_queue import (
    ENTRIES_FAMILY,
    OFFSETS_FAMILY,
    decode_end,
    decode_value,
    entry_key,
    queue_prefix,
)

Golden = Callable[[str], GoldenStore]
GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden54" / "five4_comb.tar.xz"
CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 14,
    queue_entries=20,
    hash_slots=64,
    index_items=300,
    store_version="5.3",
)
TOPICS = ("A", "B", "Lite")


def new_log(store: Path, count: int = 150) -> list[int]:
    """Write a log of three topics; return the physical offsets of the messages."""
    log = forge_log(
        (
            RecordFields(
                topic=TOPICS[number % 3], queue_offset=number // 3, body=bytes(80 + number % 7),
                properties=f"UNIQ_KEY\x01id-{number:06d}\x02TAGS\x01t{number % 2}\x02",
                store_timestamp=1_700_000_000_000 + number,
            )
            for number in range(count)
        ),
        file_bytes=CONFIG.commit_log_file_bytes,
    )  # fmt: skip
    write_store(store, log.files())
    return log.offsets


def rebuilt(store: Path, queues: Literal["files", "rocksdb", "both"]) -> Path:
    reput.rebuild(store, queues=queues, config=CONFIG, runner="serial")
    return store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with all topics in both."""
    new_log(tmp_path / "store")
    return rebuilt(tmp_path / "store", "both")


def queue_files(store: Path) -> dict[str, bytes]:
    folder = store / "consumequeue"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parent != folder
    }


def topics_in_rocksdb(store: Path) -> set[str]:
    ends = (decode_end(*item) for item in items(store)[OFFSETS_FAMILY].items())
    return {end.topic for end in ends if end is not None}


def delete(store: Path, topics: Iterable[str], numbers: range) -> None:
    """Delete entries from the database."""
    with closing(opened_to_write(store / "consumequeue")) as database:
        changes = database.changes()
        for topic in topics:
            for number in numbers:
                changes.delete(entry_key(queue_prefix(topic, 0), number))
        database.write(changes)


def test_both_have_what_each_would_have_alone(store: Path, tmp_path: Path) -> None:
    new_log(tmp_path / "files")
    new_log(tmp_path / "rocksdb")
    rebuilt(tmp_path / "files", "files")
    rebuilt(tmp_path / "rocksdb", "rocksdb")
    assert queue_files(store) == queue_files(tmp_path / "files") != {}
    assert items(store) == items(tmp_path / "rocksdb")
    assert kinds(checked(store)) == kinds(checked(store, quick=True)) == set()
    # The same into another folder, and of a store with one kind.
    for source in (store, tmp_path / "files"):
        output = tmp_path / f"{source.name}-output"
        reput.rebuild(source, queues="both", output=output, config=CONFIG, runner="serial")
        assert (queue_files(output), items(output)) == (queue_files(store), items(store))
    rebuilt(store, "both")
    assert items(store) == items(tmp_path / "rocksdb")
    assert queue_files(store) == queue_files(tmp_path / "files")


def test_which_kind_to_write_is_asked_everywhere(store: Path, tmp_path: Path) -> None:
    for output in ([], ["--output", tmp_path / "out"]):
        ran = run("rebuild", store, *output)
        assert ran.code == 2
        assert "--queues='files', --queues='rocksdb' or --queues='both'" in ran.err
    with pytest.raises(UsageError, match="queues='both'"):
        reput.rebuild(store)
    with pytest.raises(UsageError, match="reput rebuild converts them"):
        reput.open_store(store, mode="rw")


def test_topics_stay_in_the_kinds_that_have_them(store: Path) -> None:
    """With rocksdbCQSelectiveDoubleWriteEnable, only Lite topics are also in RocksDB."""
    delete_queues(store, "A", "B")
    assert topics_in_rocksdb(store) == {"Lite"}
    assert kinds(checked(store)) == kinds(checked(store, quick=True)) == set()
    rebuilt(store, "both")
    assert topics_in_rocksdb(store) == {"Lite"}
    assert {name.split("/")[0] for name in queue_files(store)} == set(TOPICS)
    assert kinds(checked(store)) == set()
    shutil.rmtree(store / "consumequeue" / "B")
    assert "missing_queue" in kinds(checked(store))


@pytest.mark.parametrize("folder", ["A", "B", "A/1"])
def test_lost_files_of_a_queue_are_found_and_restored(tmp_path: Path, folder: str) -> None:
    store = tmp_path / "store"
    with reput.open_store(store, mode="rw", config=CONFIG) as opened:
        for number in range(120):
            opened.put(reput.Message("AB"[number % 2], b"%d" % number, queue_id=number // 2 % 2))
    rebuilt(store, "both")
    if folder == "A/1":  # Also in a store that writes some topics twice.
        delete_queues(store, "B")
    before = topics_in_rocksdb(store), queue_files(store)
    shutil.rmtree(store / "consumequeue" / folder)
    findings = checked(store)
    assert kinds(findings) == kinds(checked(store, quick=True)) == {"missing_queue"}
    lost = {f"{folder}/{number}" for number in range(2)} if len(folder) == 1 else {folder}
    assert {finding.file for finding in findings} == {
        str(store / "consumequeue" / name) for name in lost
    }
    assert sum(finding.count for finding in findings) == 30 * len(lost)
    ran = run("repair", store)
    assert ran.code == 0, ran.err
    assert (topics_in_rocksdb(store), queue_files(store)) == before
    assert kinds(checked(store)) == kinds(checked(store, quick=True)) == set()


def test_topics_in_rocksdb_only_are_no_finding(store: Path) -> None:
    """A store with a topic in files only does not write all topics twice."""
    delete_queues(store, "B")
    shutil.rmtree(store / "consumequeue" / "Lite")
    assert kinds(checked(store)) == kinds(checked(store, quick=True)) == set()
    with reput.open_store(store) as opened:
        assert len(opened.pull("Lite", 0, 0, 32).messages) == 32
    delete(store, ("Lite",), range(7, 9))
    (finding,) = checked(store)
    assert (str(finding.kind), finding.count) == ("missing_queue_entry", 2)


def test_a_database_that_began_later_or_ended_is_no_finding(store: Path, tmp_path: Path) -> None:
    later = copy_store(store, tmp_path / "later")
    delete(later, TOPICS, range(20))
    assert kinds(checked(later)) == kinds(checked(later, quick=True)) == set()
    with reput.open_store(store) as opened:
        offset = opened.pull("A", 0, 30, 1).messages[0].physical_offset
    cut_database(store, offset)
    assert kinds(checked(store)) == kinds(checked(store, quick=True)) == set()


def test_wrong_and_lost_entries_of_each_kind_are_found(store: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("lost", "wrong", "file")):
        changed = copy_store(store, tmp_path / name)
        key = entry_key(queue_prefix("B", 0), 10 + number)
        if name == "lost":
            delete(changed, ("B",), range(10, 11))
        elif name == "wrong":
            value = bytearray(items(changed)[ENTRIES_FAMILY][key])
            assert decode_value(bytes(value)) is not None
            value[11] ^= 1
            with closing(opened_to_write(changed / "consumequeue")) as database:
                changes = database.changes()
                changes.put(key, bytes(value))
                database.write(changes)
        else:
            path = changed / "consumequeue" / "B" / "0" / f"{0:020d}"
            data = bytearray(path.read_bytes())
            data[12 * 20 + 11] ^= 1
            path.write_bytes(data)
        findings = checked(changed)
        assert kinds(findings) == {"wrong_queue_entry" if name == "file" else "second_queues"}
        assert [finding.count for finding in findings] == [1]
        # A rebuild of both mends it.
        rebuilt(changed, "both")
        assert items(changed) == items(store)
        assert queue_files(changed) == queue_files(store)


def test_repair_keeps_both(store: Path) -> None:
    before = items(store), queue_files(store)
    (store / "consumequeue" / "A" / "0" / f"{0:020d}").unlink()
    assert kinds(checked(store)) != set()
    ran = run("repair", store)
    assert ran.code == 0, ran.err
    assert (items(store), queue_files(store)) == before


def test_repair_keeps_both_with_light_queues(tmp_path: Path) -> None:
    store, config = tmp_path / "store", replace(CONFIG, enable_lmq=True, enable_multi_dispatch=True)
    dispatch = {"INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two"}
    with reput.open_store(store, mode="rw", config=config) as opened:
        for number in range(60):
            opened.put(reput.Message("A", b"%d" % number, properties=dispatch, queue_id=number % 2))
    reput.rebuild(store, queues="both", config=config, runner="serial")
    assert {"A", "%LMQ%one", "%LMQ%two"} == {name.split("/")[0] for name in queue_files(store)}
    before = items(store), queue_files(store)
    (store / "consumequeue" / "A" / "1" / f"{0:020d}").unlink()
    ran = run("repair", store)
    assert ran.code == 0, ran.err
    assert (items(store), queue_files(store)) == before


def test_an_erasure_keeps_both(store: Path, tmp_path: Path) -> None:
    delete_queues(store, "B")
    erased = tmp_path / "erased"
    report = reput.erase(store, erased, topics=["A"], reason="test")
    assert [part.messages for part in report.messages] == [50]
    assert topics_in_rocksdb(erased) == {"A", "Lite"}
    assert {name.split("/")[0] for name in queue_files(erased)} == set(TOPICS)
    assert kinds(checked(erased)) == set()


def test_a_database_of_its_own_folder_stays_there(store: Path, tmp_path: Path) -> None:
    other = store / "consumequeue_rocksdb"
    other.mkdir()
    for path in (store / "consumequeue").iterdir():
        if path.is_file():
            path.rename(other / path.name)
    rebuilt(store, "both")
    reput.rebuild(store, queues="both", output=tmp_path / "out", config=CONFIG, runner="serial")
    for place in (store, tmp_path / "out"):
        assert (place / "consumequeue_rocksdb" / "CURRENT").exists()
        assert not (place / "consumequeue" / "CURRENT").exists()
        assert {name.split("/")[0] for name in queue_files(place)} == set(TOPICS)
    assert kinds(checked(store)) == set()
    rebuilt(store, "files")
    assert not other.exists()
    assert facts_of(store).queue_form is None


@pytest.mark.skipif(not GOLDEN.exists(), reason="needs ../shared/golden54 beside the checkout")
def test_a_database_of_another_run_is_one_warning(tmp_path: Path) -> None:
    """The database of this store has the store times of another run of the same messages."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    (path,) = (one.parent for one in tmp_path.rglob("commitlog"))
    assert kinds(checked(path)) == {"second_queues"}
    assert kinds(checked(path, quick=True)) == set()
    before = queue_files(path)
    reput.rebuild(path, queues="both", only="consumequeue", runner="serial")
    assert queue_files(path) == before
    assert kinds(checked(path)) == set()


def test_such_stores_are_not_owned(store: Path) -> None:
    reput.rebuild(store, queues="both", config=CONFIG, runner="serial")
    with pytest.raises(UsageError, match="in files and in RocksDB"):
        reput.open_store(store, mode="rw")
    assert checked(store) == []
