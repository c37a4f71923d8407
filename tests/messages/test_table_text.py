"""Columns as JSON and CSV: the same format as for single messages."""

import csv
import io
import json
import sys
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.base.visible_json import _INVISIBLE, indented, json_text
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.engine.messages.codec import csv_line, message_cells, message_fields
from reput.engine.messages.table_text import csv_names, csv_rows, json_rows
from reput.format.commit_log import SYS_FLAG_COMPRESSED
from reput.format.message_fields import CSV_NAMES
from tests.golden.stores import GoldenStore
from tests.tables.reading import read

Golden = Callable[[str], GoldenStore]
STORES = ("basic", "orders", "timed", "tricky", "extremes", "lmq")
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=6)), max_size=8)
SPECIAL = [
    "",
    " a ",
    '"',
    ",",
    "\n",
    "\r",
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\t",
    "a\u202eb",
    "\x7f\x00",
    "\\",
    "😀",
]


@pytest.mark.parametrize("name", STORES)
def test_columns_and_messages_are_printed_alike(name: str, golden: Golden) -> None:
    store = golden(name).path
    log = CommitLogReader(StoreLog(store))
    messages = [log.get(record.physical_offset) for record in LogWalk(log, log.min_offset)]
    columns = read(store, on_corrupt="row").drop_columns(["store"])
    told_csv = 0
    rows = [
        json.loads(line) for batch in columns.to_batches() for line in json_rows(batch).to_pylist()
    ]
    assert len(rows) == len(messages)
    for message, row in zip(messages, rows, strict=True):
        expected = message_fields(message)
        only_one_by_one = {"properties_string", "properties_base64", "body_stored_base64"}
        expected = {k: v for k, v in expected.items() if k not in only_one_by_one}
        # An additional column that was not requested.
        if expected.pop("body_error", None) is not None:
            assert message.sys_flag & SYS_FLAG_COMPRESSED
        for time in ("born_timestamp", "store_timestamp"):
            if row[time] is None:  # the stored milliseconds do not fit into 64 bits as microseconds
                assert abs(expected[time]) > 2**62 // 1000
                expected[time] = None
        assert row == expected
        told_csv += 1
    assert told_csv == len(messages)


@given(TEXTS)
def test_any_text_is_read_back(texts: list[str | None]) -> None:
    column = pa.array([*texts, *SPECIAL], pa.string())
    lists = pa.array([[text or "" for text in texts], None, []], pa.list_(pa.string()))
    batch = pa.record_batch({"t": column})
    lines = json_rows(batch).to_pylist()
    assert [json.loads(line)["t"] for line in lines] == column.to_pylist()
    assert lines == [f'{{"t":{json_text(text)}}}' for text in column.to_pylist()]
    assert not any(_INVISIBLE.search(line) for line in lines)
    of_lists = [
        json.loads(line)["l"] for line in json_rows(pa.record_batch({"l": lists})).to_pylist()
    ]
    assert of_lists == lists.to_pylist()
    assert csv_rows(batch).to_pylist() == [csv_line([text])[:-1] for text in column.to_pylist()]
    safe = csv_rows(batch, is_safe=True).to_pylist()
    assert safe == [csv_line([text], is_safe=True)[:-1] for text in column.to_pylist()]


def test_a_slice_is_printed_like_what_it_shows() -> None:
    lists = pa.array([["a"], None, ["b", "c"], []], pa.list_(pa.string()))
    maps = pa.array(
        [[("k", "v")], None, [], [("x", "y"), ("z", None)]], pa.map_(pa.string(), pa.string())
    )
    batch = pa.record_batch({"l": lists, "m": maps})
    whole = json_rows(batch).to_pylist()
    assert json.loads(whole[3]) == {"l": [], "m": {"x": "y", "z": None}}
    assert json.loads(whole[1]) == {"l": None, "m": None}
    for start in range(5):
        assert json_rows(batch.slice(start)).to_pylist() == whole[start:]


def test_other_types_of_keys() -> None:
    batch = pa.record_batch(
        {
            "at": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
            "n": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "f": pa.array([float("inf"), 2.5]),
            "b": pa.array([True, None]),
            "body": pa.array([b"\xff", b'{"a":1}']),
            "s": pa.array([{"x": 1, "y": [b"z"]}, None]),
            "size": pa.array([1, 2]),
        }
    )
    first, second = json_rows(batch).to_pylist()
    assert first == (
        '{"at":1767312000000,"n":1.50,"f":null,"b":true,"body_base64":"/w==",'
        '"s":{"x":1,"y":["eg=="]},"size_bytes":1}'
    )
    assert json.loads(second) == {
        "at": None, "n": None, "f": 2.5, "b": None, "body": '{"a":1}', "s": None, "size_bytes": 2
    }  # fmt: skip
    assert [line.split(",", 6)[:6] for line in csv_rows(batch).to_pylist()] == [
        ["1767312000000", "1.50", "inf", "true", "", "/w=="],
        ["", "", "2.5", "", '"{""a"":1}"', ""],
    ]
    assert csv_names(batch.schema) == [
        "at",
        "n",
        "f",
        "b",
        "body",
        "body_base64",
        "s",
        "size_bytes",
    ]


def test_csv_tells_a_missing_value_from_an_empty_text(golden: Golden) -> None:
    assert csv_line([None, "", 1, "a b", 'a"b,', " a"]) == ',"",1,a b,"a""b,"," a"\n'
    log = CommitLogReader(StoreLog(golden("orders").path))
    message = log.get(53821)
    (row,) = csv.DictReader(io.StringIO(csv_line(CSV_NAMES) + csv_line(message_cells(message))))
    assert row["body"] == message.body.decode()
    assert row["keys"] == "order-100377 customer-65"


@pytest.mark.parametrize("text", ["=HYPERLINK(0)", "+1", "-1", "@x", "\tx", "\rx"])
def test_a_formula_is_made_a_text_where_that_is_asked_for(text: str) -> None:
    (cell,) = next(csv.reader(io.StringIO(csv_line([text], is_safe=True), newline="")))
    assert cell == f"'{text}"
    assert next(csv.reader(io.StringIO(csv_line([text]), newline=""))) == [text]
    assert csv_line([-1], is_safe=True) == "-1\n", "a number is no formula"


def test_all_characters_without_a_glyph_are_escaped() -> None:
    kinds = {"Cc", "Cf", "Zl", "Zp"}
    without = [chr(n) for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n)) in kinds]
    printed = json_text("".join(without))
    assert printed.isascii()
    assert json.loads(printed) == "".join(without)


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
))  # fmt: skip
def test_indented_json_is_what_python_would_indent(value: object) -> None:
    for separators in ((",", ":"), (" , ", " : ")):
        text = json.dumps(value, separators=separators)
        assert indented(text) == json.dumps(value, indent=2)
