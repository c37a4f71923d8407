"""`export --dry-run` says what an export would read, and writes nothing; requests are arguments as well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.cli.main import main
from reput.errors import UsageError
from reput.wings.lakes.request import ExportFields, ExportRequest
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import offsets, read_table

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize("to", ["parquet", "delta"])
def test_a_dry_run_writes_nothing_and_says_which_bytes_are_read(
    to: str, golden: Golden, tmp_path: Path
) -> None:
    store, out = golden("orders").path, tmp_path / "out"
    whole = reput.export(store, out, to=to, dry_run=True)
    some = reput.export(store, out, to=to, dry_run=True, topics=["%RETRY*"])
    assert list(tmp_path.iterdir()) == []
    assert whole.is_dry_run
    assert not whole.committed
    assert whole.estimated_s > 0
    log_bytes = sum(stop - start for start, stop in whole.stores.values())
    assert whole.log_bytes == log_bytes
    assert f"to read: {log_bytes:,} of {log_bytes:,} bytes of log" in whole.notes
    assert any("through the ConsumeQueues" in note for note in some.notes)
    assert "nothing was written" in str(whole)
    assert "s of processor time, by a sample" in str(whole)


def test_a_dry_run_begins_where_the_table_ends(golden: Golden, tmp_path: Path) -> None:
    store, out = golden("basic").path, tmp_path / "out"
    reput.export(store, out)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="messages were exported there already"):
        reput.export(store, out, dry_run=True)
    again = reput.export(store, out, incremental=True, dry_run=True)
    assert again.log_bytes == 0
    assert sorted(tmp_path.rglob("*")) == files


def test_the_command_prints_what_it_would_do(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(golden("basic").path), str(tmp_path / "out"), "--dry-run"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "Would export to" in printed
    assert "to read: " in printed
    assert main([*arguments, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_dry_run"] is True
    assert main([*arguments, "--to", "jsonl"]) == 2
    assert "dry-run: cannot be used with jsonl" in capsys.readouterr().err


def test_fields_of_a_request_are_arguments(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders")
    report = reput.export(
        store.path, tmp_path / "out", topics="pay*", partition_by=["topic"], begin="2000-01-01",
        end="1 s ago", profile="fast",
    )  # fmt: skip
    expected = [m.physical_offset for m in store.messages if m.topic.startswith("pay")]
    assert offsets(read_table(tmp_path / "out", "parquet")) == expected
    assert report.rows == len(expected)
    with pytest.raises(UsageError, match="pass request or its fields, not both"):
        reput.export(store.path, tmp_path / "other", request=ExportRequest(), topics=["a"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'topcs'"):
        reput.export(store.path, tmp_path / "other", topcs=["a"])  # type: ignore[call-arg]


def test_the_arguments_are_those_of_the_request() -> None:
    assert ExportFields.__optional_keys__ == set(ExportRequest.__dataclass_fields__)
