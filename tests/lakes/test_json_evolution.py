"""Types of JSON bodies over many runs: the table gets new fields and wider numbers, and nothing is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from reput.errors import UsageError
from reput.wings.lakes.body_shape import MOST_COLUMNS, NOTHING, BodyShape, changes, evolved
from reput.wings.lakes.json_inference import ShapeInference
from tests.lakes.exporting import FORMATS, GrowingStore, export, read_table
from tests.slow import slow_from

INT_TO_DOUBLE = frozenset({("int64", "double")})


def shape_of(**fields: Any) -> BodyShape:
    return BodyShape.from_json({"fields": fields, "required": []})


def learned(known: BodyShape | None, *bodies: Any, **options: Any) -> ShapeInference:
    inference = ShapeInference(known, **options)
    inference.add_all(json.dumps(body).encode() for body in bodies)
    return inference


def fields_of(inference: ShapeInference) -> Any:
    return inference.shape.as_json()["fields"]


def test_a_known_shape_grows_and_keeps_what_it_has() -> None:
    known = shape_of(id="int64", deep={"x": "string"}, tags=["string"], items=[{"sku": "string"}])
    inference = learned(
        known,
        {"id": "text", "deep": [1], "tags": "a", "items": [{"sku": 1, "n": 1}]},
        {"deep": {"x": 2, "y": True}, "more": 1.5, "nothing": None, "ID": 7},
        {"id": "text", "deep": 5},
    )
    assert fields_of(inference) == {
        "id": "int64",
        "deep": {"x": "string", "y": "bool"},
        "tags": ["string"],
        "items": [{"sku": "string", "n": "int64"}],
        "more": "double",
    }
    assert changes(known, inference.shape) == [
        "deep.y, bool, is new",
        "items[].n, int64, is new",
        "more, double, is new",
    ]
    assert fields_of(learned(known)) == known.as_json()["fields"]


def test_a_field_that_was_null_has_a_type_when_it_has_a_value() -> None:
    first = learned(None, {"a": 1, "b": None, "c": [None], "d": {"e": None}})
    assert fields_of(first) == {"a": "int64"}
    second = learned(first.shape, {"b": 2, "c": ["x"], "d": {"e": True}})
    assert fields_of(second) == {"a": "int64", "b": "int64", "c": ["string"], "d": {"e": "bool"}}


def test_integers_become_doubles_where_the_table_can() -> None:
    known = shape_of(n="int64", deep=[{"m": "int64"}], s="string")
    body = {"n": 1.5, "deep": [{"m": 2**70}], "s": 1.5}
    wide = learned(known, body, widens=INT_TO_DOUBLE)
    assert fields_of(wide) == {"n": "double", "deep": [{"m": "double"}], "s": "string"}
    assert wide.notes == []
    assert changes(known, wide.shape) == [
        "n was int64, is now double",
        "deep[].m was int64, is now double",
    ]
    narrow = learned(known, body, widens=NOTHING)
    assert narrow.shape == known
    assert [note.split(", ")[0] for note in narrow.notes] == [
        "inferring JSON types: n now has fractions",
        "inferring JSON types: deep[].m now has fractions",
    ]


def test_texts_are_timestamps_where_all_of_them_are_and_it_is_asked_for() -> None:
    bodies = [
        {"at": "2026-10-14T08:35:06.637Z", "day": "2026-10-14", "mixed": "2026-10-14 08:35+08:00"},
        {"at": "2026-10-14T08:35:06+0800", "day": "2026-10-15", "mixed": "soon", "never": "2026-02-30T08:35Z"},
    ]  # fmt: skip
    asked = learned(None, *bodies, timestamps=True)
    texts = dict.fromkeys(("day", "mixed", "never"), "string")
    assert fields_of(asked) == {"at": "timestamp", **texts}
    assert fields_of(learned(None, *bodies)) == {"at": "string", **texts}
    known = shape_of(at="string")
    assert learned(known, *bodies[:1], timestamps=True).shape.schema.field("at").type == "string"


def test_the_bound_on_columns_is_the_tables_over_all_runs() -> None:
    known = None
    for run in range(3):
        bodies = [{f"n{run}-{n}": n for n in range(400)}]
        inference = learned(known, *bodies)
        known = inference.shape
    assert known is not None
    assert len(known.schema) == MOST_COLUMNS
    assert inference.notes == [
        "inferring JSON types: fields beyond the first 1,000 are skipped; they remain in the body"
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (shape_of(b="string"), "the field a is missing"),
        (shape_of(a="string", b={"c": "int64"}), "a is int64, not string"),
        (shape_of(a="double", b={"c": "int32"}), "b.c is int64, not int32"),
        (shape_of(a="double", b=["int64"]), "b is object, not list"),
    ],
)
def test_a_shape_that_takes_something_away_is_refused(given: BodyShape, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        evolved(shape_of(a="int64", b={"c": "int64"}), given, INT_TO_DOUBLE)


def test_a_shape_with_more_keeps_the_order_of_the_table() -> None:
    known, given = (
        shape_of(a="int64", b=[{"c": "int64"}]),
        shape_of(z="bool", b=[{"d": "string", "c": "double"}], a="int64"),
    )
    now = evolved(known, given, INT_TO_DOUBLE)
    assert list(now.as_json()["fields"]) == ["a", "b", "z"]
    assert now.as_json()["fields"]["b"] == [{"c": "double", "d": "string"}]


ROUNDS: list[list[dict[str, Any]]] = [
    [{"id": n, "name": "a", "maybe": None} for n in range(5)],
    [{"id": n, "name": "b", "deep": {"x": n}} for n in range(5)],
    [{"id": n, "deep": {"x": 1, "y": [{"z": "w"}]}, "maybe": True} for n in range(5)],
    [{"id": n, "deep": {"y": [{"z": "w", "more": n}]}} for n in range(5)],
    [{"id": n + 0.5, "maybe": None, "late": "2026-10-14T08:35:06Z"} for n in range(5)],
]


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
@pytest.mark.parametrize("partition_by", [(), pytest.param(("topic",), marks=pytest.mark.slow)])
def test_five_rounds_of_drift(tmp_path: Path, layout: str, partition_by: tuple[str, ...]) -> None:
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    new: list[list[str]] = []
    for bodies in ROUNDS:
        store.add(bodies)
        report = export(
            store.path, out, layout, incremental=True, partition_by=partition_by,
            json_body="infer", json_timestamps=True, json_mode="permissive",
        )  # fmt: skip
        assert (report.rows, report.rejects) == (5, 0)
        new.append(list(report.json_changes))
    widened = ["id was int64, is now double"] if layout == "parquet" else []
    assert new == [
        [],
        ["deep, object, is new"],
        ["deep.y, list, is new", "maybe, bool, is new"],
        ["deep.y[].more, int64, is new"],
        [*widened, "late, timestamp, is new"],
    ]
    rows = read_table(out, layout)
    assert len(rows) == 25
    assert {name.name for name in rows.schema.field("json").type} == {
        "id", "name", "deep", "maybe", "late",
    }  # fmt: skip
    for row in rows.select(["body", "json", "json_error"]).to_pylist():
        told, found = json.loads(row["body"]), row["json"]
        is_narrow = layout != "parquet" and isinstance(told["id"], float)
        assert found["id"] == (None if is_narrow else told["id"])
        assert row["json_error"] == (f"id is {told['id']}, not int64" if is_narrow else None)
        assert (found["name"], found["maybe"]) == (told.get("name"), told.get("maybe"))
        deep = told.get("deep")
        assert (found["deep"] is None) == (deep is None)
        if deep is not None:
            assert found["deep"]["x"] == deep.get("x")
            for part, wanted in zip(found["deep"]["y"] or [], deep.get("y", []), strict=True):
                assert {**part, "more": part["more"]} == {"more": None, **wanted}


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_file_with_more_fields_is_accepted(tmp_path: Path, layout: str) -> None:
    store, out, schema = GrowingStore(tmp_path / "store"), tmp_path / "out", tmp_path / "s.json"
    schema.write_text('{"a": "int64"}')
    store.add([{"a": 1, "b": "x"}])
    export(store.path, out, layout, json_body=str(schema))
    store.add([{"a": 2, "b": "y"}])
    schema.write_text('{"b": "string", "a": "int64"}')
    report = export(store.path, out, layout, json_body=str(schema), incremental=True)
    assert report.json_changes == ["b, string, is new"]
    assert read_table(out, layout)["json"].to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "y"}]
    store.add([{"a": 3}])
    schema.write_text('{"a": "int64"}')
    with pytest.raises(
        UsageError, match=r"fields or types differ from those in .*: the field b is missing"
    ):
        export(store.path, out, layout, json_body=str(schema), incremental=True)


@pytest.mark.parametrize("layout", slow_from(0, ("iceberg", "delta")))
def test_a_run_that_is_refused_leaves_the_fields_as_they_were(tmp_path: Path, layout: str) -> None:
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    store.add([{"a": 1}])
    export(store.path, out, layout, json_body="infer")
    before = read_table(out, layout).schema
    store.add([{"a": 2, "b": 1}, b"no JSON"])

    def fail(phase: str, done: int, total: int) -> None:
        if phase == "written":
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        export(store.path, out, layout, json_body="infer", incremental=True, progress=fail)
    assert read_table(out, layout).schema == before
    export(store.path, out, layout, json_body="infer", incremental=True)
    assert read_table(out, layout)["json"].to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 1}]
