"""Bodies that drift: `permissive` keeps each row and its fitting fields, `strict` rejects rows, up to a limit."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import RejectedRowsError, UsageError
from reput.wings.lakes.body_shape import BodyShape
from reput.wings.lakes.json_body import parse_bodies, parse_permissively
from reput.wings.lakes.reject_reasons import MostRejects
from tests.cli.running import reput
from tests.lakes.exporting import FORMATS, GrowingStore, export, read_table
from tests.lakes.test_json_body import ANYTHING, SHAPE
from tests.slow import slow_from


def parsed(*bodies: bytes | None, shape: BodyShape = SHAPE) -> list[tuple[Any, str | None]]:
    found = parse_permissively(pa.array(bodies, pa.binary()), shape)
    return list(zip(found.values.to_pylist(), found.reasons.to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("body", "kept", "reason"),
    [
        (b'{"name":1,"count":7}', {"count": 7}, "name is 1, not string"),
        (b'{"name":"a","count":3000000000}', {"name": "a"}, "count is 3000000000, not int32"),
        (b'{"name":"a","count":1.0}', {"name": "a"}, "count is 1.0, not int32"),
        (b'{"name":"a","price":"1","paid":0}', {"name": "a"}, "price is a text, not double; paid is 0, not bool"),
        (b'{"name":"a","price":1e999}', {"name": "a"}, "price is 1e999, not double"),
        (b'{"name":"a","x":1e999}', {"name": "a"}, "Number too big"),
        (b'{"name":"a","at":"soon"}', {"name": "a"}, "at is a text, not timestamp"),
        (b'{"name":"a","at":12}', {"name": "a"}, "at is 12, not timestamp"),
        (b'{"name":"a","sum":1.555}', {"name": "a"}, "sum is 1.555, not decimal"),
        (b'{"name":"a","parts":{}}', {"name": "a"}, "parts is an object, not list"),
        (b'{"count":1}', {"count": 1}, "has no name"),
        (b'{"name":"\\ud800","count":1}', {"count": 1}, "name is a text"),
        (
            b'{"name":"a","parts":[{"n":1},5,{"n":"x","sku":"s"}]}',
            {"name": "a", "parts": [{"n": 1, "sku": None}, None, {"n": None, "sku": "s"}]},
            r"parts\[\] is 5, not struct<.*>; parts\[\].n is a text",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_null_and_the_rest_is_kept(
    body: bytes, kept: dict[str, Any], reason: str
) -> None:
    before, bad, after = parsed(b'{"name":"x"}', body, b'{"name":"y"}')
    assert (before[0]["name"], before[1], after[0]["name"], after[1]) == ("x", None, "y", None)
    assert {name: value for name, value in bad[0].items() if value is not None} == kept
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(bad[1])


@pytest.mark.parametrize("body", [b"", b"hello", b"[1]", b'{"name":"\xff"}', b'{"name":tru}'])
def test_what_is_no_object_is_null_as_a_whole(body: bytes) -> None:
    ((value, reason),) = parsed(body)
    assert value is None
    assert reason


def test_numbers_are_kept_as_they_are_written() -> None:
    ((value, _),) = parsed(
        b'{"name":"a","sum":12345678.91,"parts":[{"n":9007199254740993}],"paid":"no"}'
    )
    assert (str(value["sum"]), value["parts"][0]["n"]) == ("12345678.91", 9007199254740993)


@given(st.lists(ANYTHING, max_size=30))
def test_a_body_that_fits_is_the_same_in_both_modes(bodies: list[bytes | None]) -> None:
    shape = BodyShape.from_json(
        {"fields": {"a": "int64", "b": "string", "c": ["bool"]}, "required": []}
    )
    array = pa.array(bodies, pa.binary())
    strict, lenient = parse_bodies(array, shape), parse_permissively(array, shape)
    assert strict.reasons.is_valid().equals(lenient.reasons.is_valid())
    fits = strict.reasons.is_null()
    assert strict.values.filter(fits).equals(lenient.values.filter(fits))
    for body, value in zip(bodies, lenient.values.to_pylist(), strict=True):
        if body is not None and body.startswith(b"{"):
            assert value is not None or not _is_json(body)


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body.decode())
    except ValueError:
        return False
    return True


def drifted(path: Path) -> GrowingStore:
    store = GrowingStore(path)
    store.add([{"n": n} for n in range(43)] + [{"n": f"{n}", "m": 1} for n in range(7)])
    return store


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_permissive_table_has_every_message(tmp_path: Path, layout: str) -> None:
    store = drifted(tmp_path / "store")
    report = export(store.path, tmp_path / "out", layout, json_body="infer", json_mode="permissive")
    assert (report.rows, report.rejects, report.json_errors) == (50, 0, 7)
    assert report.reasons == {"n is a text, not int64": 7}
    rows = read_table(tmp_path / "out", layout).select(["json", "json_error"]).to_pylist()
    assert rows[0] == {"json": {"n": 0, "m": None}, "json_error": None}
    assert rows[-1] == {"json": {"n": None, "m": 1}, "json_error": "n is a text, not int64"}


@pytest.mark.parametrize("most", [6, "13.9%", "0", "0%"])
def test_more_rejects_than_allowed_commit_nothing(tmp_path: Path, most: str | int) -> None:
    store, out = drifted(tmp_path / "store"), tmp_path / "out"
    said = r"7 rejected rows, 14.0% of 50, more than max_rejects .*n is a text, not int64 \(7\)"
    with pytest.raises(RejectedRowsError, match=said):
        export(store.path, out, json_body="infer", max_rejects=most)
    assert list(out.iterdir()) == []
    assert export(store.path, out, json_body="infer", max_rejects="14%").rejects == 7


@pytest.mark.parametrize("mode", ["strict", "permissive"])
def test_each_reason_counts_all_its_rows_whatever_their_values(tmp_path: Path, mode: str) -> None:
    store = GrowingStore(tmp_path / "store")
    bodies: list[object] = [{"s": f"{n}", "n": n} for n in range(900)]
    bodies += [{"s": n, "n": n} for n in range(650)]
    bodies += [{"s": n + 0.5, "n": n} for n in range(30)]
    bodies += [{"s": "a", "n": f"x{n}"} for n in range(20)]
    bodies += [b"{" + b"x" * n for n in range(10)] + [{"s": {"a": n}, "n": n} for n in range(5)]
    store.add(bodies)
    types = tmp_path / "types.json"
    types.write_text('{"s": "string", "n": "int64"}')
    report = export(store.path, tmp_path / "out", "parquet", json_body=str(types), json_mode=mode)
    assert (report.rejects or report.json_errors) == 715
    fields = {r: rows for r, rows in report.reasons.items() if not r.startswith("the body")}
    assert fields == {
        "s is an integer, not string": 650,
        "s is a number, not string": 30,
        "n is a text, not int64": 20,
        "s is an object, not string": 5,
    }
    assert sum(report.reasons.values()) == 715
    assert report.reason_examples["s is an integer, not string"] == "0"
    assert report.reason_examples["n is a text, not int64"] == '"x0"'
    text = str(report)
    assert "s is an integer, not string (650), such as 0" in text
    assert "and 2 others (15)" in text


@pytest.mark.parametrize("most", ["", "-1", "1.5", "x%", "101%", "nan%", "%"])
def test_a_limit_that_is_none_is_refused(most: str) -> None:
    with pytest.raises(UsageError, match=r"max_rejects .*: must be a number of rows, or a share"):
        MostRejects(most)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            {"json_mode": "lax", "json_body": "infer"},
            "json_mode must be strict or permissive, not lax",
        ),
        ({"json_mode": "permissive"}, "json_mode needs body or json_body"),
        ({"json_timestamps": True}, "pass json_timestamps only if json_body is infer"),
        ({"columns": ("json_error",)}, "columns: remove json_error"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, request_: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        export(drifted(tmp_path / "store").path, tmp_path / "out", **request_)


def test_the_mode_of_a_table_stays(tmp_path: Path) -> None:
    store, out = drifted(tmp_path / "store"), tmp_path / "out"
    export(store.path, out, json_body="infer")
    store.add([{"n": 1}])
    with pytest.raises(
        UsageError, match=r"created with another json_mode \(strict, not permissive\)"
    ):
        export(store.path, out, json_body="infer", json_mode="permissive", incremental=True)


def test_the_command_says_what_became_of_bodies(tmp_path: Path) -> None:
    store, out = drifted(tmp_path / "store"), tmp_path / "out"
    refused = reput("export", store.path, out, "--json-body", "infer", "--max-rejects", "1%")
    assert refused.code == 3
    assert "7 rejected rows, 14.0% of 50, more than --max-rejects 1%" in refused.err
    ran = reput("export", store.path, out, "--json-body", "infer", "--json-mode", "permissive")
    assert ran.code == 0, ran.err
    assert "7 rows; their column json_error says why" in ran.out
    assert "n is a text, not int64 (7)" in ran.out
    store.add([{"new": True}])
    again = reput(
        "export",
        store.path,
        out,
        "--json-body",
        "infer",
        "--json-mode",
        "permissive",
        "--incremental",
    )
    assert "new, bool, is new" in again.out
