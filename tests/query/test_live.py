"""A store that is open while a broker writes to it: readers leave every byte unchanged."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, forge_log, write_store
from tests.oracle.index_file import write_index_files
from tests.oracle.walk import LogListing, walk
from tests.query.stores import offsets

Golden = Callable[[str], GoldenStore]
_SLOTS, _ITEMS = 20, 60


class Writer:
    """Writes a log as a broker does: in place, into preallocated files. The index lacks some of the last messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: list[int] = []
        (path / "index").mkdir(parents=True)

    def write(self, messages: int, indexed: int) -> None:
        records = [
            RecordFields(properties={"KEYS": f"k{n} all"}, store_timestamp=1000 + n)
            for n in range(messages)
        ]
        log = forge_log(records, file_bytes=4096)
        self.offsets = log.offsets
        next_file = len(log.files()) * 4096, bytes(4096)
        self._put("commitlog", [(f"{s:020d}", data) for s, data in [*log.files(), next_file]])
        files: LogListing = forge_log(records[:indexed], file_bytes=4096).files()
        made = write_index_files(walk(files).dispatched, hash_slots=_SLOTS, index_items=_ITEMS)
        names = (f"{20260101000000000 + number}" for number in range(len(made)))
        self._put("index", [(name, f.to_bytes()) for name, f in zip(names, made, strict=True)])

    def _put(self, folder: str, files: list[tuple[str, bytes]]) -> None:
        (self.path / folder).mkdir(exist_ok=True)
        for name, data in files:
            path = self.path / folder / name
            with path.open("r+b" if path.exists() else "wb") as file:
                file.write(data)

    def expire(self, files: int) -> None:
        for path in sorted((self.path / "commitlog").iterdir())[:files]:
            path.unlink()


def test_a_growing_store_is_followed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store")
    writer.write(3, 2)
    with reput.open_store(tmp_path / "store") as opened:
        for messages in (3, 4, 5, 9, 30, 31, 60, 61, 100, 200):
            for behind in (1, 0):
                writer.write(messages, messages - behind)
                found = opened.query("T", "all")
                assert offsets(found) == writer.offsets[::-1]
                assert found.is_complete
                assert offsets(opened.query("T", f"k{messages - 1}")) == writer.offsets[-1:]
                assert opened.query("T", f"k{messages}").messages == ()
                assert opened.end_offset() == writer.offsets[-1] + found.messages[0].size_bytes
        writer.expire(2)
        left = [offset for offset in writer.offsets if offset >= 2 * 4096]
        assert offsets(opened.query("T", "all")) == left[::-1]
        assert opened.query("T", "all").coverage.log.start == 2 * 4096


def test_an_index_that_is_swapped_while_open_is_used(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders")
    path = copy_store(store.path, tmp_path / "store")
    (path / "index").rename(tmp_path / "index")
    with reput.open_store(path) as opened:
        scanned = opened.query("orders", "customer-48")
        (tmp_path / "index").rename(path / "index")
        looked_up = opened.query("orders", "customer-48")
        assert scanned.messages == looked_up.messages
        assert scanned.coverage.indexed == ()
        assert len(looked_up.coverage.indexed) == 15
        (path / "index").rename(tmp_path / "old")
        copy_store(tmp_path / "old", path / "index")
        assert opened.query("orders", "customer-48").messages == looked_up.messages


def snapshot(folder: Path) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.stat()
        found[str(path)] = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_mode)
    return found


def test_not_a_byte_is_written_into_the_store(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("lmq").path, tmp_path / "store")
    for file in path.rglob("*"):
        file.chmod(stat.S_IREAD | (stat.S_IEXEC if file.is_dir() else 0))
    before = snapshot(path)
    with reput.open_store(path) as opened:
        for query in golden("lmq").queries[:50]:
            opened.query(query.topic, query.key)
            opened.query_message(query.topic, query.key, 32, query.begin, query.end)
        opened.get(golden("lmq").messages[3].physical_offset)
        opened.find_by_id(golden("lmq").messages[3].uniq_key or "")
    assert snapshot(path) == before
    for file in path.rglob("*"):
        file.chmod(stat.S_IRWXU)


@pytest.mark.usefixtures("ordinary_user")
@pytest.mark.parametrize("folder", ["commitlog", "index", "consumequeue"])
def test_a_folder_that_must_not_be_read_is_told(
    golden: Golden, tmp_path: Path, folder: str
) -> None:
    path = copy_store(golden("lmq").path, tmp_path / "store")
    (path / folder).chmod(0)
    try:
        with pytest.raises(reput.errors.ReputError, match=folder), reput.open_store(path) as opened:
            opened.get_by_queue("Parent1", 0, 0)
    finally:
        (path / folder).chmod(stat.S_IRWXU)


def test_an_empty_file_of_a_log_that_never_was_is_passed_over(tmp_path: Path) -> None:
    log = forge_log([RecordFields(properties={"KEYS": "k"})], file_bytes=4096)
    path = write_store(tmp_path / "store", [*log.files(), (4096, b"")])
    with reput.open_store(path) as opened:
        assert offsets(opened.query("T", "k")) == [0]
        assert opened.query("T", "k").is_complete


def test_a_brokers_answers_are_those_of_the_index_files_there_are_now(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store")
    writer.write(3, 2)
    asked = ("T", "all", 64, 0, 1 << 62)
    with reput.open_store(tmp_path / "store") as opened:
        for messages in (3, 30, 60, 61, 100, 200):
            writer.write(messages, messages - 1)
            with reput.open_store(tmp_path / "store") as fresh:
                expected = fresh.query_offset(*asked), fresh.query_message(*asked)
            assert len(expected[0].physical_offsets) == min(messages - 1, 64)
            assert (opened.query_offset(*asked), opened.query_message(*asked)) == expected
