"""`python -m benchmarks.store`: figures of a store, which is only read, without leftovers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import store as script
from benchmarks.store import main, sampled_keys
from reput.core import StoreLog
from tests.cli.running import reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
GROUPS = ["machine", "scan, one core", "rebuild, 1 at a time", "query", "look-up"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(script, "_WRITTEN_BYTES", 1 << 20)


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    for path in sorted(folder.rglob("*")):
        yield str(path), path.stat().st_size, path.stat().st_mtime_ns


def test_figures_of_a_store(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden("orders")
    before = list(_files(store.path))
    assert main([str(store.path), "--scratch", str(tmp_path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(dict.fromkeys(figure["group"] for figure in figures)) == GROUPS
    values = {(figure["group"], figure["name"]): figure["value"] for figure in figures}
    assert all(value > 0 for value in values.values())
    assert values["rebuild, 1 at a time", "messages"] == len(store.messages)
    keys = sampled_keys(StoreLog(store.path).list())
    assert values["look-up", "keys"] == len(keys) > 500
    assert values["look-up", "rows found"] >= len(keys)
    assert list(_files(store.path)) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_table(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(golden("basic").path)]) == 0
    page = capsys.readouterr().out
    assert all(group in page for group in GROUPS)
    assert "messages/s" in page


def test_a_store_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_the_former_command_names_the_script() -> None:
    ran = reput("bench", "/data/store")
    assert ran.code == 2
    assert "python -m benchmarks.store STORE" in ran.err
