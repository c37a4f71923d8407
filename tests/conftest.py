"""Fixtures for every test: the golden stores, and Spark."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from reput.base import tasks
from reput.io import stamps
from tests.attack import mark_attacks
from tests.browser import opened_browser
from tests.durations import Meter, mark_long
from tests.golden.stores import GoldenLibrary, GoldenStore, StoreNotHereError, TornCase, passed_over
from tests.privileges import ordinary_rights
from tests.scheduling import SPARK, ByFile, scope_of
from tests.slow import mark_fast, mark_sample, set_examples, thin_out

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    set_examples(config.getoption("--hypothesis-seed"))
    if config.getoption("xmlpath"):
        config.pluginmanager.register(Meter())


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect tests without the garbage collector, which would visit modules and tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thin_out(items)
    mark_sample(items, config.getoption("--hypothesis-seed") or "0")
    mark_attacks(items)
    mark_fast(items)
    mark_long(items)
    items.sort(key=lambda item: scope_of(item.nodeid) != SPARK)  # the longest tests begin first


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> Iterator[None]:
    """Give tests the same environment in a terminal and in a background job."""
    # A background job ignores SIGINT, and all processes that tests start would inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _short_pauses() -> Iterator[None]:
    """Repeat failed tasks of this process as often as usual, but after a hundredth of the usual pauses."""
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 100))
        patch.setattr(tasks, "time", clock)
        yield


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Let root meet the same refusals as every other user (`privileges.ordinary_rights`)."""
    with ordinary_rights():
        yield


@pytest.fixture(autouse=True)
def _own_tracebacks() -> Iterator[None]:
    """Restore tracebacks after each test.

    Readers of Spark's table disable tracebacks in their process, which normally is one of Spark's. A test that calls a
    reader directly would disable them for all later tests.
    """
    yield
    if hasattr(sys, "tracebacklimit"):
        del sys.tracebacklimit


@pytest.fixture(scope="module", autouse=True)
def _own_proofs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests of each file an empty cache folder, so that proofs of IndexFiles are not kept for other files.

    Proofs are saved also for stores on the file system of /tmp, which may be in memory or a container's overlay.
    """
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setattr(stamps, "_REPORTING", stamps._REPORTING | {stamps._file_system(str(cache))})
        patch.setenv("XDG_CACHE_HOME", str(cache))
        yield


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for one test alone: the folder of its saved proofs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "reput" / "proofs"


@pytest.fixture(scope="session")
def golden_library(tmp_path_factory: pytest.TempPathFactory) -> GoldenLibrary:
    """Unpack each golden store on first use, once for the session."""

    def new_folder() -> Path:
        return tmp_path_factory.mktemp("golden")

    return GoldenLibrary(new_folder)


@pytest.fixture(scope="session")
def golden(golden_library: GoldenLibrary) -> Callable[[str], GoldenStore]:
    """Return a function that returns a golden store by name. Tests must not change the store.

    If the store is not on this machine, the test is skipped, or fails in CI (`passed_over`).
    """

    def store(name: str) -> GoldenStore:
        try:
            return golden_library.store(name)
        except StoreNotHereError as missing:
            passed_over(missing)

    return store


@pytest.fixture(scope="session")
def torn(golden_library: GoldenLibrary) -> Callable[[str], TornCase]:
    """Return `torn(case)`, that damaged golden store, read only. If it is not on this machine, see `passed_over`."""

    def case(name: str) -> TornCase:
        try:
            return golden_library.torn(name)
        except StoreNotHereError as missing:
            passed_over(missing)

    return case


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as found:
        yield found


@pytest.fixture
def keys_csv(tmp_path: Path) -> Path:
    """Keys of the store `orders` to look up: two existing ones and a missing one."""
    path = tmp_path / "keys.csv"
    path.write_text(
        "topic,key,begin,note\n"
        "orders,order-100377,,a\n"
        "orders,customer-48,2026-10-17T00:00:00Z,b\n"
        "orders,nobody,,c\n"
    )
    return path


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark session with two worker processes for all tests. Commands in this process use it too."""
    from reput.spark.session import create_session

    # Spark waits for other tests most of the time, and must not wake up for housekeeping meanwhile.
    quiet = {"spark.cleaner.referenceTracking": "false", "spark.executor.heartbeatInterval": "60s"}
    session = create_session("local[2]", "reput-tests", quiet)
    yield session
    session.stop()
