"""Find compiled kernels, or find a folder in which to store them.

A kernel is looked for in this order:

  1. In the folder into which this process compiles: NUMBA_CACHE_DIR if the user has set it, else `__pycache__` beside
     the kernels, else the user's cache folder.
  2. In `__pycache__` beside the kernels, if that is another folder. Read-only images have their kernels there.
  3. Among the kernels that the package ships for a level of processors, such as x86-64-v3.

A kernel that is in none of these places is compiled. If no folder is writable, a private temporary folder holds it for
this process and its child processes. Neither NUMBA_CACHE_DIR nor any other setting of numba is changed: the process may
belong to another program, such as a notebook or a Spark executor.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from reput.base import is_out_of_reach

NUMBA_VARIABLE = "NUMBA_CACHE_DIR"
TEMPORARY_VARIABLE = "REPUT_KERNEL_CACHE"
"""Environment variable that passes the temporary folder to child processes."""

KERNELS = Path(__file__).parent
SHIPPED = KERNELS / "compiled"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_log = logging.getLogger("reput.kernels")


class Level(NamedTuple):
    """A level of processors for which kernels are shipped.

    Attributes:
        name: LLVM's name of the processor.
        compiled_with: features beyond the level, in LLVM's notation.
        needs: features that a processor must have, as llvmlite reports them.
    """

    name: str
    compiled_with: str
    needs: tuple[str, ...]


_V2 = ("cx16", "popcnt", "sse4.1", "sse4.2", "ssse3", "pclmul")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
# Checksums need pclmul. No level of x86-64 includes it, although all processors of level 3 and nearly all of level 2
# have it.
LEVELS = {
    "x86_64": (Level("x86-64-v3", "+pclmul", _V3), Level("x86-64-v2", "+pclmul", _V2)),
    "aarch64": (Level("generic", "", ()),),
}
"""Levels of processors (such as x86-64-v3) for each processor architecture, best first."""


@cache
def sources() -> str:
    """Return a digest of the source of all kernels, and of the list of a message's fields, from which one derives.

    It does not depend on where the package is installed.

    numba compiles called functions into a kernel, but it only compares the kernel's own file to decide whether the
    cache is valid. With this digest in place of that file's stamp, a change of any kernel invalidates the cache of all
    kernels.
    """
    digest = sha256()
    modules = [file for file in files(__package__).iterdir() if file.name.endswith(".py")]
    modules.append(files("reput.format") / "message_fields.py")
    for file in sorted(modules, key=lambda file: file.name):
        digest.update(f"{file.name}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def shipped() -> tuple[Path, Level] | None:
    """Return the folder of the shipped kernels for this processor, and the level of processors that they need.

    Return None if the package has no kernels for this processor, or for this version of numba and Python.
    """
    if find_spec("numba") is None:
        return None
    folder = SHIPPED / release()
    if not folder.is_dir():
        return None
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    machine = binding.get_default_triple().partition("-")[0]
    for level in LEVELS.get(machine.replace("arm64", "aarch64"), ()):
        is_there = (folder / level.name).is_dir()
        if is_there and all(features.get(name, False) for name in level.needs):
            return folder / level.name, level
    return None


def release() -> str:
    """Return the name of the folder of shipped kernels for this version of numba and Python."""
    from importlib.metadata import version

    return f"numba-{version('numba')}-py{sys.version_info[0]}{sys.version_info[1]}"


def own_folder(*, create: bool = False) -> Path:
    """Return the folder into which this process compiles. Raises OSError if it cannot be created."""
    folder = _kept_folder() or _temporary_folder()
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def folders() -> list[Path]:
    """Return the folders that may have kernels compiled for exactly this processor."""
    kept = _kept_folder() or Path(os.environ.get(TEMPORARY_VARIABLE, KERNELS / "__pycache__"))
    return list(dict.fromkeys((kept, KERNELS / "__pycache__")))


def _kept_folder() -> Path | None:
    """Return the folder that keeps kernels for later processes; None if no such folder is writable."""
    if given := os.environ.get(NUMBA_VARIABLE):
        return Path(given, f"reput-{sources()[:16]}") if _is_writable(Path(given)) else None
    if _is_writable(beside := KERNELS / "__pycache__"):
        return beside
    folder = _user_cache()
    return folder / sources()[:16] if _is_own_cache(folder) else None


def has_compiled(*names: str) -> bool:
    """Return whether these kernels (`module.function`) are compiled, or need no compiling.

    Without names, return whether any kernel is compiled.
    """
    if find_spec("numba") is None:
        return True
    found = shipped()
    places = [*folders(), *([found[0]] if found else [])]
    return all(any(any(place.glob(f"{name}*.nbi")) for place in places) for name in names or ("",))


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Hold the lock for compiling `what`, so that a second process waits and then finds the kernels compiled.

    Without file locks, several processes may compile the same kernel.
    """
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            folder = own_folder(create=True)
            file = stack.enter_context(open(folder / f"compiling-{what}.lock", "ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return Path(home, "reput", "kernels")


def _is_own_cache(folder: Path) -> bool:
    """Return whether only this user can write in a folder.

    Compiled kernels in this folder are executed, so other users must not be able to replace them.
    """
    if not _is_writable(folder) or not is_out_of_reach(folder):
        return False
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(folder, follow_symlinks=False)
        return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_MAY_WRITE
    return False


def _is_writable(folder: Path) -> bool:
    """Return whether files can be created in a folder, or in the first of its parents that exists."""
    # Without a home directory, "~" is not expanded.
    if not folder.is_absolute():
        return False
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _temporary_folder() -> Path:
    if (given := os.environ.get(TEMPORARY_VARIABLE)) and _is_own_cache(Path(given)):
        return Path(given)
    try:
        folder = Path(tempfile.mkdtemp(prefix="reput-kernels-"))
    except OSError:
        # No folder is writable, so each process compiles for itself.
        return KERNELS / "__pycache__"
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[TEMPORARY_VARIABLE] = str(folder)
    _log.warning(
        "no writable folder for compiled kernels: %s keeps them until this process ends; set %s "
        "to a writable folder",
        folder, NUMBA_VARIABLE,
    )  # fmt: skip
    return folder
