"""Avro and Protobuf bodies, encodings of other packages, and other charsets as typed columns of tables."""

import json
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reput.base.tasks import SerialRunner
from reput.errors import RejectedRowsError, StoreUnreachableError, UsageError
from reput.wings.lakes.body_decoders import BodyFields
from reput.wings.lakes.compaction import compact_destination
from reput.wings.lakes.tables.opening import open_table
from tests.lakes.exporting import FORMATS, GrowingStore, export, offsets, read_table
from tests.messages.encoded import avro, framed, record
from tests.messages.registry import running_registry

V1 = record(
    ("id", "int"),
    ("name", "string"),
    ("raw", "bytes"),
    ("day", {"type": "int", "logicalType": "date"}),
)
V2 = record(
    ("id", "int"), ("tip", ["null", "double"]), ("labels", {"type": "map", "values": "float"})
)


def v1(number: int, schema_id: int | None = None) -> bytes:
    value = {"id": number, "name": f"n{number}", "raw": b"\xff", "day": 20_000}
    return avro(V1, value, schema_id)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.every_case
def test_a_table_grows_with_the_schemas_of_a_registry(tmp_path: Path, layout: str) -> None:
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    with running_registry() as registry:
        registry.add(1, V1)
        registry.add(2, V2)
        body = f"avro:registry:{registry.url}"
        store.add([v1(1, 1), v1(2, 1), b"nonsense"])
        first = export(store.path, out, layout, incremental=True, body=body)
        assert (first.rows, first.rejects) == (2, 1)
        assert first.reasons == {"the body does not begin with a zero and a schema id": 1}
        store.add(
            [v1(3, 1), avro(V2, {"id": 4, "tip": 0.5, "labels": {"a": 1.5}}, 2), framed(9, b"")]
        )
        second = export(store.path, out, layout, incremental=True, body=body)
        assert (second.rows, second.rejects) == (2, 1)
        assert list(second.json_changes) == ["tip, double, is new", "labels, list, is new"]
        store.add([b"only nonsense"])
        assert export(store.path, out, layout, incremental=True, body=body).rejects == 1
    rows = read_table(out, layout)["avro"].to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert [row["name"] for row in rows] == ["n1", "n2", "n3", None]
    assert rows[0]["raw"] == b"\xff"
    assert str(rows[0]["day"]) == "2024-10-04"
    assert rows[3]["labels"] == [{"key": "a", "value": 1.5}]
    assert len(offsets(read_table(out, layout, rejects=True))) == 3
    with pytest.raises(UsageError, match="created with another body"):
        export(store.path, out, layout, incremental=True)
    compact_destination(open_table(str(out), layout), lambda size: SerialRunner())
    again = read_table(out, layout)["avro"].to_pylist()
    for row in (*rows, *again):
        row["labels"] = row["labels"] or None  # pyiceberg reads a null as an empty list
    assert again == rows


@pytest.mark.parametrize("layout", FORMATS)
def test_protobuf_bodies_and_what_does_not_fit(tmp_path: Path, layout: str) -> None:
    schema = tmp_path / "shop.proto"
    schema.write_text(
        'syntax = "proto3"; message M { int64 id = 1; string name = 2; uint64 big = 3; }'
    )
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    store.add([b"\x08\x05\x12\x01a", b"\x18" + b"\xff" * 9 + b"\x01", b"\xff"])
    report = export(store.path, out, layout, body=f"proto:{schema}", json_mode="permissive")
    assert (report.rows, report.json_errors, report.body_column) == (3, 1, "proto")
    assert "proto errors  1 row; its column proto_error says why" in str(report)
    table = read_table(out, layout)
    one, two, three = table["proto"].to_pylist()
    assert one == {"id": 5, "name": "a", "big": 0}
    assert two["big"] == 2**64 - 1
    assert three is None
    assert table["proto_error"].to_pylist() == [None, None, "the body is not a Protobuf message"]


def test_a_file_with_other_types_than_the_table_is_refused(tmp_path: Path) -> None:
    store, out, schema = GrowingStore(tmp_path / "store"), tmp_path / "out", tmp_path / "s.avsc"
    schema.write_text(json.dumps(record(("id", "int"))))
    store.add([b"\x02"])
    export(store.path, out, body=f"avro:{schema}")
    store.add([b"\x04"])
    schema.write_text(json.dumps(record(("id", "string"))))
    with pytest.raises(
        UsageError, match="other types than the avro schema has: id is int32, not string"
    ):
        export(store.path, out, incremental=True, body=f"avro:{schema}")
    schema.write_text(json.dumps(record(("id", "long"))))
    report = export(store.path, out, incremental=True, body=f"avro:{schema}")
    assert list(report.json_changes) == ["id was int32, is now int64"]


def test_a_registry_that_does_not_answer_rejects_no_message(tmp_path: Path) -> None:
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    with running_registry() as registry:
        registry.add(1, V1)
        store.add([v1(1, 1)])
        export(store.path, out, body=f"avro:registry:{registry.url}")
        store.add([v1(2, 1)])
        url = registry.url
    with pytest.raises(StoreUnreachableError, match="/schemas/ids/1: "):
        export(store.path, out, incremental=True, body=f"avro:registry:{url}")
    assert len(read_table(out, "parquet")) == 1


def test_the_limit_of_rejects_counts_avro_bodies(tmp_path: Path) -> None:
    store, schema = GrowingStore(tmp_path / "store"), tmp_path / "s.avsc"
    schema.write_text(json.dumps(V1))
    store.add([v1(1), b"", b""])
    with pytest.raises(RejectedRowsError, match=r"is shorter than its Avro record \(2\)"):
        export(store.path, tmp_path / "out", body=f"avro:{schema}", max_rejects=1)


class _Pairs:
    """A decoder of `a=1;b=2`."""

    name, is_fixed = "pairs", True

    def __init__(self, argument: str) -> None:
        self._names = argument.split(",")

    def fields(self, sample: Iterable[bytes | None]) -> BodyFields:
        return BodyFields(pa.schema([(name, pa.int64()) for name in self._names]))

    def decode(self, body: bytes) -> Mapping[str, Any]:
        pairs = dict(part.split("=") for part in body.decode().split(";"))
        return {name: int(value) if value.isdigit() else value for name, value in pairs.items()}


def test_another_package_can_bring_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("pairs", f"{__name__}:_Pairs", "reput.body_decoders")
    monkeypatch.setattr(
        "reput.wings.lakes.decoding.entry_points",
        lambda group, name="pairs": [point] if name == "pairs" else [],
    )
    monkeypatch.setitem(sys.modules, __name__, sys.modules[_Pairs.__module__])
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    store.add([b"a=1;b=2", b"a=x", b"nonsense"])
    report = export(store.path, out, body="pairs:a,b")
    assert read_table(out, "parquet")["pairs"].to_pylist() == [{"a": 1, "b": 2}]
    rejects = read_table(out, "parquet", rejects=True)["reason"].to_pylist()
    assert rejects[0] == "a is a text, not int64"
    assert rejects[1].startswith("the body is not pairs: ")
    assert sum(report.reasons.values()) == 2


@pytest.mark.parametrize("charset", ["gb18030", "GBK"])
def test_json_bodies_may_be_in_another_charset(tmp_path: Path, charset: str) -> None:
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    text = '{"城市":"北京","n":1}'
    store.add([text.encode(charset), b"{}\xff", b'{"n":2}'])
    report = export(store.path, out, body="json:infer", charset=charset, incremental=True)
    rows = read_table(out, "parquet")["json"].to_pylist()
    assert rows[:2] == [{"城市": "北京", "n": 1}, {"城市": None, "n": 2}]
    assert report.reasons[f"the body is not {charset.lower()}"] >= 1
    with pytest.raises(UsageError, match="created with another charset"):
        export(store.path, out, json_body="infer", incremental=True)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"body": "json:infer", "json_body": "infer"}, "pass body or json_body, not both"),
        ({"body": "avro:x", "columns": ("avro",)}, "remove avro, because body adds this column"),
        ({"charset": "gbk"}, "charset needs json_body"),
        ({"charset": "zlib", "json_body": "infer"}, "charset zlib: unknown;"),
        ({"charset": "nope", "json_body": "infer"}, "charset nope: unknown;"),
        ({"body": "nope:x"}, "body nope:x: unknown encoding; known are json, avro, proto"),
        ({"body": "avro"}, "body avro: specify avro:FILE"),
    ],
)
def test_what_cannot_be_asked_for_together(tmp_path: Path, request_: Any, reason: str) -> None:
    store = GrowingStore(tmp_path / "store")
    store.add([b"{}"])
    with pytest.raises(UsageError, match=reason):
        export(store.path, tmp_path / "out", **request_)
