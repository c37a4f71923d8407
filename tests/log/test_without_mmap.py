"""Logs that a broker writes without mmap (5.4): bytes of other messages follow the last record and each BLANK."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import reput
from reput.base.config import StoreConfig
from reput.base.findings import Kind
from tests.check.checking import checked, kinds
from tests.oracle.appended import PAGE_BYTES, appended
from tests.oracle.forge import Files, LogForge, RecordFields, forge_log, write_store
from tests.oracle.walk import walk

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 14,
    queue_entries=30,
    hash_slots=64,
    index_items=300,
    store_version="5.3",
)
SEEDS = (1, 2, 3, 4)


def new_log(random: Random, count: int = 120) -> LogForge:
    def records() -> Iterator[RecordFields]:
        for number in range(count):
            yield RecordFields(
                topic="T", queue_offset=number, body=random.randbytes(random.choice((7, 90, 300, 700))),
                properties=f"UNIQ_KEY\x01id-{number:08d}\x02KEYS\x01k{number}\x02",
                store_timestamp=1_700_000_000_000 + number,
            )  # fmt: skip

    return forge_log(records(), file_bytes=CONFIG.commit_log_file_bytes)


def new_store(path: Path, files: Files, *, is_clean: bool = True) -> Path:
    write_store(path, files)
    reput.rebuild(path, config=CONFIG, runner="serial")
    (path / "RocksDBMessageStore").mkdir()
    if not is_clean:
        (path / "abort").write_bytes(b"1")
    return path


@pytest.mark.every_case
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("to_page", [True, False])
def test_such_a_log_is_read_rebuilt_and_valid(tmp_path: Path, seed: int, to_page: bool) -> None:
    forge = new_log(Random(seed))
    files = appended(forge, Random(seed), to_page=to_page)
    has_rest = [any(data[forge.end_offset - start :]) for start, data in files][-1]
    assert has_rest == to_page
    assert files != forge.files()
    store, plain = (
        new_store(tmp_path / "store", files),
        new_store(tmp_path / "plain", forge.files()),
    )
    for name in ("consumequeue", "index"):
        assert contents(store / name) == contents(plain / name)
    with reput.open_store(store) as opened:
        assert opened.end_offset() == forge.end_offset
        for number in (0, 60, 119):
            answer = opened.query("T", f"k{number}")
            assert [message.queue_offset for message in answer.messages] == [number]
            assert answer.coverage.is_complete
    assert kinds(checked(store)) == kinds(checked(store, quick=True)) == set()
    assert reput.inspect(store).findings == ()


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder; IndexFiles without their names, which are times."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [
        str(number) if folder.name == "index" else str(path.relative_to(folder))
        for number, path in enumerate(paths)
    ]
    return {name: path.read_bytes() for name, path in zip(names, paths, strict=True)}


def test_bytes_after_the_page_are_a_torn_end(tmp_path: Path) -> None:
    forge = new_log(Random(5))
    files = appended(forge, Random(5))
    start, data = files[-1]
    after = forge.end_offset - start
    after += -after % PAGE_BYTES
    assert after < len(data) - 1
    files[-1] = start, data[: after + 1] + b"x" + data[after + 2 :]
    store = new_store(tmp_path / "store", files)
    assert kinds(checked(store)) == {str(Kind.TORN_LOG_END)} == kinds(checked(store, quick=True))
    # A broker before 5.4 does not write such bytes.
    older = new_store(tmp_path / "older", appended(forge, Random(5)))
    (older / "RocksDBMessageStore").rmdir()
    (older / "abort.bak").touch()
    assert kinds(checked(older)) == {str(Kind.TORN_LOG_END)}


@pytest.mark.every_case
@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_crash_within_a_write_the_log_ends_before_it(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    forge = new_log(random)
    files = appended(forge, Random(seed))
    # The last write reached the disk only in part. The rest of its place has the padding of the write before.
    before = LogForge(CONFIG.commit_log_file_bytes)
    whole = dict(forge.files())
    last = forge.offsets[-1]
    for at in forge.offsets[:-1]:
        start = at - at % before.file_bytes
        size = int.from_bytes(whole[start][at - start : at - start + 4], "big")
        before.put_bytes(whole[start][at - start : at - start + size])
    old = dict(appended(before, Random(seed)))
    start, data = files[-1]
    cut = last - start + random.randrange(1, 80)  # within the fields before the body
    files[-1] = (
        start,
        data[:cut] + old[start][cut:] if start in old else data[:cut].ljust(len(data), b"\0"),
    )
    end = walk(files).end_offset
    assert end == last
    store = new_store(tmp_path / "store", files, is_clean=False)
    with reput.open_store(store) as opened:
        assert opened.end_offset() == last
    with reput.open_store(store, mode="rw") as opened:
        assert opened.recovery.log_end == last
        assert opened.recovery.kept_messages == 0
        opened.put(reput.Message("T", b"after", properties={"KEYS": "after"}))
        assert len(opened.query("T", "after").messages) == 1
    assert kinds(checked(store)) == set()


@pytest.mark.parametrize("is_clean", [True, False])
def test_such_a_store_is_written_and_repaired(tmp_path: Path, is_clean: bool) -> None:
    forge = new_log(Random(6))
    store = new_store(tmp_path / "store", appended(forge, Random(6)), is_clean=is_clean)
    with reput.open_store(store, mode="rw") as opened:
        assert opened.put(reput.Message("T", b"new", queue_id=0)).queue_offset == 120
    assert kinds(checked(store)) == set()
    queue_file = min((store / "consumequeue" / "T" / "0").iterdir())
    queue_file.write_bytes(bytes(20) + queue_file.read_bytes()[20:])
    assert kinds(checked(store)) != set()
    reput.repair(store)
    assert kinds(checked(store)) == set()
    with reput.open_store(store) as opened:
        pulled = opened.pull("T", 0, 0, 200).messages
    assert [message.queue_offset for message in pulled] == list(range(121))
    assert pulled[-1].body == b"new"
