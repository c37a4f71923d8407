"""Keep files in the user's cache folder. They are trusted only if no other user can have written them."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reput.base import is_out_of_reach
from reput.errors import StoreAccessError

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
# A file begins with the CRC-32 of its data, in this many hexadecimal digits.
_CHECKSUM_DIGITS = 8
_IDENTITY_BYTES = 100
_ROUNDS = 16
"""On average, one of `_ROUNDS` calls of `write` also checks the size of the folder."""


class OwnCache:
    """A folder of this user's files: `$XDG_CACHE_HOME/reput/NAME`, or `~/.cache/reput/NAME`.

    A small file is not synced, because it can be recreated. Its checksum shows whether a power cut has damaged it. A
    large file, which another program writes and reads, is synced. It is identified by inode, size and time of change.
    """

    def __init__(self, name: str) -> None:
        base = os.environ.get("XDG_CACHE_HOME", "")
        home = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
        self.folder = Path(home, "reput", name)

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """Return a file's content; None if it is missing, too long or damaged, or if others could have written it."""
        if not self._is_ours():
            return None
        with suppress(OSError):
            if not _is_own(os.stat(self.folder, follow_symlinks=False)):
                return None
            fd = os.open(
                # A link is not followed, and a FIFO does not block.
                os.path.join(self.folder, name),
                os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
            )
            try:
                # Check the open file, not the path: between a check and the opening, another file could take the name.
                status = os.fstat(fd)
                most = most_bytes + _CHECKSUM_DIGITS
                regular = stat.S_ISREG(status.st_mode)
                if regular and _is_own(status) and status.st_size <= most:
                    return _checked(os.pread(fd, most, 0))
            finally:
                os.close(fd)
        return None

    def has(self, name: str) -> bool:
        """Return whether a file of this name exists, without checking its owner."""
        return os.path.isfile(self.folder / name)

    def _make_room(self, most_bytes: int) -> None:
        """If the folder exceeds `most_bytes`, delete its oldest files until a quarter of this size is free."""
        files = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime_ns, status.st_size, entry.path))
        used = sum(size for _, size, _ in files)
        if used <= most_bytes:
            return
        for _, size, path in sorted(files):
            # Free a quarter of the limit, not only the excess, so that the folder need not be searched for old files
            # again soon.
            if used <= most_bytes * 3 // 4:
                return
            with suppress(OSError):
                os.unlink(path)
                used -= size

    def write(self, name: str, data: bytes, most_bytes: int | None = None) -> None:
        """Replace the content of a file atomically.

        Args:
            name: name of the file.
            data: the content.
            most_bytes: limit for the whole folder. From time to time, a call deletes the oldest files of a folder that
                exceeds it.

        Raises:
            StoreAccessError: the folder belongs to another user, the system refuses, or there is no home directory.
        """
        with self._writing():
            _replace(self.folder / name, _checksum(data) + data)
            # Decide by the last byte of the data, as if by a random number, whether to check the size of the folder.
            if most_bytes is not None and data and data[-1] % _ROUNDS == 0:
                self._make_room(most_bytes)

    def path_for(self, name: str) -> Path:
        """Return the path of a file in the folder, which is created if it is missing. Raises as `write` does."""
        with self._writing():
            return self.folder / name

    @contextmanager
    def keeping(self, name: str) -> Iterator[Path]:
        """Yield a path to which the with block writes a large file. Afterwards, `kept(name)` returns this file.

        Raises the errors of the with block, and the same errors as the method `write`. After an error, no file is kept.
        """
        with self._writing():
            attempt = self.folder / f"{name}.{os.urandom(8).hex()}.tmp"
            try:
                yield attempt
                _sync(attempt)
                os.replace(attempt, self.folder / name)
            finally:
                attempt.unlink(missing_ok=True)
            # Write the file's identity last. After a crash before this line, `kept` finds no identity, and ignores the
            # file.
            self.write(_identity_name(name), _identity(os.lstat(self.folder / name)))

    def kept(self, name: str) -> Path | None:
        """Return the path of a large file that `keeping` has written.

        Return None if the file is missing or was changed, or if other users could have written it.
        """
        path = self.folder / name
        with suppress(OSError):
            if identity := self.read(_identity_name(name), _IDENTITY_BYTES):
                status = os.lstat(path)
                if (
                    stat.S_ISREG(status.st_mode)
                    and _is_own(status)
                    and _identity(status) == identity
                ):
                    return path
        return None

    def _is_ours(self) -> bool:
        """Return whether the folder can be used.

        It cannot be used if there is no home directory, or if root runs in another user's home.
        """
        return self.folder.is_absolute() and is_out_of_reach(self.folder)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self.folder.is_absolute():
            raise StoreAccessError(f"{self.folder}: there is no home directory; set XDG_CACHE_HOME")
        try:
            if not self._is_ours():
                raise StoreAccessError(
                    f"{self.folder}: another user can replace this folder, but reput runs as root; set "
                    f"XDG_CACHE_HOME to a folder that only root can replace"
                )
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(os.stat(self.folder, follow_symlinks=False)):
                raise StoreAccessError(
                    f"{self.folder}: other users may write there; remove that permission"
                )
            yield
        except StoreAccessError:
            raise
        except OSError as error:
            raise StoreAccessError(f"{self.folder}: cannot be written: {error.strerror}") from error


def _replace(path: Path, data: bytes) -> None:
    attempt = f"{path}.{os.urandom(8).hex()}.tmp"
    fd = os.open(attempt, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(attempt, path)
    except BaseException:
        # The first error must not be replaced by an error of this clean-up.
        with suppress(OSError):
            os.unlink(attempt)
        raise


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _identity_name(name: str) -> str:
    return f"{name}.identity"


def _identity(status: os.stat_result) -> bytes:
    return b"%d %d %d" % (status.st_ino, status.st_size, status.st_mtime_ns)


def _checksum(data: bytes) -> bytes:
    return b"%0*x" % (_CHECKSUM_DIGITS, zlib.crc32(data))


def _checked(stored: bytes) -> bytes | None:
    data = stored[_CHECKSUM_DIGITS:]
    return data if stored[:_CHECKSUM_DIGITS] == _checksum(data) else None


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_MAY_WRITE
