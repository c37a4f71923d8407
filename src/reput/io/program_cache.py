"""Choose cache folders for programs and libraries. No other user may be able to change files in these folders."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from reput.base import is_out_of_reach
from reput.io.scratch import folder_until_exit


def lasting_folder() -> Path | None:
    """Create and return `$XDG_CACHE_HOME/reput`, or `~/.cache/reput`; None if other users can write to it."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    if not os.path.isabs(cache):  # The user has no home directory.
        return None
    folder = Path(cache, "reput")
    if not is_out_of_reach(folder):
        return None
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return folder
    return None


def program_folders() -> Iterator[Path]:
    """Yield folders for compiled programs: first the user's cache folder, then a temporary folder of this process."""
    if (lasting := lasting_folder()) is not None:
        yield lasting
    yield folder_until_exit("reput-programs-")


def linked_folder(within: Path, name: str, links: Mapping[str, Path]) -> Path:
    """Return a folder with exactly these symbolic links. Its name begins with `name`.

    The folder never changes: another set of links gets another folder. Keys of `links` are relative paths. Raises
    OSError.
    """
    text = "\n".join(f"{link}\0{target}" for link, target in sorted(links.items()))
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    folder = within / f"{name}-{digest[:16]}"
    if not folder.is_dir():
        attempt = Path(tempfile.mkdtemp(dir=within))
        # The finished folder is renamed, so no process ever sees half of its links.
        try:
            for link, target in links.items():
                (attempt / link).parent.mkdir(parents=True, exist_ok=True)
                (attempt / link).symlink_to(target)
            attempt.rename(folder)
        except OSError:
            # If another process has created the folder first, use it: its links are identical.
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(attempt, ignore_errors=True)
    return folder


def write_executable(path: Path, content: bytes) -> None:
    """Write a program to a temporary file and rename it, so that no process runs half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        # `mkstemp` creates files that only this user can read, and nobody can run.
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class ProgramCache:
    """Folders for compiled programs, and for links to the programs of others."""

    folder = staticmethod(lasting_folder)
    folders = staticmethod(program_folders)
    folder_of_links = staticmethod(linked_folder)
    write = staticmethod(write_executable)
