"""Staged files of a look-up are as private as their folder, for any umask."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from reput.base.tasks import SerialRunner
from reput.core.store.store_reader import StoreReader
from reput.engine.lookup import key_parts, local_files
from reput.engine.lookup.driver import look_up
from reput.engine.lookup.key_parts import stage_parts
from reput.errors import StoreAccessError, UsageError
from reput.io.scratch import Access, new_private_folder
from reput.io.writer import FileWriter
from tests.index.proving import ITEMS, SLOTS, index_of, messages
from tests.lookup.looking_up import batch_of
from tests.oracle.forge import write_store


@pytest.mark.parametrize(("access", "mode"), [("private", 0o600), ("group", 0o660)])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_no_staged_file_is_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: Access, mode: int, umask: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    log = messages(60)
    store = write_store(tmp_path / "store", log.files())
    index_of(store, log.files(), lambda record: record.physical_offset < log.offsets[40])
    before = os.umask(umask)
    try:
        folder = new_private_folder("p-", tmp_path / "staging", access)
        parts = list(stage_parts([batch_of([("T", "every", None, None)])], folder / "keys"))
        with StoreReader(store, hash_slots=SLOTS, index_items=ITEMS) as opened:
            answer = look_up(SerialRunner(), [opened], parts, str(folder), ("body",))
    finally:
        os.umask(before)
        (tmp_path / "staging").chmod(0o755)
    assert answer.counts().messages == 40
    staged = [path for path in folder.rglob("*") if path.is_file()]
    assert len(staged) >= 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in staged} == {mode}


def test_parts_are_the_same_whatever_number_of_threads_stages_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_parts, "PART_ROWS", 7)
    batches = [
        batch_of([("T", f"key-{n}", None, n % 3 or None) for n in range(m)]) for m in (5, 40)
    ]
    folders = [tmp_path / "serial", tmp_path / "threads"]
    staged = []
    for threads, folder in zip((1, 3), folders, strict=True):
        folder.mkdir()
        parts = list(stage_parts(batches, folder / "keys", threads))
        staged.append([part._replace(path=Path(part.path).name) for part in parts])
    assert len(staged[0]) == 7
    assert staged[0] == staged[1]
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes()


def test_a_thread_that_cannot_stage_keys_says_why(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["T"], "key": ["k"], "begin": ["soon"]})
    with pytest.raises(UsageError, match="only milliseconds or only ISO 8601"):
        list(stage_parts([batch], tmp_path / "keys", 2))


def test_what_an_answer_covers_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreAccessError("no space left")

    monkeypatch.setattr(FileWriter, "write", full)
    found: Any = SimpleNamespace(coverage_text=lambda: b"[]")
    with pytest.raises(StoreAccessError):
        local_files.write_coverage(found, str(tmp_path / "found"))
    assert list(tmp_path.iterdir()) == []
