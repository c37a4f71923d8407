"""Exports into buckets that are killed at any moment and run again: every row once, in tables of all three formats."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reput.errors import StoreAccessError
from reput.lakes.comparing import diff_export
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import offsets
from tests.remote.lake_buckets import Lake
from tests.remote.s3_server import faulty_process, s3_process, upload_whole

pytest.importorskip("obstore")
pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("REPUT_KILLS", "20"))
"""Of each format."""
_STEP, _SPLIT = 1_000_000, 500_000
_LONGEST_S = 3.0
_REFUSED = 7

Golden = Callable[[str], GoldenStore]
Options = dict[str, str]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    with s3_process() as options:
        upload_whole(tmp_path_factory.mktemp("empty"), "kills", options)
        yield options


def _export(lake: Lake, store: Path) -> None:
    lake.export(
        store, incremental=True, commit_every=_STEP, split_bytes=_SPLIT, partition_by=("topic",)
    )


def _killed(lake: Lake, store: Path, chance: random.Random) -> str:
    """Export in a child; returns "killed", "done", or "failed" after an error that a server's faults explain."""
    child = os.fork()
    if child == 0:
        try:
            _export(lake, store)
            os._exit(0)
        except StoreAccessError:
            os._exit(_REFUSED)
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
    until = time.monotonic() + chance.uniform(0, _LONGEST_S)
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            assert code in (0, _REFUSED), code
            return "failed" if code else "done"
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "killed"


@pytest.mark.parametrize("layout", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("is_faulty", [False, True])
def test_every_row_is_there_once(
    golden: Golden, s3: Options, tmp_path: Path, layout: str, is_faulty: bool
) -> None:
    store, chance, kills, tables = golden("orders"), random.Random(layout), 0, 0
    expected = [message.physical_offset for message in store.messages]
    with faulty_process(s3, 11) as faulty:
        while kills < KILLS // 2:
            tables += 1
            url = f"s3://kills/{layout}-{is_faulty}-{tables}/messages"
            lake = Lake(url, s3, layout, tmp_path / f"{tables}.db")
            through = replace(lake, options=faulty) if is_faulty else lake
            while kills < KILLS // 2 and (end := _killed(through, store.path, chance)) != "done":
                kills += end == "killed"
            _finish(lake, store.path)
            _check(lake, store, expected)
    print(f"{layout}: {kills} kills, {tables} tables, {len(expected) * tables} rows compared")


def _finish(lake: Lake, store: Path) -> None:
    """Run once more in a child, to the end: this process must stay free of threads, as it forks."""
    child = os.fork()
    if child == 0:
        try:
            _export(lake, store)
            os._exit(0)
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _check(lake: Lake, store: GoldenStore, expected: list[int]) -> None:
    """Compare every row with the store, in a child."""
    child = os.fork()
    if child == 0:
        try:
            found = diff_export(str(store.path), lake.open())
            assert found.is_same, found
            assert offsets(lake.rows()) == expected
            assert lake.is_tidy(), lake.names()
            os._exit(0)
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
