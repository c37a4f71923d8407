"""Destinations of an export: one that is invalid or belongs to another table or store is refused and not changed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import reput
from reput.errors import ReputError, StoreAccessError, StoreNotFoundError, UsageError
from reput.wings.lakes.json_lines import export_lines
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import ExportRequest, ExportSettings
from reput.wings.lakes.tables import parquet
from reput.wings.lakes.tables.iceberg import IcebergTable
from reput.wings.lakes.tables.opening import open_table
from tests.docs.pages import CHECKOUT
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, control_of, export, grow_to, offsets, read_table
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


def lines(store: Path, output: Path, incremental: bool = False) -> ExportReport:
    sources = open_stores([str(store)])
    return export_lines(sources, str(output), ExportRequest(), ExportSettings(incremental))


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_folder_of_other_things_is_left_as_it_is(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("hello")
    with pytest.raises(UsageError, match="is not empty, but contains no exported table"):
        export(golden("basic").path, tmp_path / "full", layout)
    assert os.listdir(tmp_path / "full") == ["letter.txt"]


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
@pytest.mark.parametrize("other", FORMATS)
def test_a_table_of_another_format_is_refused(
    golden: Golden, tmp_path: Path, layout: str, other: str
) -> None:
    export(golden("basic").path, tmp_path / "out", layout)
    before = sorted(tmp_path.rglob("*"))
    said = "pass incremental to add" if other == layout else f"with layout {layout}, not {other}"
    with pytest.raises(UsageError, match=said):
        export(golden("basic").path, tmp_path / "out", other)
    assert sorted(tmp_path.rglob("*")) == before


def test_where_nothing_was_exported_yet_another_format_will_do(
    golden: Golden, tmp_path: Path
) -> None:
    def stop(phase: str, done: int, total: int) -> None:
        if phase == "written":
            raise UsageError("stopped")

    for layout in ("parquet", "delta"):
        with pytest.raises(UsageError, match="stopped"):
            export(golden("basic").path, tmp_path / "out", layout, progress=stop)
    assert export(golden("basic").path, tmp_path / "out", "iceberg").rows == 5000


def test_a_table_without_its_control_folder_is_known(golden: Golden, tmp_path: Path) -> None:
    for layout in ("delta", "iceberg"):
        out = tmp_path / layout
        export(golden("basic").path, out, layout)
        for path in sorted((out / "_reput").rglob("*"), reverse=True):
            path.unlink()
        (out / "_reput").rmdir()
        assert not export(golden("basic").path, out, layout, incremental=True).committed


def test_below_a_parquet_table_is_nothing_else(golden: Golden, tmp_path: Path) -> None:
    """Polars and DuckDB read the table's folder, or all files below it, and find no rejected rows."""
    # Imported here, because it takes a second in each process that collects tests.
    import polars as pl

    store, out = golden("orders"), tmp_path / "out"
    (tmp_path / "schema.json").write_text('{"order": "string", "amount": "string"}')
    asked: dict[str, Any] = {"json_body": str(tmp_path / "schema.json"), "partition_by": ("topic",)}
    report = export(store.path, out, **asked)
    assert report.rejects > 3000
    assert {path.suffix for path in out.rglob("*") if path.is_file()} == {".parquet"}
    assert pl.read_parquet(f"{out}/").height == report.rows
    assert pl.scan_parquet(f"{out}/**/*.parquet").select(pl.len()).collect().item() == report.rows
    for pattern in (f"{out}/**/*.parquet", f"{out}/**"):
        question = f"select count(*), count(distinct topic) from read_parquet('{pattern}')"
        found = duckdb.connect().execute(question).fetchone()
        assert found == (report.rows, len(set(read_table(out, "parquet")["topic"].to_pylist())))
    assert read_table(out, "parquet", rejects=True).num_rows == report.rejects


def test_a_table_that_is_gone_is_not_begun_again_by_itself(golden: Golden, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(golden("basic").path, out)
    with pytest.raises(UsageError, match="with layout parquet, not delta"):
        export(golden("basic").path, out, "delta")
    shutil.rmtree(out)
    with pytest.raises(
        UsageError, match=r"out: does not exist, but exports to it are recorded in .*out.reput"
    ):
        export(golden("basic").path, out, incremental=True)
    shutil.rmtree(control_of(out))
    assert export(golden("basic").path, out).rows == 5000


def test_a_table_without_manifests_is_not_exported_twice(golden: Golden, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(golden("basic").path, out)
    manifest = next((control_of(out) / "commits").iterdir())
    kept = manifest.rename(tmp_path / "kept")
    with pytest.raises(UsageError, match=r"has files, but their manifests in .* are missing"):
        export(golden("basic").path, out, incremental=True)
    kept.rename(manifest)
    assert not export(golden("basic").path, out, incremental=True).committed
    assert read_table(out, "parquet").num_rows == 5000


def test_a_table_whose_control_folder_is_in_it_goes_on(golden: Golden, tmp_path: Path) -> None:
    """reput 0.2 wrote such tables."""
    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 400_000)
    export(store, out)
    control_of(out).rename(out / "_reput")
    grow_to(source.path, store, 1 << 40)
    export(store, out, incremental=True)
    assert not control_of(out).exists()
    expected = [message.physical_offset for message in source.messages]
    assert offsets(read_table(out, "parquet")) == expected


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_place_in_a_store_is_refused(golden: Golden, tmp_path: Path, layout: str) -> None:
    store = tmp_path / "store"
    grow_to(golden("basic").path, store, 400_000)
    (tmp_path / "link").symlink_to(store)
    before = sorted(store.rglob("*"))
    for place in (store, store / "lake", tmp_path / "link" / "commitlog" / "lake"):
        with pytest.raises(UsageError, match="lies in the store"):
            export(store, place, layout)
    with pytest.raises(UsageError, match="lies in the store"):
        lines(store, store / "commitlog" / "out.jsonl")
    assert sorted(store.rglob("*")) == before


@pytest.mark.parametrize(
    ("folder", "layout", "said"),
    [
        ("", "parquet", "name the folder"),
        ("-", "delta", "is only for layout jsonl"),
        ("100%20", "iceberg", "'%' in its name"),
        ("what?", "iceberg", r"'\?' in its name"),
        ("a#1", "iceberg", "'#' in its name"),
        ("100%20", "delta", "'%' in its name"),
        ("two\nlines", "delta", "in its name"),
    ],
)
def test_a_name_that_a_library_would_misread_is_refused(
    folder: str, layout: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        open_table(folder, layout)


@pytest.mark.parametrize("table", ["", "a", ".a", "a.", "a..b", "a./etc", "a.b/../../c", "a.b c"])
def test_a_table_name_that_is_none_is_refused(tmp_path: Path, table: str) -> None:
    with pytest.raises(UsageError, match=r"must have the form NAMESPACE\.NAME"):
        open_table(str(tmp_path), "iceberg", table=table)


def test_one_store_under_two_names_is_refused(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    (tmp_path / "link").symlink_to(store)
    with pytest.raises(
        UsageError,
        match=r"names: b is given for .*, which is the same store as a; give the store only once",
    ):
        open_stores([str(store), str(tmp_path / "link")], ["a", "b"])
    with pytest.raises(UsageError, match="name a store"):
        open_stores([])
    again = open_stores([str(store), f"{store.parent}/../{store.parent.name}/{store.name}"])
    assert [source.name for source in again] == [str(store)]


def test_lines_go_into_files_alone(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "letter").write_text("hello")
    for place, said in (
        (tmp_path, "is a folder; JSON lines go into a file"),
        (tmp_path / "pipe", "not a file; use - for stdout"),
        (tmp_path / "letter", "is not an export"),
        (tmp_path / "none" / "out.jsonl", "no such folder; create it first"),
    ):
        with pytest.raises(UsageError, match=said):
            lines(store, place)
    assert sorted(os.listdir(tmp_path)) == ["letter", "pipe"]


def test_a_file_of_the_store_that_goes_is_not_laid_on_the_output(
    golden: Golden, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    grow_to(golden("orders").path, store, 3_000_000)

    def lose_a_file(phase: str, done: int, total: int) -> None:
        (store / "commitlog" / f"{1 << 20:020d}").unlink(missing_ok=True)

    with pytest.raises(StoreNotFoundError, match="no longer exists"):
        export_lines(
            open_stores([str(store)]), str(tmp_path / "out.jsonl"), ExportRequest(),
            progress=lose_a_file,
        )  # fmt: skip


INTERRUPTED = """
import sys
from pathlib import Path
from reput.wings.lakes.tables.iceberg import IcebergTable
from tests.lakes.exporting import export
from tests.lakes.test_kills import die_at

store, out, catalog, moment = sys.argv[1:]
table = IcebergTable(Path(out), catalog)
export(Path(store), Path(out), destination=table, incremental=True, progress=die_at(moment))
"""


def interrupted(store: Path, out: Path, catalog: str, moment: str) -> None:
    """Export in a new process until that moment."""
    command = [sys.executable, "-c", INTERRUPTED, str(store), str(out), catalog, moment]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False, timeout=600)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["published", "committed"])
def test_an_interrupted_export_into_another_table_is_not_undone(
    golden: Golden, tmp_path: Path, moment: str
) -> None:
    """Undoing it would delete its files, which the table already references."""
    store, out = golden("basic").path, tmp_path / "out"
    there = f"sqlite:///{tmp_path}/there.db"
    interrupted(store, out, there, moment)
    for other in (IcebergTable(out), IcebergTable(out, there, "shop.log")):
        with pytest.raises(UsageError, match="run that export again first, or delete"):
            export(store, out, destination=other, incremental=True)
    export(store, out, destination=IcebergTable(out, there), incremental=True)
    from pyiceberg.catalog import load_catalog

    table = load_catalog("reput", type="sql", uri=there).load_table("reput.messages")
    expected = [message.physical_offset for message in golden("basic").messages]
    assert offsets(table.scan().to_arrow()) == expected


NO_STATES = (
    "", "{", "[]", "null", '{"run": 1}', "\0\0", '{"run": "x", "marks": [], "request": {}, "shape": null}',
    '{"run": "x", "marks": {"s": {"end": "9"}}, "request": {}, "shape": null}',
    '{"run": "x", "marks": {"s": {"end": -9}}, "request": {}, "shape": null}',
    '{"run": "x", "marks": {}, "request": 5, "shape": null}',
    '{"run": "x", "marks": {}, "request": {}, "shape": {"fields": 3}}',
)  # fmt: skip


def harm_pending(out: Path, text: str) -> None:
    (control_of(out) / "pending.json").write_text(text)


def harm_manifest(out: Path, text: str) -> None:
    next((control_of(out) / "commits").glob("*.json")).write_text(text)


def harm_delta(out: Path, text: str) -> None:
    path = next((out / "_delta_log").glob("*.json"))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for line in found:
        if "commitInfo" in line:
            line["commitInfo"]["reput"] = text
    path.write_text("\n".join(map(json.dumps, found)))


@pytest.mark.parametrize(
    ("layout", "harm"),
    [("parquet", harm_pending), ("parquet", harm_manifest), ("delta", harm_delta)],
)
def test_a_state_that_is_none_is_one_line(
    golden: Golden, tmp_path: Path, layout: str, harm: Callable[[Path, str], None]
) -> None:
    store, out = golden("basic").path, tmp_path / "out"
    export(store, out, layout)
    for text in NO_STATES:
        harm(out, text)
        with pytest.raises(
            StoreAccessError, match="damaged, or not written by an export"
        ) as raised:
            export(store, out, layout, incremental=True)
        assert len(str(raised.value).splitlines()) == 1


def test_a_state_of_lines_that_is_none_is_one_line(golden: Golden, tmp_path: Path) -> None:
    store, out = golden("basic").path, tmp_path / "out.jsonl"
    lines(store, out)
    beside = tmp_path / "out.jsonl.reput.json"
    good = json.loads(beside.read_text())
    for text in (*NO_STATES, json.dumps({**good, "bytes": -1}), json.dumps({**good, "bytes": 1.5})):
        beside.write_text(text)
        with pytest.raises(StoreAccessError, match="damaged, or not written by an export"):
            lines(store, out, incremental=True)
    beside.write_text(json.dumps(good))
    out.unlink()
    with pytest.raises(StoreAccessError, match="restore it, or delete"):
        lines(store, out, incremental=True)


def test_a_folder_that_cannot_be_made_is_told_before_the_commit(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the commit it would be too late: the manifest would name files that cannot be renamed into place.

    A system that allows only shorter names than Linux may be unable to create the folder of a topic.
    """
    monkeypatch.setattr(parquet, "MOST_NAME_BYTES", 1000)
    store, out = tmp_path / "store", tmp_path / "out"
    config = reput.StoreConfig(commit_log_file_bytes=1 << 20)
    with reput.open_store(store, mode="rw", config=config) as opened:
        for topic in ("%" * 127, "orders"):
            opened.put(reput.Message(topic=topic, body=b"{}"))
    with pytest.raises(ReputError, match="File name too long"):
        export(store, out, partition_by=("topic",))
    assert export(store, tmp_path / "flat").rows == 2
    assert export(store, out, partition_by=("topic",), topics=("orders",)).rows == 1
    assert read_table(out, "parquet")["topic"].to_pylist() == ["orders"]


def test_one_table_of_a_catalog_is_not_written_from_two_folders(
    golden: Golden, tmp_path: Path
) -> None:
    """The two runs would hold different locks, and both would add the same messages."""
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    store = golden("lmq").path
    one, other, link = (tmp_path / name for name in ("one", "other", "link"))
    export(store, one, destination=open_table(str(one), "iceberg", catalog=uri))
    with pytest.raises(
        UsageError, match=r"reput\.messages was exported to file://.*/one/messages;"
    ):
        export(
            store,
            other,
            destination=open_table(str(other), "iceberg", catalog=uri),
            incremental=True,
        )
    link.symlink_to(one)
    again = open_table(str(link), "iceberg", catalog=uri)
    assert not export(store, link, destination=again, incremental=True).committed


def test_a_table_without_its_files_is_refused(golden: Golden, tmp_path: Path) -> None:
    """Refuse a table whose files were deleted, or whose control folder was copied from another table."""
    store, table, other = golden("lmq").path, tmp_path / "table", tmp_path / "other"
    export(store, table)
    other.mkdir()
    shutil.copytree(control_of(table), control_of(other))
    with pytest.raises(
        UsageError, match=r"other: its files are missing, but .* recorded in .*other\.reput"
    ):
        export(store, other, incremental=True)
    for file in table.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(UsageError, match="its files are missing"):
        export(store, table, incremental=True)
    shutil.rmtree(control_of(table))
    assert export(store, table, incremental=True).committed
    assert not export(store, table, incremental=True).committed
