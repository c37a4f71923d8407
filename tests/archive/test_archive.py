"""Archives of golden stores: restored byte for byte, equal answers, and archivers that are interrupted."""

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pyzstd

import reput
from reput.cli.main import FOUND, WRONG_USE, main
from reput.core.query.message_store import MessageStore
from reput.errors import UsageError
from reput.format.archive import tree_root
from reput.io.archive import Archive
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenStore
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
_OTHERWISE = ("five_dledger", "five_tiered", "five_timer", "defaults")
_STORES = [
    pytest.param(name, marks=() if name in ("lmq", "five_ext") else pytest.mark.slow)
    for name in (*EVERY_STORE, *EVERY_FIVE)
    if name not in _OTHERWISE
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def _queues(store: MessageStore) -> list[tuple[str, int, int, int]]:
    return [
        (*queue, store.min_queue_offset(*queue), store.max_queue_offset(*queue))
        for queue in store.list_queues()
    ]


def _objects(place: str) -> set[str]:
    return {str(path.relative_to(place)) for path in Path(place).rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", _STORES)
def test_an_archived_store_answers_every_recorded_query_as_the_store_and_is_restored_byte_for_byte(
    golden: Golden, name: str, place: str, tmp_path: Path
) -> None:
    store = golden(name)
    archived = reput.archive(store.path, place, with_last=True)
    assert archived.files == len(list(Archive(place).manifest.log)) > 0
    assert reput.verify_archive(place).is_valid
    with reput.open_store(store.path) as here, reput.open_store(place) as there:
        assert _queues(there) == _queues(here)
        for topic, queue_id, begin, end in _queues(here):
            for number in {begin, (begin + end) // 2, end - 1} if begin < end else ():
                message = there.get_by_queue(topic, queue_id, number)
                assert message == here.get_by_queue(topic, queue_id, number)
        for asked in store.queries[:100]:
            window = asked.begin, asked.end
            found, expected = (one.query(asked.topic, asked.key, *window) for one in (there, here))
            assert found.messages == expected.messages
            assert not found.coverage.unreadable
    restored = tmp_path / "restored"
    assert reput.restore(place, restored).messages == archived.messages
    for file in Archive(place).manifest.log:
        assert (restored / file.path).read_bytes() == (store.path / file.path).read_bytes()
    assert reput.check(restored).is_valid


def test_a_message_of_an_archive_comes_from_its_key_index(golden: Golden, place: str) -> None:
    store = golden("orders")
    reput.archive(store.path, place)
    with reput.open_store(place) as archive:
        found = archive.query("orders", "customer-48")
        assert found.messages
        assert not found.coverage.scanned
        assert {part.index_file[:5] for part in found.coverage.indexed} == {"keys/"}


def test_log_objects_are_files_of_the_seekable_format(golden: Golden, place: str) -> None:
    store = golden("lmq")
    reput.archive(store.path, place, with_last=True)
    archive = Archive(place)
    for file in archive.manifest.log:
        stored = Path(place, file.object).read_bytes()
        expected = (store.path / file.path).read_bytes()[: file.data_bytes]
        frames, flags, magic = struct.unpack("<IBI", stored[-9:])
        assert (magic, flags) == (0x8F92EAB1, 0)
        head, length = struct.unpack_from("<II", stored, len(stored) - 9 - 8 * frames - 8)
        assert (head, length) == (0x184D2A5E, 8 * frames + 9)
        at, found = 0, b""
        *_, digests = struct.iter_unpack("<II", stored[-9 - 8 * frames : -9])
        # The last frame is skippable, so it has no content. It has digests of all other frames, 32 bytes each.
        assert digests == (8 + 32 * (frames - 1), 0)
        for number in range(frames - 1):
            size, content = struct.unpack_from(
                "<II", stored, len(stored) - 9 - 8 * (frames - number)
            )
            found += pa.decompress(stored[at : at + size], content, codec="zstd", asbytes=True)
            at += size
        assert found == expected
        assert tree_root(archive.directory(file).digests) == file.tree


def test_another_reader_of_the_seekable_format_finds_every_range(
    golden: Golden, place: str
) -> None:
    store = golden("orders")
    reput.archive(store.path, place, with_last=True)
    random = Random(0)
    for file in Archive(place).manifest.log:
        expected = (store.path / file.path).read_bytes()[: file.data_bytes]
        with pyzstd.SeekableZstdFile(Path(place, file.object)) as opened:
            assert opened.read() == expected
            for _ in range(100):
                at = random.randrange(file.data_bytes)
                opened.seek(at)
                assert opened.read(5000) == expected[at : at + 5000]


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_zstd_gives_back_the_bytes_of_the_broker(golden: Golden, place: str) -> None:
    store = golden("orders")
    reput.archive(store.path, place)
    for file in Archive(place).manifest.log:
        found = subprocess.run(
            ["zstd", "-dc", str(Path(place, file.object))], capture_output=True, check=True
        )
        assert found.stdout == (store.path / file.path).read_bytes()


def test_the_last_log_file_is_left_out_until_another_follows_it(golden: Golden, place: str) -> None:
    store = golden("orders")
    report = reput.archive(store.path, place)
    names = sorted(path.name for path in (store.path / "commitlog").iterdir())
    assert [Path(file.path).name for file in Archive(place).manifest.log] == names[:-1]
    assert any(names[-1] in note for note in report.notes)
    assert reput.archive(store.path, place).files == 0
    assert reput.archive(store.path, place, with_last=True).files == 1
    sealed = [file.is_sealed for file in Archive(place).manifest.log]
    assert sealed == [True] * (len(names) - 1) + [False]


def test_a_last_file_that_was_copied_is_replaced_when_it_has_grown(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    whole = golden("orders").path
    young = copy_store(whole, tmp_path / "young")
    for path in sorted((young / "commitlog").iterdir())[3:]:
        path.unlink()
    third = sorted((young / "commitlog").iterdir())[2]
    reput.archive(young, place, with_last=True)
    assert [file.is_sealed for file in Archive(place).manifest.log] == [True, True, False]
    assert reput.archive(whole, place).files == len(list((whole / "commitlog").iterdir())) - 3
    replaced = Archive(place).manifest.log[2]
    assert replaced.is_sealed
    assert Path(replaced.path).name == third.name
    assert reput.verify_archive(place).is_valid


def test_a_file_that_only_an_allocated_one_follows_may_still_grow(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "live")
    files = sorted((store / "commitlog").iterdir())
    size = files[0].stat().st_size
    with open(store / "commitlog" / f"{int(files[-1].name) + size:020}", "wb") as allocated:
        allocated.truncate(size)
    report = reput.archive(store, place)
    assert len(Archive(place).manifest.log) == len(files) - 1
    assert any(files[-1].name in note for note in report.notes)
    reput.archive(store, place, with_last=True)
    assert [file.is_sealed for file in Archive(place).manifest.log][-2:] == [True, False]
    assert len(Archive(place).manifest.log) == len(files)


def test_indexes_are_merged_and_open_as_parquet(
    golden: Golden, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.wings.archive.changes._FAN", 3)
    monkeypatch.setattr("reput.wings.archive.changes._MOST_DAY_FILES", 0)
    monkeypatch.setattr("reput.wings.archive.indexing._MERGED_ROWS", 1000)
    store = golden("orders")
    reput.archive(store.path, place)
    manifest = Archive(place).manifest
    assert [part.files for part in manifest.keys] == [3, 3]
    assert [part.files for part in manifest.queues] == [3, 3]
    hashes = pq.read_table(Path(place, manifest.keys[0].object)).column("key_hash").to_pylist()
    assert hashes == sorted(hashes)
    rows = pq.read_table(Path(place, manifest.queues[0].object))
    assert len(rows) == sum(file.messages for file in manifest.log[:3])
    with reput.open_store(store.path) as here, reput.open_store(place) as there:
        for asked in store.queries[:50]:
            until = manifest.log[-1].end
            expected = [
                one
                for one in here.query(asked.topic, asked.key).messages
                if one.physical_offset < until
            ]
            assert list(there.query(asked.topic, asked.key).messages) == expected
        for topic, queue_id, begin, end in _queues(there):
            for number in range(begin, end, 50):
                message = there.get_by_queue(topic, queue_id, number)
                assert message == here.get_by_queue(topic, queue_id, number)
    assert reput.verify_archive(place).is_valid


class Killed(BaseException):
    """Raised in place of a kill: no code handles it."""


_STEPS = ("archive", "scan", "keys", "queues", "commit", "merge", "snapshot", "clean")


@pytest.mark.parametrize("step", _STEPS)
def test_an_archiver_that_was_killed_at_any_step_can_be_run_again(
    golden: Golden, place: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.wings.archive.changes._FAN", 3)
    store = golden("orders").path
    seen: list[str] = []

    def kill(phase: str, done: int, total: int) -> None:
        seen.append(phase)
        if phase == step and (seen.count(step) == 2 or step in ("merge", "snapshot", "clean")):
            raise Killed

    with pytest.raises(Killed):
        reput.archive(store, place, progress=kill)
    reput.archive(store, place)
    manifest = Archive(place).manifest
    count = len(list((store / "commitlog").iterdir())) - 1
    assert len(manifest.log) == count
    assert sum(part.files for part in manifest.keys) == count
    assert reput.verify_archive(place).is_valid


def test_archivers_at_once_neither_lose_nor_duplicate_a_file(golden: Golden, place: str) -> None:
    store = golden("orders").path
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: reput.archive(store, place, with_last=True), range(3)))
    manifest = Archive(place).manifest
    begins = [file.begin for file in manifest.log]
    assert begins == sorted({int(path.name) for path in (store / "commitlog").iterdir()})
    assert sum(part.files for part in manifest.keys) == len(begins)
    assert sum(part.files for part in manifest.queues) == len(begins)
    assert reput.verify_archive(place).is_valid


def test_the_archive_of_another_store_is_refused(golden: Golden, place: str) -> None:
    reput.archive(golden("orders").path, place)
    before = _objects(place)
    with pytest.raises(UsageError, match="archive of another store"):
        reput.archive(golden("basic").path, place)
    assert _objects(place) == before


def test_an_archive_is_not_written_as_a_store(golden: Golden, place: str) -> None:
    reput.archive(golden("lmq").path, place, with_last=True)
    before = _objects(place)
    for write in (
        lambda: reput.open_store(place, mode="rw"),
        lambda: reput.rebuild(place),
        lambda: reput.repair(place),
        lambda: reput.check(place),
    ):
        with pytest.raises(UsageError, match="is an archive; restore it"):
            write()
    assert _objects(place) == before


def test_a_store_is_restored_only_into_an_empty_folder(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    reput.archive(golden("lmq").path, place, with_last=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        reput.restore(place, tmp_path / "full")
    assert (tmp_path / "full" / "x").read_text() == "x"


def test_only_the_log_files_of_a_time_are_restored(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    reput.archive(golden("orders").path, place)
    third = Archive(place).manifest.log[2]
    assert third.times is not None
    middle = (third.times.least + third.times.greatest) // 2
    reput.restore(place, tmp_path / "some", begin=middle, end=middle)
    assert [path.name for path in (tmp_path / "some" / "commitlog").iterdir()] == [
        Path(third.path).name
    ]


def test_a_missing_log_object_is_damage_and_not_a_file_that_expired(
    golden: Golden, place: str
) -> None:
    store = golden("orders")
    reput.archive(store.path, place)
    file = Archive(place).manifest.log[3]
    with reput.open_store(place) as archive:
        before = archive.query("orders", "customer-26")
    Path(place, file.object).unlink()
    with reput.open_store(place) as archive:
        found = archive.query("orders", "customer-26")
    assert before.is_complete
    assert not found.is_complete
    assert "is missing" in str(found.coverage.unreadable[0])
    inside = [one for one in before.messages if file.begin <= one.physical_offset < file.end]
    assert inside
    assert list(found.messages) == [one for one in before.messages if one not in inside]
    program = "import sys, reput; reput.dataset(sys.argv[1], ['topic']).to_table()"
    table = subprocess.run(  # in a new process, which has read nothing of the archive
        [sys.executable, "-c", program, place], capture_output=True, check=False, text=True
    )
    assert "CorruptMessageError" in table.stderr


def test_an_object_that_was_cut_is_damage(golden: Golden, place: str) -> None:
    reput.archive(golden("orders").path, place)
    manifest = Archive(place).manifest
    with reput.open_store(place) as archive:
        before = archive.query("orders", "customer-26")
    index = Path(place, manifest.keys[0].object)
    data = index.read_bytes()
    index.write_bytes(data[:100])
    with reput.open_store(place) as archive:
        found = archive.query("orders", "customer-26")
    assert found.coverage.scanned
    assert (found.messages, found.is_complete) == (before.messages, True)
    index.write_bytes(data)
    log = Path(place, manifest.log[3].object)
    log.write_bytes(log.read_bytes()[:1000])
    with reput.open_store(place) as archive:
        found = archive.query("orders", "customer-26")
    assert "was cut" in str(found.coverage.unreadable[0])
    assert set(found.messages) < set(before.messages)
    (problem,) = reput.verify_archive(place).problems
    assert "was cut: it has 1,000 bytes" in problem


def test_records_before_a_damaged_frame_are_found(golden: Golden, place: str) -> None:
    store = golden("orders")
    reput.archive(store.path, place)
    archive = Archive(place)
    file, frame = archive.manifest.log[2], 7
    path = Path(place, file.object)
    data = bytearray(path.read_bytes())
    data[int(archive.directory(file).starts[frame]) + 20] ^= 1
    path.write_bytes(data)
    damaged = file.begin + frame * 65536
    with reput.open_store(store.path) as here, reput.open_store(place) as there:
        expected = here.query("orders", "customer-26").messages
        found = there.query("orders", "customer-26")
    lost = found.coverage.unreadable[0]
    assert damaged - 65536 < lost.start <= damaged
    assert lost.stop == file.end
    assert set(found.messages) <= set(expected)
    outside = [
        one for one in expected
        if one.physical_offset < archive.manifest.end and not lost.start <= one.physical_offset < lost.stop
    ]  # fmt: skip
    assert set(outside) <= set(found.messages)


@pytest.mark.parametrize("arguments", [("archive", "--verify"), ("restore",)])
def test_a_folder_without_a_manifest_is_not_an_archive(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        place = str(tmp_path / name)
        target = [str(tmp_path / "restored")] if arguments == ("restore",) else []
        assert main([*arguments, place, *target]) == 2
        assert f"{place}: is not an archive: it has no archive.json" in capsys.readouterr().err


def test_an_archive_without_a_log_file_says_so(tmp_path: Path) -> None:
    """The only log file of a small store is its last one, which is not archived by default."""
    store, archive = tmp_path / "store", tmp_path / "archive"
    with reput.open_store(store, mode="rw", config=SMALL_16K) as opened:
        opened.put(reput.Message("T", b"body", ["k"]))
    ran = run("archive", store, archive)
    assert ran.code == FOUND
    assert "archive the last file of a stopped store as well (with_last)" in ran.out
    assert "  no log file is archived yet" in run("archive", "--verify", archive).lines
    for command in (("query", archive, "--key", "k"), ("restore", archive, tmp_path / "new")):
        ran = run(*command)
        assert ran.code == WRONG_USE
        assert "the archive has no log file yet" in one_line(ran)
    assert run("archive", store, archive, "--with-last").code == FOUND
    assert run("query", archive, "--key", "k").code == FOUND
