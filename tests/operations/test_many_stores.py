"""Operations take one store or many: one report of all, and the errors of each."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.core.query.answers import QueryResult
from reput.core.query.message_store import MessageStore
from reput.engine.stores import FindRequest, find_by, open_named, over_stores
from reput.errors import StoreAccessError, StoreChangedError, StoreNotFoundError, UsageError
from reput.reports import CheckReport, StoreAnswer, StoresReport
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
KEY = "order-103921"  # eight messages of `orders` have it


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    """`orders` and `tricky` as stores of two brokers."""
    for name in ("orders", "tricky"):
        copy_store(golden(name).path, tmp_path / name)
    return tmp_path


def test_each_store_has_a_report_and_one_that_is_missing_an_error(folder: Path) -> None:
    gone = str(folder / "gone")
    seen: list[StoreAnswer[CheckReport]] = []
    given = [str(folder / "tricky"), gone, str(folder / "orders")]
    found = over_stores(reput.check, given, on_answer=seen.append, quick=True)
    assert [answer.store for answer in found] == given == [answer.store for answer in seen]
    assert found[given[2]] == reput.check(given[2], quick=True)
    assert isinstance(found.answers[1].error, StoreNotFoundError)
    assert (found.is_complete, found.is_valid, len(found.failed)) == (False, False, 1)
    assert str(found).splitlines()[0].startswith(f"{gone}    not read  not a RocketMQ store")
    assert "3 stores: 1 not read, 2 ok; 9,240,576 bytes of CommitLog" in repr(found)
    total = json.loads(json.dumps(found.as_dict()))["total"]
    assert (total["stores"], total["failed"], total["is_complete"]) == (3, 1, False)
    assert total["log_bytes"] == sum(row["log_bytes"] for row in found.coverage()) > 6_000_000
    with pytest.raises(KeyError):
        found[gone]


def test_damage_of_one_store_is_not_that_of_another(folder: Path) -> None:
    queues = (folder / "tricky" / "consumequeue").glob("*/*/*")
    queue = min(queues)
    queue.unlink()
    found = reput.check([folder / "*r*"], quick=False)
    assert isinstance(found, StoresReport)
    assert (len(found), found.is_complete, found.is_valid) == (2, True, False)
    assert found[str(folder / "orders")].is_valid
    assert not found[str(folder / "tricky")].is_valid


def test_a_replica_counts_in_place_of_a_store_that_was_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_store(folder / "orders", folder / "slave")
    stores = [
        reput.NamedStore(name, str(folder / path), cluster="c", broker="b", broker_id=number)
        for number, (name, path) in enumerate({"a": "orders", "a-slave": "slave"}.items())
    ]

    def measured(store: str, **_: object) -> reput.reports.StatsReport:
        if store.endswith("orders"):
            raise StoreChangedError(f"{store}: became shorter")
        return reput.stats(store)

    found = over_stores(measured, stores, runner="serial")
    assert (found.answers[0].report, dict(found.replica_of)) == (None, {"a-slave": "a"})
    assert [one.store for one in found.counted] == ["a-slave"]
    assert found.log_bytes == found.answers[1].log_bytes > 6_000_000
    both = over_stores(reput.stats, stores, runner="serial")
    assert [one.store for one in both.counted] == ["a"]

    def opened(store: reput.NamedStore, **_: object) -> object:
        if store.name == "a":
            raise StoreChangedError("became shorter")
        return open_named(store)

    monkeypatch.setattr("reput.wings.inspect.trace_operation.open_named", opened)
    traced = reput.trace(stores, key=KEY)
    assert (traced.stores, dict(traced.replica_of), traced.is_complete) == (("a-slave",), {}, False)
    assert len(traced.life.events) == 8


def test_a_store_that_fails_while_a_message_is_traced_makes_the_trace_incomplete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = MessageStore.search

    def failing(store: MessageStore, *args: Any, **options: Any) -> QueryResult:
        if store.path.endswith("tricky"):
            raise StoreAccessError(f"{store.path}: cannot be read")
        return search(store, *args, **options)

    monkeypatch.setattr(MessageStore, "search", failing)
    found = reput.trace([folder / "tricky", folder / "orders"], key=KEY)
    assert (found.stores, found.is_complete) == ((str(folder / "orders"),), False)
    assert [one.store for one in found.failed] == [str(folder / "tricky")]
    assert len(found.life.events) == 8
    with pytest.raises(StoreAccessError):
        reput.trace([folder / "tricky"], key=KEY)


def test_processes_give_what_this_process_gives(folder: Path) -> None:
    stores = [folder / "orders", folder / "tricky"]
    here = reput.inspect(stores)
    there = over_stores(reput.inspect, stores, runner="processes")
    assert there.as_dict() == here.as_dict()


def test_a_store_comes_once_and_names_are_its_own(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "orders")
    found = reput.inspect([folder / "orders", folder / "link", f"{folder}/orders/"])
    assert [answer.path for answer in found] == [str(folder / "orders")]
    named = [reput.NamedStore("a", str(folder / name)) for name in ("orders", "tricky")]
    with pytest.raises(UsageError, match=r"orders and .*tricky have the same name a; rename"):
        reput.check(named)
    with pytest.raises(UsageError, match="name a store"):
        reput.check([])


def test_what_every_store_refuses_is_raised(folder: Path) -> None:
    stores = [folder / "orders", folder / "tricky"]
    with pytest.raises(UsageError, match="runner 'dask'"):
        reput.check(stores, runner="dask")
    with pytest.raises(UsageError, match="quick must be True or False"):
        reput.check(stores, quick="yes")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="output: works with one store only, not with 2"):
        reput.rebuild(stores, output=folder / "new")


def test_each_store_of_a_rebuild_has_an_output_of_its_own(folder: Path) -> None:
    named = [
        reput.NamedStore(name, str(folder / name), {"output": str(folder / "new" / name)})
        for name in ("orders", "tricky")
    ]
    found = reput.rebuild(named)
    assert found.is_complete
    assert found["orders"].messages == 19_622
    assert sorted(path.name for path in (folder / "new").iterdir()) == ["orders", "tricky"]


def test_a_key_is_found_in_all_stores(folder: Path) -> None:
    copy_store(folder / "orders", folder / "copy")
    alone = reput.find(folder / "orders", KEY)
    with reput.open_store(folder / "orders") as store:
        assert [one.message for one in alone] == list(store.query(None, KEY).messages)
    stores = [folder / "copy", folder / "orders", folder / "tricky", folder / "gone"]
    found = reput.find(stores, KEY)
    assert len(found) == 2 * len(alone) == 16
    times = [one.message.store_timestamp for one in found]
    assert times == sorted(times, reverse=True)
    assert {one.store for one in found} == {str(folder / "copy"), str(folder / "orders")}
    assert not found.is_complete
    assert found.headline == "16 messages in 2 of 4 stores; 1 store could not be read"
    total = found.total()
    assert (total["stores"], total["failed"], total["unreadable_bytes"]) == (4, 1, 0)
    assert total["log_bytes"] == sum(row["log_bytes"] for row in found.coverage())
    assert [row["is_complete"] for row in found.coverage()] == [True, True, True, False]
    json.dumps(found.as_dict())


def test_a_limit_leaves_the_newest_of_all_stores(folder: Path) -> None:
    stores = [folder / "orders", folder / "tricky"]
    every = reput.find(stores, KEY)
    few = reput.find(stores, KEY, limit=3)
    assert (few.messages, few.is_limited, every.is_limited) == (every.messages[:3], True, False)
    with pytest.raises(UsageError, match="limit must be at least 1"):
        reput.find(stores, KEY, limit=0)
    assert len(reput.find(stores, KEY, topic="shipments")) == 2


def test_damage_makes_the_answer_of_its_store_incomplete(folder: Path) -> None:
    log = min((folder / "orders" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(500_000)
        file.write(b"\xff" * 5000)
    for path in (folder / "orders" / "index").iterdir():
        path.unlink()  # all of the log has to be searched
    found = reput.find([folder / "orders", folder / "tricky"], KEY)
    assert not found.is_complete
    assert found.total()["unreadable_bytes"] > 4000
    assert "bytes could not be read" in found.headline


def test_forks_find_what_one_process_finds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[int] = []
    fork = os.fork

    def noted() -> int:
        forked.append(process := fork())
        return process

    monkeypatch.setattr("reput.engine.stores.stores._LEAST_OF_FORK", 1)
    monkeypatch.setattr("reput.engine.stores.forks.usable_cpus", lambda: 2)
    monkeypatch.setattr(os, "fork", noted)
    stores = [folder / "gone", folder / "orders", folder / "tricky", folder / "away"]
    asked = FindRequest.of(KEY, None, None, None, None, None, None)
    seen: list[str] = []
    found = find_by(
        stores, asked.answer, asked.limit, lambda answer: seen.append(answer.store), may_fork=True
    )
    assert len(forked) == 1
    alone = find_by(stores, asked.answer, asked.limit)
    assert len(forked) == 1
    assert (found.messages, list(found.summary())) == (alone.messages, list(alone.summary()))
    assert len(found.messages) == 8
    assert [str(one.error) for one in found.answers] == [str(one.error) for one in alone.answers]
    assert sorted(seen) == sorted(map(str, stores))
