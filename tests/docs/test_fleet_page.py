"""The page about many stores: its fleet file can be read, and its commands print what it shows."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.cli.running import reput as run
from tests.docs.pages import CHECKOUT
from tests.docs.readme import console_examples
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
TEXT = (CHECKOUT / "docs" / "fleet.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    """The page's fleet file, and the stores that it names."""
    (toml,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "fleet.toml").write_text(toml)
    for path, name in {"brokers/a": "orders", "brokers/b": "tricky", "backups/c": "basic"}.items():
        copy_store(golden(name).path, tmp_path / path)
    sizes = (golden("tricky").path.parent / "config.properties").read_text()
    names = "brokerName=broker-b\nbrokerClusterName=main\n"
    (tmp_path / "brokers" / "b.conf").write_text(names + sizes)
    return tmp_path


def test_the_page_s_fleet_file_names_its_stores(folder: Path) -> None:
    found = reput.find(reput.NamedStore.read(folder / "fleet.toml"), "order-103921")
    names = [answer.store for answer in found.answers]
    assert names == ["broker-a", "broker-b", f"{folder}/backups/c"]
    assert len(found) == 8
    assert found.is_complete


def test_the_page_s_commands_print_what_it_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    examples = console_examples(TEXT)
    assert len(examples) >= 2
    for example in examples:
        name, *arguments = example.command.split()
        assert name == "reput"
        assert run(*arguments).out == example.output, example.command
