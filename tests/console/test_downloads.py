"""Downloaded results: complete, or named as incomplete, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import parquet
from starlette.testclient import TestClient

import reput
from reput import Message, StoreConfig
from reput.engine.writer.shared_store import MissingStore
from tests.console.serving import console, lines_of
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_SIZES = StoreConfig(
    commit_log_file_bytes=1 << 16, queue_entries=50, hash_slots=64, index_items=300
)
_FORMULA = "=HYPERLINK(1)"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Two stores; one message is hostile."""
    folder = tmp_path_factory.mktemp("stores")
    for name in ("a", "b"):
        with reput.open_store(folder / name, "rw", config=_SIZES) as store:
            for number in range(5):
                store.put(Message("orders", f'{{"n": {number}}}'.encode(), keys=[f"k{number}"]))
            if name == "b":
                store.put(Message("orders", _FORMULA.encode(), keys=["evil"], tags="@SUM(A1)"))
                store.put(Message("orders", b'\xff\x00\r\n,"', keys=["bytes"]))
    with console({"a": folder / "a", "b": folder / "b"}) as found:
        yield found


def name_of(answer: object) -> str:
    return answer.headers["content-disposition"]  # type: ignore[attr-defined, no-any-return]


def test_csv_has_all_messages_and_no_formula(client: TestClient) -> None:
    answer = client.get("/download?topic=orders&format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 12
    assert {row["store"] for row in rows} == {"a", "b"}
    times = [int(row["store_timestamp"]) for row in rows]
    assert times == sorted(times, reverse=True)
    evil = next(row for row in rows if row["keys"] == "evil")
    assert (evil["body"], evil["tags"]) == (f"'{_FORMULA}", "'@SUM(A1)")
    assert name_of(answer) == 'attachment; filename="messages.csv"'


def test_json_lines_and_parquet_have_the_same_messages(client: TestClient) -> None:
    lines = lines_of(client.get("/download?key=k1+evil+bytes&format=jsonl").text)
    data = client.get("/download?key=k1+evil+bytes&format=parquet").content
    table = parquet.read_table(io.BytesIO(data)).to_pylist()
    assert [one["store"] for one in lines] == ["b", "b", "b", "a"]
    for line, row in zip(lines, table, strict=True):
        assert line["physical_offset"] == row["physical_offset"]
        assert line["properties"] == dict(row["properties"])
        assert line["store_timestamp"] == int(row["store_timestamp"].timestamp() * 1000 + 0.5)
    assert table[0]["body"] == b'\xff\x00\r\n,"'


def test_a_limited_or_incomplete_file_is_named_so(
    client: TestClient, golden: Golden, tmp_path: Path
) -> None:
    limited = client.get("/download?topic=orders&format=jsonl&limit=3")
    assert (len(lines_of(limited.text)), "messages-first-3.jsonl" in name_of(limited)) == (3, True)
    gone = MissingStore("gone", "/gone", 1_792_000_000_000, "the store is gone")
    store = Path(shutil.copytree(golden("orders").path, tmp_path / "store"))
    with console({"orders": store}, missing=lambda: [gone]) as other:
        found = other.get("/download?topic=orders&format=csv&limit=2")
        assert "messages-incomplete-first-2.csv" in name_of(found)
        assert other.get("/download?format=csv").status_code == 400
        assert other.get("/download?key=x&format=exe").status_code == 400
        assert other.get("/download?key=x&limit=10001").status_code == 400
        every = lines_of(other.get("/download?topic=orders&store=orders&format=jsonl").text)
        pages = other.get("/api/messages?topic=orders&store=orders&limit=1000").json()["messages"]
        assert [one["physical_offset"] for one in every[:1000]] == [
            one["physical_offset"] for one in pages
        ]
        assert len(every) == sum(one.topic == "orders" for one in golden("orders").messages)


def test_names_of_a_store_reach_no_header(tmp_path: Path) -> None:
    with reput.open_store(tmp_path / "store", "rw", config=_SIZES) as store:
        store.put(Message("orders", b"x", keys=["k"]))
    hostile = 'x"\r\nset-cookie: a=b'
    with console({hostile: tmp_path / "store"}) as client:
        answer = client.get("/download", params={"key": "k", "store": hostile, "format": "jsonl"})
        assert json.loads(answer.text)["store"] == hostile
        assert "set-cookie" not in answer.headers
        assert name_of(answer) == 'attachment; filename="messages.jsonl"'
