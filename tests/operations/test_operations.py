"""Operations return reports that print what commands print."""

import inspect as inspect_module
import json
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

import reput as reput_module
from reput.base.notebook import Report
from reput.engine.check import check, prove, repair, undo_repair
from reput.engine.lookup.operation import look_up
from reput.engine.rebuild.operation import rebuild
from reput.engine.stores import open_store, tail
from reput.errors import UsageError
from reput.wings.fleet.api import lag
from reput.wings.inspect.api import diff, inspect, report, stats, trace
from reput.wings.lakes.api import export
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return copy_store(golden("orders").path, tmp_path / "store")


@pytest.mark.parametrize(
    ("command", "options", "operation"),
    [
        ("check", (), check),
        ("stats", (), stats),
        ("lag", (), lag),
        ("prove", (), prove),
        ("trace", ("--key", "order-103921"), lambda store: trace(store, key="order-103921")),
        ("inspect", (), inspect),
        ("tail", ("--topic", "orders"), lambda store: tail(store, topic="orders")),
    ],
    ids=["check", "stats", "lag", "prove", "trace", "inspect", "tail"],
)
def test_a_report_prints_what_its_command_prints(
    store: Path, command: str, options: tuple[str, ...], operation: Callable[[str], Report]
) -> None:
    found = operation(str(store))
    assert reput(command, store, *options).out == f"{found}\n"
    json.dumps(found.as_dict(), default=str)
    assert repr(found).startswith(f"<{type(found).__name__}: ")
    assert len(repr(found).splitlines()) == 1
    assert found._repr_html_().startswith("<pre>")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in reput_module.__all__
        if inspect_module.isfunction(getattr(reput_module, name))
    ],
)
def test_an_operation_refuses_a_wrong_keyword_in_its_own_name(store: Path, name: str) -> None:
    operation = getattr(reput_module, name)
    others = (
        [str(store)] if name in ("diff", "archive", "restore", "with_archive", "export") else []
    )
    with pytest.raises(TypeError) as refusal:
        operation(str(store), *others, no_such_option=1)
    assert str(refusal.value) == f"{name}() got an unexpected keyword argument 'no_such_option'"


@pytest.mark.parametrize("options", [(), ("--limit", "1")])
def test_an_answer_prints_what_query_prints(store: Path, options: tuple[str, ...]) -> None:
    limit = int(options[1]) if options else None
    for key in ("order-103921", "no-such-key"):
        with open_store(store) as opened:
            found = opened.query("orders", key, limit=limit)
        ran = reput("query", store, "--topic", "orders", "--key", key, *options)
        assert ran.out.replace("--after", "after") == f"{found}\n"


def test_a_check_names_what_is_wrong_and_repair_mends_it(store: Path) -> None:
    assert check(store).is_valid
    broken = next((store / "consumequeue" / "orders").glob("*/*"))
    data = bytearray(broken.read_bytes())
    data[8:12] = b"\0\0\0\1"
    broken.write_bytes(data)
    seen: list[Any] = []
    found = check(store, on_finding=seen.append)
    assert not found.is_valid
    assert tuple(seen) == found.findings
    assert "wrong_queue_entry" in str(found)
    plan = repair(store, plan_only=True)
    assert not plan.is_done
    assert not check(store).is_valid
    done = repair(store)
    assert done.is_done
    assert check(store).is_valid
    undone = undo_repair(store)
    assert not check(store).is_valid
    assert undone.as_dict()["undone"] == 1
    assert str(undone) == f"Undone; the repaired state is in {store}.reput-repair/1/undone"


def test_a_rebuild_elsewhere_and_what_differs(store: Path, tmp_path: Path) -> None:
    done = rebuild(store, output=tmp_path / "new")
    assert (done.messages, done.damage) == (19_622, [])
    assert str(done).startswith(f"Rebuilt {tmp_path / 'new'} in ")
    stays_as_it_is(done, "messages")
    other = copy_store(store, tmp_path / "other")
    assert diff(store, other).is_same
    log = sorted((other / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    found = diff(store, other)
    assert not found.is_same
    assert str(found).splitlines()[-1] == "The stores differ."


def test_keys_tails_exports_and_pages(store: Path, tmp_path: Path) -> None:
    keys = [("orders", "order-103921"), ("orders", "no such key")]
    for runner in ("auto", "serial"):
        rows = look_up(store, keys, runner=runner).read_all().to_pylist()
        assert [row["key"] for row in rows if row["physical_offset"] is None] == ["no such key"]
    last = tail(store, 3, topic="orders")
    assert [message.topic for message in last] == ["orders"] * 3
    assert len(last) == 3
    written = export(store, tmp_path / "lines.jsonl", to="jsonl")
    stays_as_it_is(written, "rows")
    assert written.rows == len((tmp_path / "lines.jsonl").read_bytes().splitlines()) == 19_622
    table = export(str(store), tmp_path / "table")
    assert table.committed
    page = report(store, quick=True)
    assert page.is_valid
    assert "<html" in page.html()


def stays_as_it_is(report: Any, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(report, field, 7)
    copied = pickle.loads(pickle.dumps(report))
    assert copied == report
    with pytest.raises(FrozenInstanceError):
        setattr(copied, field, 7)


def test_arguments_that_cannot_be_right_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pass one of key and message_id"):
        trace(store)
    with pytest.raises(UsageError, match="split_bytes: cannot be used with jsonl"):
        export(store, tmp_path / "lines.jsonl", to="jsonl", split_bytes=1 << 20)
    with pytest.raises(UsageError, match="runner 'dask'"):
        check(store, runner="dask")
