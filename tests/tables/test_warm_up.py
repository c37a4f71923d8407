"""Kernels of the table are compiled once on a machine, for all processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reput.engine.messages.schema import COLUMNS
from reput.engine.tables import warm_up
from reput.kernels import compile_cache
from reput.kernels.compile_cache import compiling

KERNELS = Path(compile_cache.__file__).parent


def test_reading_needs_the_parts_of_its_columns() -> None:
    assert warm_up.parts_of(["store", "size"]) == ("scan",)
    assert warm_up.parts_of(COLUMNS.names) == warm_up.ALL_PARTS == ("scan", "columns")
    for names in warm_up._KERNELS.values():
        for name in names:
            module, _, function = name.partition(".")
            assert f"def {function}(" in (KERNELS / f"{module}.py").read_text()


def test_what_is_compiled_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(warm_up, "_done", set())
    monkeypatch.setattr(
        warm_up, "_WARM_UPS", {part: lambda p=part: done.append(p) for part in warm_up.ALL_PARTS}
    )
    monkeypatch.setattr(warm_up, "is_compiled", lambda parts: True)
    warm_up.compile_now(warm_up.ALL_PARTS)
    assert done == []
    monkeypatch.setattr(warm_up, "_done", set())
    monkeypatch.setattr(warm_up, "is_compiled", lambda parts: False)
    monkeypatch.setattr(warm_up, "compile_meanwhile", lambda parts: bool(parts))
    for _ in range(2):
        warm_up.compile_now(warm_up.ALL_PARTS)
    assert done == ["scan", "columns"], "a process without a cache keeps them in memory"


def test_one_process_compiles_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compile_cache.NUMBA_VARIABLE, str(tmp_path / "cache"))
    code = (
        "import sys\nfrom reput.kernels.compile_cache import compiling\n"
        "print('asks', flush=True)\nwith compiling('scan'): print('has it', flush=True)"
    )
    with compiling("scan"), compiling("columns"):
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "asks\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=0.3)
    assert other.communicate(timeout=60)[0] == "has it\n"


@pytest.mark.slow
@pytest.mark.parametrize("part", warm_up._KERNELS)
def test_a_process_compiles_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with monkeypatch.context() as empty:
        empty.setenv(compile_cache.NUMBA_VARIABLE, str(tmp_path))
        if warm_up.is_compiled():
            pytest.skip("all kernels are compiled beside the package")
    environment = os.environ | {compile_cache.NUMBA_VARIABLE: str(tmp_path)}
    subprocess.run(
        [sys.executable, "-m", "reput.engine.tables.warm_up", part], check=True, env=environment
    )
    monkeypatch.setenv(compile_cache.NUMBA_VARIABLE, str(tmp_path))
    assert warm_up.is_compiled([part])
    assert not warm_up.is_compiled()
