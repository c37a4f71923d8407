"""`reput warm-up`: nothing is left to compile for the commands that follow."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.cli.running import SIZES, reput_process
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_after_it_no_command_compiles_a_kernel(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    """The wheel ships the kernels that `warm-up` compiles. Users would have to wait for any other kernel."""

    def compiled() -> set[str]:
        return {path.name for path in (tmp_path / "cache").rglob("*.nb[ic]")}

    package = tmp_path / "site" / "reput"
    without = shutil.ignore_patterns("__pycache__", "compiled")
    shutil.copytree(Path(reput.__file__).parent, package, ignore=without)
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(package.parent),
        "XDG_CACHE_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    ran = reput_process("warm-up", env=environment)
    assert (ran.code, ran.err) == (0, "")
    before = compiled()
    assert len(before) > 100
    store, lines = copy_store(golden("orders").path, tmp_path / "store"), tmp_path / "some.jsonl"
    (tmp_path / "keys.csv").write_text("topic,key\norders,order-100377\norders,none\n")
    look_up = ("lookup", store, "--keys", tmp_path / "keys.csv", "--output")
    left = {}
    for command in (
        ("rebuild", store, "--output", tmp_path / "rebuilt"),
        ("rebuild", store, "--runner", "spark", "--master", "local[1]"),
        ("check", store),
        ("stats", store),
        ("report", store, "--output", tmp_path / "report.html"),
        ("query", store, "--topic", "orders", "--key", "order-100377"),
        (
            "query",
            store,
            "--topic",
            "orders",
            "--key",
            "order-100377",
            "--index",
            tmp_path / "rebuilt",
        ),
        ("trace", store, "--key", "order-100377"),
        ("tail", store, "--lines", "100", "--format", "jsonl"),
        (*look_up, "-"),
        (*look_up, "-", "--format", "csv"),
        (*look_up, tmp_path / "found"),
        ("export", store, tmp_path / "table"),
        ("export", store, lines, "--to", "jsonl", "--topic", "refunds"),
        ("put", tmp_path / "mine", lines, *SIZES),
        ("put", store, "--topic", "t", "--key", "k", "--body", "b"),
        ("recover", store),
        ("prove", store),
    ):
        ran = reput_process(*command, env=environment)
        assert ran.code == 0, (command, ran.err)
        left[command[:1] + command[2:]] = compiled() - before
        before = compiled()
    assert {command: names for command, names in left.items() if names} == {}
