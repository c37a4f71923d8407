"""Fixtures for every test: the golden stores."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.golden.stores import GoldenLibrary, GoldenStore, StoreNotHereError, TornCase

# The first example of a test compiles kernels or unpacks a store: that is not slowness.
settings.register_profile("reput", deadline=None)
settings.load_profile("reput")


@pytest.fixture(scope="session")
def golden_library(tmp_path_factory: pytest.TempPathFactory) -> GoldenLibrary:
    """All golden stores, each unpacked on first use, once for the session."""

    def new_folder() -> Path:
        return tmp_path_factory.mktemp("golden")

    return GoldenLibrary(new_folder)


@pytest.fixture(scope="session")
def golden(golden_library: GoldenLibrary) -> Callable[[str], GoldenStore]:
    """`golden(name)`: that golden store, read only; skips where it is not on this machine."""

    def store(name: str) -> GoldenStore:
        try:
            return golden_library.store(name)
        except StoreNotHereError as missing:
            pytest.skip(str(missing))

    return store


@pytest.fixture(scope="session")
def torn(golden_library: GoldenLibrary) -> Callable[[str], TornCase]:
    """`torn(case)`: that damaged golden store, read only; skips where it is not on this machine."""

    def case(name: str) -> TornCase:
        try:
            return golden_library.torn(name)
        except StoreNotHereError as missing:
            pytest.skip(str(missing))

    return case
