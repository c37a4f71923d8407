"""`reput bench`: figures of a store, which is only read, without leftovers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reput.cli.main import main
from reput.core.log.sources import StoreLog
from reput.wings.bench import driver
from reput.wings.bench.driver import sampled_keys
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
GROUPS = ["machine", "scan, one core", "rebuild, 1 at a time", "query", "look-up"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(driver, "_WRITTEN_BYTES", 1 << 20)


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    for path in sorted(folder.rglob("*")):
        yield str(path), path.stat().st_size, path.stat().st_mtime_ns


def test_figures_of_a_store(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden("orders")
    before = list(_files(store.path))
    assert main(["bench", str(store.path), "--scratch", str(tmp_path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(dict.fromkeys(figure["group"] for figure in found["figures"])) == GROUPS
    values = {(figure["group"], figure["name"]): figure["value"] for figure in found["figures"]}
    assert all(value > 0 for value in values.values())
    assert values["rebuild, 1 at a time", "messages"] == len(store.messages)
    keys = sampled_keys(StoreLog(store.path).list())
    assert values["look-up", "keys"] == len(keys) > 500
    assert values["look-up", "rows found"] >= len(keys)
    assert found["log_bytes"] > 0
    assert list(_files(store.path)) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_table(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(golden("basic").path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines if not line.startswith("  ")] == GROUPS
    assert any("messages/s" in line for line in lines)


def test_a_store_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
