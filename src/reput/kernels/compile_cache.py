"""Where compiled kernels are cached when neither the package nor the user's cache folder is writable.

numba refuses to import a cached kernel that it cannot keep anywhere, which is what a container with a read-only
root and no home directory looks like. There a private temporary folder takes the cache, for this process and those
that it starts. What an image brings compiled beside the package is copied into it, so it is not compiled again.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha1
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
_COMPILED = (".nbi", ".nbc")
_log = logging.getLogger("reput.kernels")


def ensure_cache(kernels: Path) -> Path | None:
    """Set NUMBA_CACHE_DIR to a private folder where numba would find no place; return it, None where none is needed.

    Call it before numba is imported. Leaves a NUMBA_CACHE_DIR of the user's alone if it can be written.
    """
    given = os.environ.get(VARIABLE)
    places = [Path(given)] if given else [kernels / "__pycache__", _user_cache()]
    if any(map(_is_writable, places)):
        return None
    try:
        folder = Path(tempfile.mkdtemp(prefix="reput-kernels-"))
    except OSError:
        return None  # numba's own message is all there is to say
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _copy_compiled(kernels, folder)
    os.environ[VARIABLE] = str(folder)
    _log.warning(
        "no writable place to cache compiled kernels (%s): using %s until this process ends; "
        "set %s to keep them",
        ", ".join(map(str, places)), folder, VARIABLE,
    )  # fmt: skip
    return folder


def has_compiled(*names: str, kernels: Path = Path(__file__).parent) -> bool:
    """Whether a process before this one has left these kernels (`module.function`), or any, compiled where numba will
    look for them.
    """
    folder, inside = _place(kernels)
    return all(any(folder.glob(f"{inside}{name}*{_COMPILED[0]}")) for name in names or ("",))


@contextmanager
def compiling(what: str, kernels: Path = Path(__file__).parent) -> Iterator[None]:
    """Be the one process of this user that compiles `what` in the body; wait for another that does.

    Where no file can be locked, several may.
    """
    folder, _ = _place(kernels)
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(folder / f"compiling-{what}.lock", "ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _place(kernels: Path) -> tuple[Path, str]:
    """The folder of numba's cache, and where below it that of the kernels is."""
    beside = kernels / "__pycache__"
    if given := os.environ.get(VARIABLE):
        return Path(given), "*/"
    if _is_writable(beside):
        return beside, ""
    return _user_cache(), f"{kernels.name}_*/"


def _user_cache() -> Path:
    """numba's user-wide folder (`UserWideCacheLocator`)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "numba")


def _is_writable(folder: Path) -> bool:
    """Whether files can be created in a folder, or in the first of its parents that exists."""
    if not folder.is_absolute():  # `~` without a home directory
        return False
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _copy_compiled(kernels: Path, folder: Path) -> None:
    # numba names the folder of a package by its name and the digest of its path.
    place = folder / f"{kernels.name}_{sha1(str(kernels).encode()).hexdigest()}"
    with suppress(OSError):
        place.mkdir()
        for path in (kernels / "__pycache__").iterdir():
            if path.suffix in _COMPILED:
                shutil.copyfile(path, place / path.name)
