"""Few bytes of an archive take little memory and few steps, whatever they state."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import FormatError
from reput.format.archive_index import packed
from reput.io.archive import Archive
from reput.io.archive_storage import ArchiveEntry, ArchiveStorage
from tests.archive.test_hostile import _end_of, _first_queue_index, _replace_queue_index
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def place(golden: Golden, tmp_path: Path) -> Path:
    place = tmp_path / "archive"
    reput.archive(golden("lmq").path, place, with_last=True)
    return place


def _packed(text: bytes) -> bytes:
    return base64.b64encode(
        len(text).to_bytes(8, "little") + pa.Codec("zstd").compress(text, asbytes=True)
    )


_MIB = 1 << 20
_LISTS = {  # each list's begin, what it repeats and how often, and its end
    "empty lists": (b"[", b"[],", 21 * _MIB, b"[]]"),
    "nested lists": (b"", b"[", 60 * _MIB, b""),
    "numbers": (b"[", b"1,", 31 * _MIB, b"1]"),
    "too many queues": (b"[", b'["t",0,0,1,0,0,true,false],', 2 * _MIB, b"[]]"),
}


@pytest.mark.parametrize("name", _LISTS)
def test_a_short_list_of_queues_takes_no_more_memory_than_its_text(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    begin, part, count, end = _LISTS[name]
    stored = _packed(begin + part * count + end)
    assert len(stored) < 30_000
    monkeypatch.setattr("reput.format.archive_index.packed", lambda queues: stored)
    _replace_queue_index(place, [])
    archive = Archive(str(place))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            archive.index(archive.manifest.queues[0])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 140 * _MIB


def test_queues_with_more_files_than_a_store_has_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.io.archive_storage._MOST_QUEUE_FILES", 5000)
    index = _first_queue_index(place)
    queues = list(index.queues)
    for at, queue in enumerate(queues[:2]):
        queues[at] = queue._replace(greatest=1 << 20, follows=False)
    _replace_queue_index(place, queues)
    with pytest.raises(FormatError, match=r"would have [\d,]+ further files"):
        reput.inspect(place)


def test_a_queue_with_more_entries_than_its_log_could_have_is_refused(place: Path) -> None:
    """Readers pass each missing entry, so few bytes could make them run for ever."""
    index = _first_queue_index(place)
    queue = index.queues[0]._replace(follows=False)
    _replace_queue_index(place, [queue._replace(greatest=1 << 20), *index.queues[1:]])
    _end_of(place, queue.topic, queue.queue_id)
    _replace_queue_index(place, [queue._replace(greatest=1 << 21), *index.queues[1:]])
    with pytest.raises(FormatError, match=r"more than [\d,]+ entries"):
        _end_of(place, queue.topic, queue.queue_id)


def test_each_file_of_a_long_queue_is_opened_in_one_step(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, files = _first_queue_index(place), 500
    queue = index.queues[0]
    entries = Archive(str(place)).config.queue_entries
    _replace_queue_index(
        place, [queue._replace(greatest=entries * files - 1, follows=False), *index.queues[1:]]
    )
    storage = ArchiveStorage(Archive(str(place)))
    folder = f"{storage.root}/consumequeue/{queue.topic}/{queue.queue_id}"
    listed = storage.list(folder)
    assert len(listed) == files
    made = 0

    def entry(*fields: object) -> ArchiveEntry:
        nonlocal made
        made += 1
        return ArchiveEntry(*fields)  # type: ignore[arg-type]

    monkeypatch.setattr("reput.io.archive_storage.ArchiveEntry", entry)
    for one in listed:
        found = storage.entry(one.path)
        assert found == one
    assert made == files
    assert storage.entry(f"{folder}/00000000000000000001") is None
    assert storage.entry(f"{folder}/x") is None


def test_a_list_of_digests_is_not_longer_than_the_index_needs(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = packed(_first_queue_index(place).queues)
    monkeypatch.setattr("reput.format.archive_index.packed", lambda _: queues)
    monkeypatch.setattr(
        "reput.wings.archive.indexing.json.dumps", lambda _: "[" + "1," * 1000 + "1]"
    )
    _replace_queue_index(place, [])
    monkeypatch.undo()
    archive = Archive(str(place))
    with pytest.raises(FormatError, match="list of digests"):
        archive.index(archive.manifest.queues[0])
