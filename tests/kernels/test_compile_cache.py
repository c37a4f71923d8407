"""Kernels compile where nothing but the temporary folder can be written."""

import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from reput.kernels.compile_cache import LEVELS, release

_CALL_CRC = """
import os
import numba
import numpy as np
before = dict(os.environ)
from reput import kernels
from reput.kernels.checksum import crc32_after
kernels.on_compile.append(print)
data = np.frombuffer(bytearray(b"123456789"), np.uint8)
assert crc32_after(data, 0, 9, 0) == 0xCBF43926
from reput.kernels.compile_cache import own_folder
assert numba.config.CACHE_DIR == "" and "NUMBA_CACHE_DIR" not in os.environ
print(own_folder(), sum(crc32_after.stats.cache_hits.values()))
"""
# Root may write everywhere, so the test drops this privilege.
_UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]


# Some installations of Python, such as those of GitHub's runners, find their own library only by the second variable.
_STARTS_PYTHON = {
    name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
}


def _run(
    package: Path, home: Path, temporary: Path, code: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root writes everywhere, and there is no setpriv")
        command = [*_UNPRIVILEGED, *command]
    return subprocess.run(
        command,
        env={
            **_STARTS_PYTHON, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(package), "HOME": str(home),
            "TMPDIR": str(temporary), **variables,
        },
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Path]:
    """A read-only folder with a copy of reput, and a read-only home."""
    package = tmp_path / "site"
    shutil.copytree(
        Path(reput.__file__).parent,
        package / "reput",
        ignore=shutil.ignore_patterns("*.nb?", "compiled"),
    )
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    for folder in [package, *package.rglob("*"), tmp_path / "home"]:
        if folder.is_dir():
            folder.chmod(0o555)
    yield tmp_path
    for folder in [package, *package.rglob("*"), tmp_path / "home"]:
        if folder.is_dir():
            folder.chmod(0o755)


def test_a_private_temporary_cache_serves_and_is_announced_once(sealed: Path) -> None:
    done = _run(sealed / "site", sealed / "home", sealed / "tmp", _CALL_CRC)
    assert done.returncode == 0, done.stderr
    compiled, shown = done.stdout.splitlines()
    folder = Path(shown.split()[0])
    assert (compiled, folder.parent) == ("crc32_after", sealed / "tmp")
    assert not folder.exists(), "it is deleted when the process ends"
    (line,) = done.stderr.splitlines()
    assert "no writable folder for compiled kernels" in line
    assert "NUMBA_CACHE_DIR" in line


def test_a_cache_of_the_users_own_is_used_in_silence(sealed: Path) -> None:
    (sealed / "home").chmod(0o755)
    first, second = (
        _run(sealed / "site", sealed / "home", sealed / "tmp", _CALL_CRC) for _ in range(2)
    )
    cache = sealed / "home" / ".cache" / "reput" / "kernels"
    assert [line.split()[-1] for line in first.stdout.splitlines()] == ["crc32_after", "0"]
    assert first.stderr == second.stderr == ""
    shown = second.stdout.split()
    assert (Path(shown[0]).parent, shown[1:]) == (cache, ["1"]), (
        "the second process compiles nothing"
    )
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not list((sealed / "tmp").iterdir())


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_cache_that_others_may_write_is_not_used(sealed: Path, mode: int) -> None:
    """Files of the cache contain code that is executed."""
    (sealed / "home").chmod(0o755)
    cache = sealed / "home" / ".cache" / "reput" / "kernels"
    cache.mkdir(parents=True)
    cache.chmod(mode)
    done = _run(sealed / "site", sealed / "home", sealed / "tmp", _CALL_CRC)
    assert done.returncode == 0, done.stderr
    assert list(cache.iterdir()) == []
    assert "no writable folder" in done.stderr


@pytest.mark.parametrize("place", ["__pycache__", "compiled"])
def test_kernels_that_the_package_brings_are_not_compiled_again(sealed: Path, place: str) -> None:
    """Kernels compiled beside the sources are for exactly this processor, shipped ones for a level of processors."""
    kernels = sealed / "site" / "reput" / "kernels"
    target, settings = kernels / place, {}
    if place == "compiled":
        if not (levels := LEVELS.get(platform.machine().replace("arm64", "aarch64"))):
            pytest.skip("no level is known for this machine")
        level = levels[-1]
        target = target / release() / level.name
        settings = {"NUMBA_CPU_NAME": level.name, "NUMBA_CPU_FEATURES": level.compiled_with}
    cache = sealed / "tmp" / "compiled"
    cache.mkdir()
    building = _run(
        sealed / "site", sealed / "home", sealed / "tmp",
        _CALL_CRC.replace("assert numba", "#"), NUMBA_CACHE_DIR=str(cache), **settings,
    )  # fmt: skip
    assert building.returncode == 0, building.stderr
    for folder in (kernels, kernels / "__pycache__"):
        folder.chmod(0o755)
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(next(cache.iterdir()), target)
    code = _CALL_CRC.replace("print(own_folder(), ", "print(")
    done = _run(sealed / "site", sealed / "home", sealed / "tmp", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


_CALL = """
import numpy as np
from reput.kernels import jit
from reput.kernels.property_columns import find_spans, SPANS_DTYPE
import reput.kernels.properties_scan as scan
parts = np.zeros(1, [("properties", "i8"), ("properties_bytes", "i8")])
data = np.frombuffer(b"KEYS\\1ab\\2TAGS\\1xyz" + bytes(64), np.uint8)
parts["properties_bytes"] = 16
found = np.zeros(1, SPANS_DTYPE)
find_spans(data, parts, found)
print(found["keys_bytes"][0], found["tags_bytes"][0], sum(find_spans.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_kernel_is_compiled_anew_where_only_what_it_calls_has_changed(tmp_path: Path) -> None:
    package = tmp_path / "site"
    shutil.copytree(
        Path(reput.__file__).parent,
        package / "reput",
        ignore=shutil.ignore_patterns("__pycache__", "compiled"),
    )

    def called() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", _CALL],
            env={**_STARTS_PYTHON, "PYTHONPATH": str(package), "HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=600, check=True,
        )  # fmt: skip
        return done.stdout.split()

    assert called() == ["2", "3", "0"]
    assert called() == ["2", "3", "1"]
    inlined = package / "reput" / "kernels" / "properties_scan.py"
    source = inlined.read_text()
    changed = source.replace('b"TAGS"', 'b"TAGZ"')
    assert changed != source
    inlined.write_text(changed)
    assert called() == ["2", "0", "0"]
