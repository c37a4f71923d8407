"""`reput export`: its output, its options, and one line for every error."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FAILED, FOUND, WRONG_USE
from tests.cli.running import COMPILING, REPUT, one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import expire, grow_to, offsets, read_table
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


def test_a_summary_tells_what_was_done(golden: Golden, tmp_path: Path) -> None:
    store, out = golden("orders").path, tmp_path / "out"
    ran = reput("export", store, out, "--partition-by", "topic")
    assert (ran.code, ran.err) == (FOUND, "")
    assert ran.lines[0].startswith(f"Exported to {out} in ")
    assert f"{store}: 0 to 6,549,067" in ran.out
    assert "19,622 of 19,622 in the log" in ran.out
    assert ran.lines[-1].split() == ["damage", "none"]
    again = reput("export", store, out, "--partition-by", "topic", "--incremental")
    assert again.code == FOUND
    assert again.lines[0].startswith(f"Nothing new for {out}")


def test_every_option_reaches_the_export(golden: Golden, tmp_path: Path) -> None:
    source, out = golden("orders"), tmp_path / "out"
    (tmp_path / "schema.json").write_text('{"order": "string", "amount": "double"}')
    ran = reput(
        "export", source.path, out, "--to", "delta", "--incremental", "--topic", "payments",
        "--topic", "orders", "--begin", "2026-10-14", "--end", "2026-10-15T23:59:59.999",
        "--columns", "topic, physical_offset,body", "--partition-by", "topic,day",
        "--json-body", tmp_path / "schema.json", "--on-corrupt", "fail", "--name", "shop",
        "--split-size", "1MiB", "--no-fail-on-data-loss", "--raw-bodies", "--format", "json",
    )  # fmt: skip
    assert (ran.code, ran.err) == (FOUND, "")
    report = json.loads(ran.out)
    table = read_table(out, "delta")
    assert table.schema.names == ["topic", "physical_offset", "body", "json", "day"]
    assert {str(day) for day in table["day"].to_pylist()} == {"2026-10-14", "2026-10-15"}
    assert set(table["topic"].to_pylist()) == {"payments", "orders"}
    assert report["rows"] == len(table)
    assert report["stores"] == {"shop": [0, 6549067]}
    assert report["committed"]


def test_an_iceberg_table_in_a_catalog_of_ones_own(golden: Golden, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{tmp_path}/my catalog.db"
    ran = reput(
        "export", golden("basic").path, tmp_path / "my lake", "--to", "iceberg",
        "--catalog", uri, "--table", "shop.log",
    )  # fmt: skip
    assert (ran.code, ran.err) == (FOUND, "")
    table = load_catalog("reput", type="sql", uri=uri).load_table("shop.log")
    assert table.scan().to_arrow().num_rows == 5000
    assert not (tmp_path / "my lake" / "catalog.db").exists()


def test_lines_go_to_stdout_and_the_summary_beside(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    ran = reput("export", store, "-", "--to", "jsonl")
    assert ran.code == FOUND
    assert ran.err.startswith("Exported to - in ")
    found = [json.loads(line)["physical_offset"] for line in ran.lines]
    assert found == [message.physical_offset for message in golden("basic").messages]
    reput("export", store, tmp_path / "out.jsonl", "--to", "jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == ran.raw


def test_damage_is_told_and_costs_exit_code_3(golden: Golden, tmp_path: Path) -> None:
    source = golden("orders")
    store = copy_store(source.path, tmp_path / "store")
    file = store / "commitlog" / "00000000000000000000"
    data = bytearray(file.read_bytes())
    second, third = (message.physical_offset for message in source.messages[1:3])
    data[second : second + 8] = bytes(8)
    file.write_bytes(data)
    ran = reput("export", store, tmp_path / "out")
    assert ran.code == DAMAGED
    assert f"{file}: offset {second}: {third - second} bytes lost" in ran.err
    assert "1 places" not in ran.out
    found = offsets(read_table(tmp_path / "out", "parquet"))
    assert found == [m.physical_offset for m in source.messages if m.physical_offset != second]
    assert f"offset {second}: " in one_line(
        reput("export", store, tmp_path / "no", "--on-corrupt", "fail")
    )


def test_expired_messages_are_an_error_unless_told_otherwise(
    golden: Golden, tmp_path: Path
) -> None:
    source, store, out = golden("orders").path, tmp_path / "store", tmp_path / "out"
    grow_to(source, store, 500_000)
    reput("export", store, out, "--incremental")
    grow_to(source, store, 1 << 40)
    expire(store, 1)
    ran = reput("export", store, out, "--incremental")
    assert ran.code == DAMAGED
    assert "--no-fail-on-data-loss" in one_line(ran)
    ran = reput("export", store, out, "--incremental", "--no-fail-on-data-loss")
    assert ran.code == DAMAGED
    assert "bytes lost: no file contains these offsets" in ran.err
    assert ran.lines[0].startswith("Exported")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--columns", "topic,colour"], "--columns: no column colour; choose from store, topic"),
        (["--partition-by", "week"], "--partition-by week: must be one of topic"),
        (["--json-body", "none.json"], "--json-body none.json: cannot be read"),
        (["--to", "jsonl", "--json-body", "infer"], "or --on-corrupt=row; export to a table"),
        (["--body-mode", "lax"], "--body-mode must be strict or permissive, not lax"),
        (["--body-mode", "permissive"], "--body-mode needs --body or --json-body"),
        (["--to", "jsonl", "--table", "a.b"], "--table: cannot be used with jsonl"),
        (["--table", "a.b"], "--to parquet does not take --table"),
        (["--catalog-property", "a=b"], "--to parquet does not take --catalog-property"),
        (["--to", "iceberg", "--table", "messages"], "--table messages: must have the form NAMESPACE.NAME"),
        (["--name", "a", "--name", "b"], "--name: pass 1 name, one per store, all different"),
        (["--split-size", "0"], "--split-size"),
        (["--split-size", "1k"], "--split-size must be at least 16384, not 1024"),
        (["--columns", "topic,,key"], "a name is empty"),
        (["--columns", "topic,json"], "remove json, because --json-body adds"),
        (["--columns", "topic,json", "--json-body", "infer"], "remove json, because --json-body adds"),
        (["--columns", "topic,json", "--body", "json:infer"], "remove json, because --body adds"),
        (["--columns", "topic,json", "--body", "avro:a.avsc"], "--columns: no column json"),
        (["--partition-by", ""], "a name is empty"),
        (["--topic", ""], "--topic: empty topic name"),
        (["--to", "iceberg", "--catalog", ""], "--catalog: give a name"),
        (["--begin", "soon"], "is not a time"),
        (["--topic", "orders", "--json-body", "infer", "--begin", "2030-01-01"], "none of the first"),
        (["--to", "csv"], "csv"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_one_line(
    golden: Golden, tmp_path: Path, options: list[str], said: str
) -> None:
    ran = reput("export", golden("basic").path, tmp_path / "out", *options)
    assert ran.code == WRONG_USE
    assert said in one_line(ran)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("export {store} - --to jsonl > /dev/full", FAILED, "cannot be written: No space left"),
        ("export {store} - --to jsonl >&-", WRONG_USE, "'-' means stdout, but stdout is closed"),
        *slow_from(
            0,
            [
                ("export {store} {out} > /dev/full", FAILED, "cannot be written: No space left"),
                ("export {store} {out} >&-", FOUND, ""),
                ("export {store} {out} 2>&-", FOUND, ""),
            ],
        ),
    ],
)
def test_an_output_that_takes_nothing_is_one_line(
    golden: Golden, tmp_path: Path, command: str, code: int, said: str
) -> None:
    text = command.format(store=golden("basic").path, out=tmp_path / "out")
    ended = subprocess.run(
        ["bash", "-c", f"{REPUT} {text}"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    errors = COMPILING.sub("", ended.stderr)
    assert said in errors
    assert len(errors.splitlines()) == bool(said)


def test_the_summary_says_what_was_written_and_looked_at(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders").path
    ran = reput("export", store, "-", "--to", "jsonl", "--topic", "payments")
    assert " 0 files" not in ran.err
    assert " looked at" not in reput("export", store, tmp_path / "all").out
    ran = reput("export", store, tmp_path / "some", "--topic", "payments")
    assert " looked at" in ran.out


def test_help_shows_how(tmp_path: Path) -> None:
    ran = reput("export", "--help")
    assert "reput export /data/store /lake/messages --partition-by topic,day" in ran.out
    assert "2h ago" in ran.out
    assert reput("export", tmp_path).code == WRONG_USE
    assert "not a RocketMQ store" in one_line(reput("export", tmp_path, tmp_path / "out"))
