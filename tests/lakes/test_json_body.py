"""JSON bodies as typed columns: what fits is in the table as Python's parser reads it, all else is a rejected row."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import UsageError
from reput.testing.builders import MESSAGE, write_log
from reput.wings.lakes.body_shape import BodyShape
from reput.wings.lakes.json_body import parse_bodies
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, export, grow_to, offsets, read_table
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]

SHAPE = BodyShape.from_json(
    {
        "fields": {
            "name": "string", "count": "int32", "price": "double", "paid": "bool",
            "parts": [{"sku": "string", "n": "int64"}], "at": "timestamp", "sum": "decimal(10,2)",
        },
        "required": ["name"],
    }
)  # fmt: skip


def parsed(*bodies: bytes | None, shape: BodyShape = SHAPE) -> list[tuple[Any, str | None]]:
    found = parse_bodies(pa.array(bodies, pa.binary()), shape)
    return list(zip(found.values.to_pylist(), found.reasons.to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not a JSON object"),
        (b"hello", "not a JSON object"),
        (b'[{"name":"a"}]', "not a JSON object"),
        (b'{"name":"a"}{"name":"b"}', "not a JSON object"),
        (b'{"name":"a"} x', "not a JSON object"),
        (b'{"name":"\xff"}', "not UTF-8"),
        (b'{"name":tru}', "not JSON: "),
        (b'{"name":1}', "name is 1, not string"),
        (b'{"name":"a","count":3000000000}', "count is 3000000000, not int32"),
        (b'{"name":"a","count":1.5}', "count is 1.5, not int32"),
        (b'{"name":"a","price":"1"}', "price is a text, not double"),
        (b'{"name":"a","paid":0}', "paid is 0, not bool"),
        (b'{"name":"a","parts":[{"n":1},{"n":"x"}]}', r"parts\[\].n is a text"),
        (b'{"name":"a","parts":{}}', "parts is an object"),
        (b'{"name":"a","at":"soon"}', "couldn't parse:soon"),
        (b'{"name":"a","name":"b"}', "specified twice"),
        (b'{"count":1}', "has no name"),
        (b'{"name":null}', "has no name"),
        (b'{"name":"a","x":' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 100 deep"),
    ],
)
def test_a_body_that_does_not_fit_says_why(body: bytes, reason: str) -> None:
    before, bad, after = parsed(b'{"name":"x"}', body, b'{"name":"y"}')
    assert (before[0]["name"], after[0]["name"]) == ("x", "y")
    assert bad[0] is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(bad[1])


@pytest.mark.parametrize("deep", [b"[" * 99 + b"]" * 99, b'{"a":' * 99 + b"1" + b"}" * 99])
def test_a_body_may_be_nested_to_the_limit_where_the_types_do_not_look(deep: bytes) -> None:
    ((value, reason),) = parsed(b'{"name":"a","x":' + deep + b"}")
    assert (value["name"], reason) == ("a", None)


def test_a_field_whose_name_no_table_takes_costs_nothing_where_the_types_are_given() -> None:
    ((value, reason),) = parsed(b'{"name":"a","x\\u0000y":1,"\\u202e":2}')
    assert (value["name"], reason) == ("a", None)


def test_a_body_nested_too_deep_costs_its_row_and_not_the_export(tmp_path: Path) -> None:
    bodies = [b'{"a":1}', b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":2}']
    messages = [replace(MESSAGE, body=body) for body in bodies]
    store = write_log(tmp_path / "store", messages, file_bytes=1 << 20)
    (tmp_path / "schema.json").write_text('{"a": "int64"}')
    for number, schema in enumerate((str(tmp_path / "schema.json"), "infer")):
        out = tmp_path / f"out{number}"
        report = export(store, out, json_body=schema)
        assert (report.rows, report.rejects) == (2, 1)
        assert [row["a"] for row in read_table(out, "parquet")["json"].to_pylist()] == [1, 2]
        assert read_table(out, "parquet", rejects=True)["body"].to_pylist() == bodies[1:2]


def test_a_body_that_fits_has_its_types() -> None:
    body = """{"name": "Zoë \\u20ac\\n", "count": 7, "price": 2, "paid": true, "more": [1, {"x": []}],
      "parts": [{"sku": "a", "n": 9007199254740993}, {}], "at": "2026-10-14T08:35:06.637Z", "sum": "12.50"}"""
    ((value, reason),) = parsed(body.encode())
    assert reason is None
    assert value["name"] == "Zoë €\n"
    assert (value["count"], value["price"], value["paid"]) == (7, 2.0, True)
    assert value["parts"] == [{"sku": "a", "n": 9007199254740993}, {"sku": None, "n": None}]
    assert (str(value["at"]), str(value["sum"])) == ("2026-10-14 08:35:06.637000+00:00", "12.50")


FITTING = st.fixed_dictionaries(
    {"a": st.integers(-(2**63), 2**63 - 1)},
    optional={"b": st.text(max_size=5), "c": st.lists(st.booleans(), max_size=3), "z": st.none()},
).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
ANYTHING = st.one_of(
    FITTING, FITTING, st.none(), st.binary(max_size=6), st.sampled_from([b'{"a":""}', b"{}", b'{"b":1}'])
)  # fmt: skip


@given(st.lists(ANYTHING, max_size=40))
def test_every_body_is_judged_by_itself(bodies: list[bytes | None]) -> None:
    shape = BodyShape.from_json(
        {"fields": {"a": "int64", "b": "string", "c": ["bool"]}, "required": []}
    )
    together = parsed(*bodies, shape=shape)
    assert together == [parsed(body, shape=shape)[0] for body in bodies]
    for body, (value, reason) in zip(bodies, together, strict=True):
        if value is not None:
            assert body is not None
            read = json.loads(body)
            assert value == {name: read.get(name) for name in ("a", "b", "c")}
        assert (value is None) == (reason is not None or body is None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "a type must be a name"),
        ('["string"]', "an object that maps field names"),
        ('{"a": "int8"}', "a: 'int8' is not one of bool, int32"),
        ('{"a": {"b": ["text"]}}', r"a.b\[\]: 'text'"),
        ('{"a": "decimal(40,2)"}', "decimal"),
        ("{}", "a type must be a name"),
        ('{"type": "object", "properties": {"a": {"type": "tuple"}}}', "a: type 'tuple'"),
        ('{"properties": {"a": {"type": "string"}}, "required": ["b"]}', "b is required"),
        ('{"properties": {"a": {"type": "string"}}, "required": "a"}', "'required' must be a list"),
        ('{"properties": {"a": {"type": "string"}}, "required": [1]}', "'required' must be a list"),
        ('{"properties": {"a": {"type": {}}}}', "a: type {} is not supported"),
        (
            '{"properties": {"a": {"type": ["string", "integer"]}}}',
            r"a: type \['string', 'integer'\]",
        ),
        ('{"properties": {"a": {"type": "array"}}}', r"json: a\[\]: not a JSON Schema"),
        ('{"properties": {"a": {"type": "object"}}}', "a: an object must have properties"),
        ('{"a": {"id": "string", "ID": "string"}}', "a: id and ID differ only in case"),
        ('{"": "string"}', "empty field name"),
    ],
)
def test_a_file_that_is_no_schema_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "schema.json").write_text(text)
    with pytest.raises(UsageError, match=said):
        BodyShape.from_file(str(tmp_path / "schema.json"))
    with pytest.raises(UsageError, match="cannot be read"):
        BodyShape.from_file(str(tmp_path / "none.json"))


def test_a_shape_is_known_by_its_column() -> None:
    assert BodyShape.of_type(SHAPE.type).schema == SHAPE.schema
    with pytest.raises(ValueError, match="int8 is not a type that a field of a shape can have"):
        BodyShape.of_type(pa.struct([("a", pa.int8())]))


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_schema_is_known_by_its_types_and_not_by_its_file(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    store, schema, out = golden("basic").path, tmp_path / "schema.json", tmp_path / "out"
    schema.write_text('{"order": "string"}')
    export(store, out, layout, json_body=str(schema))
    schema.rename(tmp_path / "same.json")
    same = str(tmp_path / "same.json")
    assert not export(store, out, layout, json_body=same, incremental=True).committed
    grown = [store, golden("orders").path]
    schema.write_text('{"order": "int64"}')
    with pytest.raises(UsageError, match=r"fields or types differ from those in .*schema.json"):
        export(grown, out, layout, json_body=str(schema), incremental=True)
    with pytest.raises(UsageError, match=r"another json_body \(a schema, not infer\)"):
        export(grown, out, layout, json_body="infer", incremental=True)


def test_a_json_schema_will_do(tmp_path: Path) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "order": {"type": "string"},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "items": {"type": "array", "items": {"properties": {"qty": {"type": "integer"}}}},
        },
        "required": ["order"],
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    shape = BodyShape.from_file(str(tmp_path / "schema.json"))
    assert shape.as_json() == {
        "fields": {"order": "string", "at": "timestamp", "items": [{"qty": "int64"}]},
        "required": ["order"],
    }
    assert BodyShape.from_json(shape.as_json()) == shape


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_bodies_are_columns_of_the_table(golden: Golden, tmp_path: Path, layout: str) -> None:
    store, out = golden("orders"), tmp_path / "out"
    (tmp_path / "schema.json").write_text(
        '{"order": "string", "amount": "string", "total": "double"}'
    )
    report = export(store.path, out, layout, json_body=str(tmp_path / "schema.json"))
    rows, rejects = read_table(out, layout), read_table(out, layout, rejects=True)
    assert (len(rows), len(rejects)) == (report.rows, report.rejects)
    assert sorted([*offsets(rows), *offsets(rejects)]) == [
        m.physical_offset for m in store.messages
    ]
    for row in rows.select(["body", "json"]).to_pylist():
        read = json.loads(row["body"])
        assert row["json"] == {name: read.get(name) for name in ("order", "amount", "total")}
    with_amount = [row for row in rejects.to_pylist() if "amount" in json.loads(row["body"])]
    assert len(with_amount) == len(rejects) > 3000
    assert rejects["reason"].to_pylist()[0].startswith("amount is ")
    assert rejects.schema.names[-1] == "reason"


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_what_was_inferred_once_stays(golden: Golden, tmp_path: Path, layout: str) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    asked: dict[str, Any] = {"json_body": "infer", "topics": ("orders", "shipments")}
    grow_to(source.path, store, 30_000)
    export(store, out, layout, incremental=True, **asked)
    first = read_table(out, layout).schema.field("json").type
    grow_to(source.path, store, 1 << 40)
    export(store, out, layout, incremental=True, **asked)
    table = read_table(out, layout)
    now = table.schema.field("json").type
    assert [now.field(field.name).type for field in first] == [field.type for field in first]
    assert now.num_fields > first.num_fields, "shipments have fields of their own"
    wanted = [m for m in source.messages if m.topic in asked["topics"]]
    assert len(table) == len(wanted)


def test_a_body_is_read_though_it_is_no_column(golden: Golden, tmp_path: Path) -> None:
    export(
        golden("orders").path, tmp_path / "out",
        json_body="infer", topics=("payments",), columns=("key",),
    )  # fmt: skip
    table = read_table(tmp_path / "out", "parquet")
    assert table.schema.names == ["key", "json"]
    assert all(row["key"] == row["json"]["order"] for row in table.to_pylist())
