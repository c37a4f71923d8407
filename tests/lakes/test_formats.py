"""Formats of tables are found by name: those of reput and registered ones."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reput.errors import UsageError
from reput.wings.lakes.tables import opening
from reput.wings.lakes.tables.opening import TableFormat, format_names, open_table, register_format
from reput.wings.lakes.tables.parquet import ParquetTable
from tests.cli.running import reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


class ShelfTable(ParquetTable):
    """A format of another package: a table of Parquet files in a subfolder."""

    def __init__(self, folder: Path, table: str = "lowest") -> None:
        super().__init__(folder / f"shelf-{table}")
        self.layout = "shelves"


SHELVES = TableFormat(ShelfTable, frozenset({"table"}), misread="!")


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_formats", dict(opening._formats))


def test_a_registered_format_is_opened_with_its_options(tmp_path: Path) -> None:
    register_format("shelves", SHELVES)
    assert format_names() == ["parquet", "iceberg", "delta", "shelves"]
    assert open_table(str(tmp_path), "shelves").name == str(tmp_path / "shelf-lowest")
    table = open_table(str(tmp_path), "shelves", table="top", catalog=None)
    assert table.name == str(tmp_path / "shelf-top")
    with pytest.raises(UsageError, match="layout shelves does not take catalog"):
        open_table(str(tmp_path), "shelves", catalog="c")
    with pytest.raises(UsageError, match="'!' in its name"):
        open_table(str(tmp_path / "a!"), "shelves")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(UsageError, match="a table format named parquet exists already"):
        register_format("parquet", SHELVES)


def test_an_unknown_format_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"layout shelves: must be one of parquet, iceberg, delta$"
    ):
        open_table(str(tmp_path), "shelves")


def test_the_command_exports_into_the_format_of_an_installed_package(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("shelves", f"{__name__}:SHELVES", opening.ENTRY_POINTS)
    monkeypatch.setattr(
        opening, "entry_points", lambda group, name="shelves": [point] * (name == "shelves")
    )
    ran = reput("export", golden("basic").path, tmp_path, "--to", "shelves", "--table", "x")
    assert ran.code == 0, ran.err
    files = [*(tmp_path / "shelf-x").glob("*.parquet")]
    assert sum(pq.read_metadata(file).num_rows for file in files) == len(golden("basic").messages)
    wrong = reput("export", golden("basic").path, tmp_path, "--to", "cupboard")
    assert wrong.err.startswith("reput: --to cupboard: must be one of parquet, iceberg, delta")
