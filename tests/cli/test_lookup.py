"""`reput lookup` without Spark: its output, its files, its errors."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from reput import look_up
from reput.engine.stores import runners
from reput.engine.stores.runners import INSTALL_SPARK
from reput.reports import coverage_of
from tests.cli.running import one_line, reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def test_the_answer_on_stdout_is_in_the_order_of_the_keys(golden: Golden, keys_csv: Path) -> None:
    ran = reput("lookup", golden("orders").path, "--keys", keys_csv, "--output", "-")
    assert ran.code == 0
    rows = [json.loads(line) for line in ran.lines]
    assert [row["note"] for row in rows] == ["a"] * 2 + ["b"] * 9 + ["c"]
    assert rows[0]["physical_offset"] == 53821
    assert rows[0]["store_timestamp"] == 1791794106637
    assert rows[-1]["physical_offset"] is None
    assert rows[-1]["is_complete"]
    first, second = ran.err.splitlines()
    assert first == "3 keys: 2 have messages, 11 in all; 1 has none."
    assert second.startswith(
        "Searched the CommitLog from 0 to 6,549,067, through 15 IndexFiles (15 proven)"
    )


def test_every_format_is_written_into_a_new_directory(
    golden: Golden, keys_csv: Path, tmp_path: Path
) -> None:
    store = golden("orders").path
    for layout in ("parquet", "jsonl", "csv"):
        output = tmp_path / layout
        ran = reput(
            "lookup", store, "--keys", keys_csv, "--output", output, "--format", layout,
            "--columns", "tags,physical_offset",
        )  # fmt: skip
        assert (ran.code, ran.err) == (0, "")
        assert ran.lines[0] == "3 keys: 2 have messages, 11 in all; 1 has none."
        again = reput("lookup", store, "--keys", keys_csv, "--output", output)
        assert "exists already" in one_line(again)
    (jsonl,), (table,) = (tmp_path / "jsonl").iterdir(), (tmp_path / "csv").iterdir()
    assert (jsonl.name, table.name) == ("part-00000.json", "part-00000.csv")
    rows = [json.loads(line) for line in jsonl.read_text().splitlines()]
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    typed = ds.dataset(tmp_path / "parquet").to_table().to_pylist()
    offsets = [row["physical_offset"] for row in rows]
    assert (len(offsets), offsets[0], offsets[-1]) == (12, 53821, None)
    assert [row["physical_offset"] for row in typed] == offsets
    assert [line["physical_offset"] for line in lines] == [str(o or "") for o in offsets]
    assert list(lines[0]) == [
        "topic", "key", "begin", "note", "tags", "physical_offset", "is_complete"
    ]  # fmt: skip


@pytest.mark.parametrize("layout", ["parquet", "jsonl", "csv"])
def test_coverage_is_a_summary_beside_the_answer(
    golden: Golden, keys_csv: Path, tmp_path: Path, layout: str
) -> None:
    store, output = golden("orders").path, tmp_path / "found"
    common = ("lookup", store, "--keys", keys_csv, "--output")
    ran = reput(*common, output, "--format", layout)
    assert ran.code == 0, ran.err
    (file,) = output.iterdir()
    if layout == "parquet":
        rows = ds.dataset(output).to_table().to_pylist()
    elif layout == "jsonl":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        with file.open(newline="") as lines:
            rows = [
                {**row, "is_complete": row["is_complete"] == "true"}
                for row in csv.DictReader(lines)
            ]
    assert len(rows) == 12
    assert all(row["is_complete"] is True and "coverage" not in row for row in rows)
    (summary,) = json.loads((tmp_path / "found.coverage.json").read_text())
    assert summary["store"] == str(store)
    assert summary["is_complete"]
    assert summary["log_bytes"] == summary["indexed_bytes"] + summary["scanned_bytes"] == 6_549_067
    assert (summary["problems"], summary["lost"]) == ([], [])
    ran = reput(*common, tmp_path / "rows", "--format", layout, "--coverage", "rows")
    assert ran.code == 0, ran.err
    assert not (tmp_path / "rows.coverage.json").exists()
    if layout == "jsonl":
        (file,) = (tmp_path / "rows").iterdir()
        assert all(json.loads(line)["coverage"] for line in file.read_text().splitlines())


def test_the_coverage_names_stores_as_the_answer_does(
    golden: Golden, keys_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(golden({"a": "orders", "b": "tricky"}[name]).path)
    monkeypatch.chdir(tmp_path)
    ran = reput("lookup", "a", "./b", "--keys", keys_csv, "--output", "found")
    assert ran.code == 0, ran.err
    stores = ds.dataset(tmp_path / "found").to_table(columns=["store"])["store"]
    covered = json.loads((tmp_path / "found.coverage.json").read_text())
    assert [row["store"] for row in covered] == [str(tmp_path / name) for name in ("a", "b")]
    assert {*stores.to_pylist()} - {None} == {str(tmp_path / "a")}
    found = look_up(["a", "gone"], [("orders", "order-100377")])
    covered = coverage_of(found)
    assert [row["store"] for row in covered] == [str(tmp_path / name) for name in ("a", "gone")]
    assert {*found.read_all()["store"].to_pylist()} == {str(tmp_path / "a")}


@pytest.mark.parametrize("layout", ["jsonl", "csv"])
def test_times_are_iso_by_an_option(golden: Golden, keys_csv: Path, layout: str) -> None:
    common = (
        "lookup",
        golden("orders").path,
        "--keys",
        keys_csv,
        "--output",
        "-",
        "--format",
        layout,
    )
    ran = reput(*common, "--iso-times")
    read = csv.DictReader if layout == "csv" else lambda lines: map(json.loads, lines)
    rows = list(read(ran.lines))
    assert rows[0]["store_timestamp"] == "2026-10-12T08:35:06.637Z"
    assert rows[-1]["store_timestamp"] in ("", None)
    plain = list(read(reput(*common).lines))
    assert str(plain[0]["store_timestamp"]) == "1791794106637"
    refused = reput(*common[:-2], "--iso-times", "--format", "parquet")
    assert (refused.code, "--iso-times works with jsonl and csv only" in one_line(refused)) == (
        2,
        True,
    )


def test_nothing_found_is_exit_code_1(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "keys.csv").write_text("topic,key\norders,nobody\n")
    ran = reput("lookup", golden("orders").path, "--keys", tmp_path / "keys.csv", "--output", "-")
    assert (ran.code, len(ran.lines)) == (1, 1)


def test_wrong_use_is_one_line(
    golden: Golden, keys_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("orders").path
    monkeypatch.setattr(runners, "find_spec", lambda name: None)
    for options, words in (
        (("--keys", "none.csv", "--output", "-"), "--keys none.csv: no such file"),
        (("--keys", keys_csv, "--output", tmp_path), "exists already"),
        (("--keys", keys_csv, "--output", "-", "--format", "parquet"), "--format parquet"),
        (("--keys", keys_csv, "--output", "-", "--columns", "colour"), "no column colour"),
        (
            ("--keys", keys_csv, "--output", "hdfs://b/o", "--runner", "serial"),
            "--runner serial reads and writes only S3, GCS and Azure",
        ),
        (("--keys", keys_csv, "--output", "hdfs://b/o"), INSTALL_SPARK),
        (("--keys", keys_csv, "--output", "s3://b"), "specify a folder in the bucket"),
        (("--keys", keys_csv, "--output", "-", "--runner", "spark"), INSTALL_SPARK),
    ):
        ran = reput("lookup", store, *options)
        assert ran.code == 2
        assert words in one_line(ran)
    ran = reput("lookup", tmp_path, "--keys", keys_csv, "--output", "-")
    assert (ran.code, "not a RocketMQ store" in one_line(ran)) == (2, True)
