"""Types inferred from JSON bodies: the types of most bodies, within limits that no body can exceed."""

import json
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from reput.engine.messages.schema import BATCH_BYTES
from reput.errors import UsageError
from reput.wings.lakes.body_shape import MOST_COLUMNS, BodyShape
from reput.wings.lakes.json_inference import MOST_LEVELS, ShapeInference
from reput.wings.lakes.request import ExportRequest
from reput.wings.lakes.task import sample_bodies
from tests.oracle.forge import RecordFields, forge_log, write_store
from tests.tables.reading import plan

_BUFFERS = 16 << 20  # bytes of the log


def infer_shape(bodies: Iterable[bytes | None]) -> BodyShape:
    return inferred(bodies).shape


def inferred(bodies: Iterable[bytes | None]) -> ShapeInference:
    inference = ShapeInference()
    inference.add_all(bodies)
    return inference


def test_what_most_bodies_are_is_inferred() -> None:
    bodies = [b'{"id":%d,"tags":[],"note":null,"deep":{"x":1.5}}' % number for number in range(50)]
    bodies += [b'{"id":"text"}', b"no JSON", b'{"tags":["a"],"at":"2026-10-14T00:00:00Z"}']
    shape = infer_shape(bodies)
    assert shape.as_json() == {
        "fields": {
            "id": "int64", "tags": ["string"], "deep": {"x": "double"}, "at": "string",
        },
        "required": [],
    }  # fmt: skip
    with pytest.raises(UsageError, match="none of the first bodies"):
        infer_shape([b"a", b"{}"])


def test_names_that_differ_by_capitals_alone_are_one() -> None:
    """Delta and Spark do not distinguish names by case."""
    bodies = [b'{"id":1}'] * 9 + [b'{"ID":"a","deep":{"x":1,"X":2,"":3}}']
    shape = infer_shape(bodies)
    assert shape.as_json()["fields"] == {"id": "int64", "deep": {"x": "int64"}}


def test_whole_and_fractional_numbers_go_together() -> None:
    shape = infer_shape([b'{"n":1}', b'{"n":2}', b'{"n":0.5}', b'{"n":"text"}', b'{"n":"text"}'])
    assert shape.as_json()["fields"] == {"n": "double"}
    assert infer_shape([b'{"n":9223372036854775808}']).as_json()["fields"] == {"n": "double"}


def test_a_hundred_thousand_names_are_a_thousand_columns() -> None:
    bodies = [json.dumps({f"n{row}-{n}": n for n in range(1000)}).encode() for row in range(100)]
    tracemalloc.start()
    inference = inferred(bodies)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(inference.shape.schema) == MOST_COLUMNS
    assert inference.shape.schema.names[:2] == ["n0-0", "n0-1"]
    assert most < 8 << 20
    assert inference.notes == [
        "inferring JSON types: fields beyond the first 1,000 are skipped; they remain in the body"
    ]


def test_what_is_learned_from_is_read_body_by_body(tmp_path: Path) -> None:
    """All at once, two thousand bodies that inflate like bombs would need a hundred gigabytes."""
    packed = zlib.compress(b'{"a":"' + b"x" * (BATCH_BYTES - 8) + b'"}')
    fields = [RecordFields(queue_offset=n, body=packed, sys_flag=1) for n in range(24)]
    store = write_store(tmp_path / "store", forge_log(fields, file_bytes=1 << 20).files())
    tasks = plan(store, split_bytes=4 << 10).tasks
    # Compiling kernels takes memory, which must not be counted.
    next(sample_bodies(tasks, ExportRequest(), most=1))
    before, most, seen = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for body in sample_bodies(tasks, ExportRequest(), most=2000):
        seen += body is not None and len(body) == BATCH_BYTES
        most = max(most, pa.total_allocated_bytes() - before)
    most += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen >= 12
    assert most < 8 * BATCH_BYTES + _BUFFERS


@pytest.mark.parametrize(("open_one", "close_one"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_what_is_nested_too_deep_is_left_out(open_one: bytes, close_one: bytes) -> None:
    deep = open_one * 90 + b"1" + close_one * 90
    inference = inferred([b'{"id":1,"deep":' + deep + b"}"])
    assert inference.shape.schema.field("id").type == pa.int64()
    assert "levels deep" in inference.notes[0]
    levels, kind = 0, inference.shape.type
    while pa.types.is_nested(kind):
        levels, kind = levels + 1, kind.field(kind.num_fields - 1).type
    assert levels <= MOST_LEVELS + 1


@pytest.mark.parametrize("name", ["a\0b", "line\nfeed", "\x7f", "\u202eb", "", "x" * 256, "\ud800"])
def test_a_name_that_no_table_takes_is_left_out(name: str) -> None:
    body = json.dumps({"id": 1, name: "value"}).encode()
    inference = inferred([body])
    assert inference.shape.schema.names == ["id"]
    assert len(inference.notes) == 1
    assert all(" " <= character < "\x7f" for character in inference.notes[0])


def test_a_field_below_a_list_counts_as_a_column_too() -> None:
    bodies = [json.dumps({"rows": [{f"c{n}": n} for n in range(3000)]}).encode()]
    kind = infer_shape(bodies).schema.field("rows").type.value_type
    assert kind.num_fields == MOST_COLUMNS - 1
