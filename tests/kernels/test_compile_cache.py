"""Kernels compile where nothing but the temporary folder can be written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput

_SHOW = """
import os
from reput.kernels.java_hash import __name__ as module
from reput.kernels import checksum
import numba
print(numba.config.CACHE_DIR)
"""
# Root may write everywhere unless it gives this up.
_UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]


def _run(package: Path, home: Path, temporary: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root writes everywhere, and there is no setpriv")
        command = [*_UNPRIVILEGED, *command]
    kept = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command,
        env={**kept, "PYTHONPATH": str(package), "HOME": str(home), "TMPDIR": str(temporary)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Path]:
    """A folder with a copy of reput that cannot be written, and a home that cannot either."""
    package = tmp_path / "site"
    shutil.copytree(
        Path(reput.__file__).parent, package / "reput", ignore=shutil.ignore_patterns("*.nb?")
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
    done = _run(sealed / "site", sealed / "home", sealed / "tmp", _SHOW)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert folder.parent == sealed / "tmp"
    assert not folder.exists(), "it is deleted when the process ends"
    (line,) = done.stderr.splitlines()
    assert "no writable place to cache compiled kernels" in line
    assert "NUMBA_CACHE_DIR" in line


def test_a_cache_of_the_users_own_is_used_in_silence(sealed: Path) -> None:
    (sealed / "home").chmod(0o755)
    done = _run(sealed / "site", sealed / "home", sealed / "tmp", _SHOW)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    assert (sealed / "home" / ".cache" / "numba").is_dir()
    assert not list((sealed / "tmp").iterdir())


def test_what_the_image_brings_compiled_is_not_compiled_again(sealed: Path) -> None:
    kernels = sealed / "site" / "reput" / "kernels"
    cache = kernels / "__pycache__"
    kernels.chmod(0o755)
    cache.mkdir(exist_ok=True)
    cache.chmod(0o755)
    (cache / "anything-1.py311.nbi").write_bytes(b"index")
    (cache / "anything-1.py311.1.nbc").write_bytes(b"code")
    cache.chmod(0o555)
    kernels.chmod(0o555)
    code = (
        "import os, numba\nimport reput.kernels\n"
        "from numba.core.caching import UserProvidedCacheLocator as L\n"
        "import reput.kernels.rows as rows\n"
        "print(sorted(os.listdir(os.path.join(os.environ['NUMBA_CACHE_DIR'], "
        "L.get_suitable_cache_subpath(rows.__file__)))))\n"
    )
    done = _run(sealed / "site", sealed / "home", sealed / "tmp", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['anything-1.py311.1.nbc', 'anything-1.py311.nbi']"


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
        Path(reput.__file__).parent, package / "reput", ignore=shutil.ignore_patterns("__pycache__")
    )

    def called() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", _CALL],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "HOME": str(tmp_path)},
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
