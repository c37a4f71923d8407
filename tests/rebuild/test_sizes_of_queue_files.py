"""A rebuild without a ConsumeQueue file to look at takes a broker's default size of these files, and prints a note."""

from collections.abc import Callable
from pathlib import Path

import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_NOTE = "no ConsumeQueue file that shows the size"


def test_an_assumed_size_of_queue_files_is_noted(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    lost = copy_store(store, tmp_path / "lost")
    for folder in sorted((lost / "consumequeue").rglob("*"), reverse=True):
        folder.rmdir() if folder.is_dir() else folder.unlink()
    cases = ((lost, True, None), (lost, False, reput.StoreConfig()), (store, False, None))
    for number, (path, is_noted, config) in enumerate(cases):
        report = reput.rebuild(
            path, output=tmp_path / str(number), only="consumequeue", config=config
        )
        assert any(_NOTE in note for note in report.notes) == is_noted
    report = reput.rebuild(lost, output=tmp_path / "index", only="index")
    assert not any(_NOTE in note for note in report.notes)
