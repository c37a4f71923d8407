"""`reput warm-up`: nothing is left to compile for the commands that follow."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import reput_process
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore


@pytest.mark.slow
def test_after_it_no_command_compiles_a_kernel(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    def compiled() -> set[str]:
        return {path.name for path in (tmp_path / "cache").rglob("*.nb[ic]")}

    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    ran = reput_process("warm-up", env=cache)
    assert (ran.code, ran.err) == (0, "")
    before = compiled()
    assert len(before) > 40
    store = copy_store(golden("basic").path, tmp_path / "store")
    for command in (
        ("rebuild", store, "--master", "local[1]"),
        ("put", store, "--topic", "t", "--key", "k", "--body", "b"),
        ("recover", store),
        ("prove", store),
        ("export", store, tmp_path / "table", "--master", "local[1]"),
    ):
        ran = reput_process(*command, env=cache)
        assert ran.code == 0, ran.err
        assert compiled() == before, command[0]
