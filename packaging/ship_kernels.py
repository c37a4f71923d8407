"""Compile all kernels for each level of processors of this machine, for the wheel.

python packaging/ship_kernels.py [PYTHON...]

Each PYTHON is an interpreter with reput's dependencies; without one, this interpreter compiles. The kernels of one
numba and one Python version go to `src/reput/kernels/compiled/numba-VERSION-pyXY/LEVEL`. A wheel may hold several.
Kernels that an earlier run compiled from the same sources stay.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SHOW = """
import platform
from reput.kernels.compile_cache import LEVELS, release
print(release())
for level in LEVELS.get(platform.machine().replace("arm64", "aarch64"), ()):
    print(level.name, level.compiled_with)
"""


def main(pythons: list[str]) -> int:
    for python in pythons or [sys.executable]:
        source = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        shown = subprocess.run(
            [python, "-c", _SHOW],
            env=os.environ | source,
            check=True,
            capture_output=True,
            text=True,
        )
        (release,), *levels = map(str.split, shown.stdout.splitlines())
        if not levels:
            print(
                f"no level is known for {platform.machine()}: its users compile kernels themselves"
            )
        for level in levels:
            name, features = (*level, "")[:2]
            folder = ROOT / "src" / "reput" / "kernels" / "compiled" / release / name
            settings = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
            # Compiling takes minutes of processor time, so kernels of the same sources are kept.
            stamp = ROOT / "build" / "kernels" / f"{release}-{name}.txt"
            if not (stamp.exists() and stamp.read_text() == state_of(folder)):
                stamp.unlink(missing_ok=True)
                compile_into(folder, python, source | settings)
                stamp.parent.mkdir(parents=True, exist_ok=True)
                stamp.write_text(state_of(folder))
            size = sum(path.stat().st_size for path in folder.iterdir())
            print(
                f"{folder.relative_to(ROOT)}: {len(list(folder.glob('*.nbi')))} kernels, {size:,} bytes"
            )
    return 0


def state_of(folder: Path) -> str:
    """Return a digest of the package's sources, any of which may decide what is compiled, and the number of kernels."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return f"{digest.hexdigest()} {len(list(folder.glob('*.nb?')))}"


def compile_into(folder: Path, python: str, settings: dict[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as cache:
        # Copy the package without compiled kernels, because numba would not compile an existing kernel again.
        bare = Path(cache, "src")
        shutil.copytree(
            ROOT / "src", bare, ignore=shutil.ignore_patterns("compiled", "__pycache__")
        )
        settings |= {"PYTHONPATH": str(bare), "NUMBA_CACHE_DIR": str(Path(cache, "kernels"))}
        subprocess.run([python, "-m", "reput", "warm-up"], env=os.environ | settings, check=True)
        for path in Path(cache, "kernels").glob("reput-*/*.nb[ic]"):
            shutil.copy(path, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
