"""Every public operation, and the sizes of stores with which its cost may grow."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import reput
from reput.base.config import StoreConfig
from reput.engine.check.run import check_store
from reput.engine.rebuild.driver import rebuild_store
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import ExportRequest
from reput.wings.lakes.tables.opening import open_table
from tests.growth.counts import Counts, PicklingRunner
from tests.growth.stores import FILE_BYTES

Run = Callable[[Sequence[Path], Path, Counts], object]
_BODY = bytes(3300)


class Dimension(NamedTuple):
    """A size of stores: how stores of size n are written, and the smallest n that is measured."""

    least: int
    write: Callable[[Path, int], Sequence[Path]]


class Operation(NamedTuple):
    """A public operation.

    names       public functions, methods, commands and requests that do this
    run         does it to stores, writing into a new folder
    dimensions  the dimensions with which its cost may grow
    """

    names: tuple[str, ...]
    run: Run
    dimensions: tuple[str, ...]


def _write(
    path: Path, count: int, *, queues: int = 1, items: int = 100_000, body: bytes = b"x" * 40,
    file_bytes: int = 1 << 22, key: str | None = None,
) -> Sequence[Path]:  # fmt: skip
    config = StoreConfig(
        commit_log_file_bytes=file_bytes, queue_entries=5000, hash_slots=5000, index_items=items + 1
    )
    with reput.open_store(path, mode="rw", config=config) as store:
        store.put_many(
            reput.Message(f"T{number % queues}", body, keys=[key or f"k{number}"], queue_id=0)
            for number in range(count)
        )
    return [path]


def _write_all(path: Path, count: int) -> Sequence[Path]:
    return _write(path, count, queues=count, items=5, body=_BODY, file_bytes=FILE_BYTES)


def _many(path: Path, count: int) -> Sequence[Path]:
    (first,) = _write(path / "0", 20)
    return [first, *(Path(shutil.copytree(first, path / str(n))) for n in range(1, count))]


DIMENSIONS: dict[str, Dimension] = {
    "log files": Dimension(40, partial(_write, body=_BODY, file_bytes=FILE_BYTES)),
    # As many queues as log files, and a fifth as many IndexFiles.
    "all files": Dimension(40, _write_all),
    "queues": Dimension(50, lambda path, count: _write(path, 2 * count, queues=count)),
    "IndexFiles": Dimension(20, lambda path, count: _write(path, 5 * count, items=5)),
    "messages": Dimension(1000, _write),
    "messages of the key": Dimension(250, partial(_write, key="k0")),
    "stores": Dimension(8, _many),
}
_SIZES = ("log files", "all files", "queues", "IndexFiles", "messages")
_ALL = (*_SIZES, "stores")


def _query(stores: Sequence[Path], _: Path, __: Counts) -> None:
    for path in stores:
        with reput.open_store(path) as store:
            assert store.query("T0", "k0").is_complete


def _by_tags(stores: Sequence[Path], _: Path, __: Counts) -> None:
    for path in stores:
        with reput.open_store(path) as store:
            assert store.find_by_tags("T0", "t").is_complete


def _pull(stores: Sequence[Path], _: Path, __: Counts) -> None:
    for path in stores:
        with reput.open_store(path) as store:
            assert store.pull("T0", 0, 0, 32).messages


def _put(stores: Sequence[Path], _: Path, __: Counts) -> None:
    for path in stores:
        with reput.open_store(path, mode="rw") as store:
            store.put(reput.Message("T0", b"x"))


def _expire(stores: Sequence[Path], _: Path, __: Counts) -> None:
    for path in stores:
        with reput.open_store(path, mode="rw") as store:
            store.expire(1 << 60)


def _archive_all(stores: Sequence[Path], work: Path, counts: Counts) -> None:
    for number, store in enumerate(stores):
        archive = work / str(number)
        reput.archive(store, archive)
        reput.verify_archive(archive)
        reput.restore(archive, f"{archive}-restored")


def _erase(stores: Sequence[Path], work: Path, _: Counts) -> None:
    report = reput.erase(stores[0], work / "erased", keys=["k0"])
    reput.verify_erasure(report.audit, work / "erased")


def _export(stores: Sequence[Path], work: Path, counts: Counts) -> None:
    table = open_table(str(work / "table"), "parquet")
    sources = open_stores([str(store) for store in stores])
    export_sources(sources, table, ExportRequest(), lambda _: PicklingRunner(counts))


def _dataset(stores: Sequence[Path], _: Path, __: Counts) -> None:
    reput.dataset(stores).to_table()


def _dataset_of_key(stores: Sequence[Path], _: Path, __: Counts) -> None:
    assert reput.dataset(stores, topic="T0", key="k0").to_table().num_rows


def _repair(stores: Sequence[Path], _: Path, counts: Counts) -> None:
    for store in stores:
        shutil.rmtree(store / "index")
        reput.repair(store, runner="serial")
        reput.undo_repair(store)


def _each(function: Callable[..., object], **options: object) -> Run:
    def run(stores: Sequence[Path], work: Path, counts: Counts) -> None:
        for store in stores:
            function(store, **options)

    return run


def _check(stores: Sequence[Path], _: Path, counts: Counts) -> None:
    for store in stores:
        assert not list(check_store(store, runner=PicklingRunner(counts)))


def _rebuild(stores: Sequence[Path], _: Path, counts: Counts) -> None:
    for store in stores:
        rebuild_store(PicklingRunner(counts), store)


OPERATIONS: dict[str, Operation] = {
    "query of a key": Operation(("query", "find", "QUERY_MESSAGE"), _query, (*_ALL, "messages of the key")),
    "query by tags": Operation(("find_by_tags",), _by_tags, (*_SIZES, "messages of the key")),
    "pull": Operation(("pull", "PULL_MESSAGE"), _pull, _SIZES),
    "tail": Operation(("tail",), _each(reput.tail, count=3), _ALL),
    "trace": Operation(("trace",), lambda stores, *_: reput.trace(stores, key="k0"), _ALL),
    "quick check": Operation(("check",), _each(reput.check, quick=True), _ALL),
    "check": Operation(("check",), _check, _ALL),
    "prove": Operation(("prove",), _each(reput.prove), _SIZES),
    "stats": Operation(("stats", "fleet"), _each(reput.stats), _ALL),
    "report": Operation(("report",), _each(reput.report, quick=True), _SIZES),
    "inspect": Operation(("inspect",), _each(reput.inspect), _ALL),
    "lag": Operation(("lag", "state"), _each(reput.lag), _SIZES),
    "diff": Operation(("diff",), lambda stores, *_: reput.diff(stores[0], stores[-1]), _SIZES),
    "rebuild": Operation(("rebuild",), _rebuild, _ALL),
    "repair": Operation(("repair", "undo_repair"), _repair, _SIZES),
    "put of a message": Operation(("put", "open_store", "recover"), _put, _SIZES),
    "expiry": Operation(("expire",), _expire, _SIZES),
    "archive, verify, restore": Operation(
        ("archive", "verify_archive", "restore", "with_archive"), _archive_all, _SIZES
    ),
    "export": Operation(("export",), _export, _ALL),
    "look-up": Operation(
        ("look_up", "lookup"), lambda stores, *_: reput.look_up(stores, ["k0"], runner="serial").read_all(),
        (*_ALL, "messages of the key"),
    ),
    "dataset": Operation(("dataset",), _dataset, _ALL),
    "dataset of a key": Operation(("dataset",), _dataset_of_key, (*_ALL, "messages of the key")),
    "erase": Operation(("erase", "verify_erasure"), _erase, _SIZES),
}  # fmt: skip

_SAMPLES = "64 samples of 1 MiB find the topics of a log, however long it is"
EXCEPTIONS: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("trace", "all files"): (
        ("lines", "calls"),
        "a key without a topic is searched under each topic in each IndexFile: the product of both",
    ),
    ("trace", "queues"): (("moved",), _SAMPLES),
    ("trace", "IndexFiles"): (("moved",), _SAMPLES),
}
"""Kinds of cost of an operation and a dimension that may seem to grow faster, each with the reason."""

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        ("Message", "MessageExt", "NamedStore", "ReputError", "StoreConfig", "WriterSettings",
         "WritableStore", "MessageStore", "IndexFile", "ConsumeQueue"), "a type"),
    "show": "one record by its place", "serve": "its requests are listed",
    "compact-table": "files of a table, not of a store", "help": "text", "warm-up": "compiles",
    "completion": "text",
    "LITE_PULL_MESSAGE": "as PULL_MESSAGE", "VIEW_MESSAGE_BY_ID": "one record by its place",
    "SEARCH_OFFSET_BY_TIMESTAMP": "a search in one queue by bisection",
    "GET_MIN_OFFSET": "the begin of one queue",
}  # fmt: skip
"""Public names that no operation has, each with the reason. Requests that read no messages need none."""
