"""What a path of a table may be: stores, their commitlog/ folders, single files of a CommitLog, patterns of these."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.fs

from reput.errors import StoreNotFoundError, UsageError
from reput.files.reader import FileReader
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
)
from reput.format.file_names import COMMIT_LOG_FOLDER, parse_offset_file_name
from reput.store.commit_log_files import CommitLogFile, check_no_overlap
from reput.store.record_search import find_record, first_nonzero
from reput.table.file_systems import FileSystem, OpenFile, resolve

_PEEK_BYTES = 1 << 20
_MESSAGE_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)
_MAGICS = (*_MESSAGE_MAGICS, BLANK_MAGIC)
_FILE, _FOLDER = pyarrow.fs.FileType.File, pyarrow.fs.FileType.Directory


@dataclass(frozen=True)
class LogSource:
    """The CommitLog files of one store, or some of them.

    name       of the store, as the path gave it; the `store` column
    files      by physical offset, without those of no bytes
    open_file  opens one of them
    folder     the store's folder on this machine, with its indexes; None elsewhere and for single files
    """

    name: str
    files: tuple[CommitLogFile, ...]
    open_file: OpenFile
    folder: str | None = None

    @property
    def begin(self) -> int:
        """Physical offset of the first byte that has not expired; 0 for a store without files."""
        return self.files[0].start if self.files else 0

    def last_with_data(self) -> CommitLogFile | None:
        """The last file that has a byte that is not zero. Raises StoreError."""
        for file in reversed(self.files):
            if self._has_data(file):
                return file
        return None

    def _has_data(self, file: CommitLogFile) -> bool:
        # Elsewhere there are no holes to skip, and a file that was written is so at its beginning.
        looked_at = file
        if self.open_file is not FileReader:
            looked_at = CommitLogFile(file.start, min(file.size, _PEEK_BYTES), file.path)
        with self.open_file(file.path) as reader:
            return first_nonzero(reader, looked_at, file.start) is not None


def open_sources(paths: Iterable[str], options: Mapping[str, str] | None = None) -> list[LogSource]:
    """The stores that these paths stand for, by name.

    options  of file systems, see `reput.table.file_systems.resolve`

    Raises UsageError for a path that is none of a CommitLog, StoreNotFoundError, StoreAccessError, and FormatError
    for files of a store that overlap.
    """
    # By the real place of their files, so that a store comes once whatever paths lead to it.
    sources: dict[str, LogSource] = {}
    single: dict[str, tuple[FileSystem, str, dict[str, pyarrow.fs.FileInfo]]] = {}
    for given in paths:
        system, pattern = resolve(given, options or {})
        found = system.expand(pattern)
        if not found:
            raise StoreNotFoundError(f"{given}: nothing there that this pattern stands for")
        for path in found:
            info = system.info(path)
            if info.type == _FOLDER:
                inner = f"{path}/{COMMIT_LOG_FOLDER}"
                folder = inner if system.info(inner).type == _FOLDER else path
                sources.setdefault(system.place(folder), _folder_source(system, path, folder))
            elif info.type == _FILE:
                folder = posixpath.dirname(path)
                of_folder = single.setdefault(system.place(folder), (system, folder, {}))
                of_folder[2][info.base_name] = info
            else:
                raise StoreNotFoundError(f"{given}: no such file or folder")
    for place, (system, folder, infos) in single.items():
        if place not in sources:  # else the whole store was asked for as well
            name = system.prefix + _store_of(folder)
            source = sources[place] = _source(system, name, infos.values(), None)
            _check_is_log(system, source.files)
    return sorted(sources.values(), key=lambda source: source.name)


def _folder_source(system: FileSystem, path: str, folder: str) -> LogSource:
    """The store or folder of CommitLog files at `path`, whose files lie in `folder`."""
    infos = [
        info
        for info in system.entries(folder)
        if info.type == _FILE and parse_offset_file_name(info.base_name) is not None
    ]
    if not infos:
        raise StoreNotFoundError(
            f"{system.prefix}{path}: not a RocketMQ store, nor a {COMMIT_LOG_FOLDER} folder: "
            "no file there is named by an offset of 20 digits"
        )
    is_store = folder != path
    store = path if is_store else _store_of(path)
    is_whole = is_store or store != path
    source = _source(
        system, system.prefix + store, infos, store if system.is_local and is_whole else None
    )
    if not is_whole:
        _check_is_log(system, source.files)
    return source


def _store_of(folder: str) -> str:
    """The store that a commitlog/ folder belongs to; a folder of another name is taken as one itself."""
    parent, name = posixpath.split(folder)
    return (parent or ".") if name == COMMIT_LOG_FOLDER else folder


def _source(
    system: FileSystem, name: str, infos: Iterable[pyarrow.fs.FileInfo], folder: str | None
) -> LogSource:
    files = sorted(
        CommitLogFile(_start_of(system, info), info.size, info.path) for info in infos if info.size
    )
    check_no_overlap(files)
    return LogSource(name, tuple(files), system.open_file, folder)


def _check_is_log(system: FileSystem, files: Sequence[CommitLogFile]) -> None:
    """Raises UsageError where the first file has bytes but no record: one of a ConsumeQueue has such a name, too."""
    for file in files[:1]:
        with system.open_file(file.path) as reader:
            head = reader.read(0, min(file.size, BLANK_BYTES))
            if len(head) == BLANK_BYTES and read_size_and_magic(head, 0)[1] in _MAGICS:
                continue
            written = reader.read(0, min(file.size, _PEEK_BYTES))
            if any(written) and find_record(reader, file, file.start, file.end) is None:
                raise UsageError(
                    f"{system.prefix}{file.path}: not a CommitLog file: no record is in it"
                )


def _start_of(system: FileSystem, info: pyarrow.fs.FileInfo) -> int:
    """Physical offset of a file's first byte: its name, else what the record there says of itself."""
    start = parse_offset_file_name(info.base_name)
    if start is not None:
        return start
    if info.size >= MIN_RECORD_BYTES:
        with system.open_file(info.path) as reader:
            head = reader.read(0, MIN_RECORD_BYTES)
        stated = read_size_and_physical_offset(head, 0)[1]
        if read_size_and_magic(head, 0)[1] in _MESSAGE_MAGICS and stated >= 0:
            return stated
    raise UsageError(
        f"{system.prefix}{info.path}: not a CommitLog file: "
        "its name is no offset of 20 digits, and no record begins it"
    )
