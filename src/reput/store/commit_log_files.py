"""The files of a CommitLog, as found: `commitlog/` of a store, each named by its first physical offset.

Mirrors `MappedFileQueue.load` (tag rocketmq-all-4.9.3), but believes the sizes of the files, not a setting.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path

from reput.errors import FormatError, StoreAccessError, StoreNotFoundError
from reput.format.file_names import COMMIT_LOG_FOLDER, parse_offset_file_name

_MORE_LOOKS = 2


@dataclass(frozen=True, slots=True, order=True)
class CommitLogFile:
    """One file: physical offset of its first byte, its size, its path; another one of the same name is another file."""

    start: int
    size: int
    path: str
    inode: int = 0

    @property
    def end(self) -> int:
        return self.start + self.size


def list_commit_log_files(store: str | PathLike[str]) -> list[CommitLogFile]:
    """Files of `store`/commitlog in order of their offsets; names that are no offset are left alone.

    Raises StoreNotFoundError where there is no such folder or no file in it, StoreAccessError, and FormatError
    for files that overlap.
    """
    folder = Path(store) / COMMIT_LOG_FOLDER
    files = _list(store, folder)
    for _ in range(_MORE_LOOKS):
        if files and not has_holes(files):
            break
        # A file may have expired, and one been made, while the folder was read.
        files = _list(store, folder)
    if not files:
        raise StoreNotFoundError(f"{folder}: no CommitLog file; names are offsets of 20 digits")
    check_no_overlap(files)
    return files


def check_no_overlap(files: Sequence[CommitLogFile]) -> None:
    """Raises FormatError for files, in order of their offsets, of which two hold the same offset."""
    for before, after in pairwise(files):
        if before.end > after.start:
            raise FormatError(after.path, 0, f"overlaps {before.path}, which ends at {before.end}")


def has_holes(files: list[CommitLogFile]) -> bool:
    """Whether there are offsets between the first file and the last that no file holds."""
    return any(before.end < after.start for before, after in pairwise(files))


def _list(store: str | PathLike[str], folder: Path) -> list[CommitLogFile]:
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if (offset := parse_offset_file_name(entry.name)) is not None:
                    with suppress(FileNotFoundError):  # expired since it was listed
                        size = entry.stat().st_size
                        files.append(CommitLogFile(offset, size, entry.path, entry.inode()))
    except (FileNotFoundError, NotADirectoryError):
        raise StoreNotFoundError(
            f"{fspath(store)}: not a RocketMQ store, it has no {COMMIT_LOG_FOLDER} folder"
        ) from None
    except OSError as error:
        raise StoreAccessError(f"{folder}: cannot be read: {error.strerror}") from error
    return sorted(files)
