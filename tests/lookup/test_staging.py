"""What a look-up stages is as closed as its folder, whatever the umask is."""

import os
import stat
from pathlib import Path

import pytest

from reput.files.private import Access, new_private_folder
from reput.lookup.driver import look_up
from reput.lookup.key_parts import stage_parts
from reput.store.store_reader import StoreReader
from reput.tasks import SerialRunner
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
            answer = look_up(SerialRunner(), [opened], parts, folder, ("body",))
    finally:
        os.umask(before)
        (tmp_path / "staging").chmod(0o755)
    assert answer.counts().messages == 40
    staged = [path for path in folder.rglob("*") if path.is_file()]
    assert len(staged) >= 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in staged} == {mode}
