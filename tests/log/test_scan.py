"""A scan with the kernels finds the same as a walk in plain Python."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import reput
from reput.core.query import search
from reput.core.query.answers import QueryResult
from tests.golden.stores import GoldenStore
from tests.log.test_reading import damaged
from tests.oracle.forge import Files, RecordFields, forge_log, write_store
from tests.oracle.random_logs import LogOptions, random_log
from tests.query.stores import keyed_messages, offsets, walked_messages

Golden = Callable[[str], GoldenStore]


@pytest.fixture(params=[0, 1000])
def walked_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set the number of bytes that are walked before the kernels are used."""
    count: int = request.param
    monkeypatch.setattr(search, "WALKED_BYTES", count)
    return count


def ask(path: Path, topic: str, key: str, limit: int | None = None) -> QueryResult:
    with reput.open_store(path, index=path / "commitlog") as opened:
        return opened.query(topic, key, limit=limit)


@pytest.mark.parametrize("name", ["basic", "tricky", "extremes", "orders"])
def test_golden_logs(golden: Golden, walked_bytes: int, name: str) -> None:
    store = golden(name)
    keyed = keyed_messages(store.messages)
    last = store.messages[-1]
    for asked in sorted(keyed)[:: len(keyed) // 40]:
        found = ask(store.path, *asked)
        assert offsets(found) == sorted(keyed[asked], reverse=True)
        assert found.coverage.scanned == ((0, last.physical_offset + last.size),)
        assert found.is_complete


@pytest.mark.parametrize("seed", range(12))
def test_random_damaged_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    log = random_log(seed, LogOptions(records=80, irregular=seed % 4 == 0))
    files: Files = log.files
    for _ in range(random.choice((0, 1, 2, 5))):
        files = damaged(files, log.offsets, random)
    path = write_store(tmp_path / "store", files)
    keyed = walked_messages(path)
    walked = {asked: ask(path, *asked) for asked in keyed}
    monkeypatch.setattr(search, "WALKED_BYTES", 0)
    for asked in keyed:
        found = ask(path, *asked)
        assert offsets(found) == offsets(walked[asked]) == sorted(keyed[asked], reverse=True)
        assert found.coverage.log == walked[asked].coverage.log
        assert [(lost.start, lost.length) for lost in found.coverage.unreadable] == [
            (lost.start, lost.length) for lost in walked[asked].coverage.unreadable
        ]


def test_the_newest_files_are_scanned_first_and_no_more_than_needed(
    tmp_path: Path, walked_bytes: int
) -> None:
    records = [RecordFields(properties={"KEYS": "k"}, body=bytes(100)) for _ in range(100)]
    log = forge_log(records, file_bytes=4096)
    path = write_store(tmp_path / "store", log.files())
    found = ask(path, "T", "k", limit=3)
    assert offsets(found) == log.offsets[:-4:-1]
    assert found.cursor == log.offsets[-3] == found.coverage.log.start
    ((start, stop),) = found.coverage.scanned
    assert (start, stop) == (log.files()[-1][0], log.end_offset)


def test_where_the_log_ends(golden: Golden, walked_bytes: int) -> None:
    for name in ("basic", "tricky", "extremes", "lmq"):
        store = golden(name)
        end = store.messages[-1].physical_offset + store.messages[-1].size
        with reput.open_store(store.path) as opened:
            assert opened.end_offset() == end
        with reput.open_store(store.path, index=store.root) as opened:
            assert opened.end_offset() == end
