"""CommitLog, the reading side: any message by its physical offset.

Mirrors `CommitLog.lookMessageByOffset` and `MappedFileQueue.findMappedFileByOffset` (tag
rocketmq-all-4.9.3), but believes the files' names and sizes instead of a setting, and every length
in a record is checked.

The files are those of a stopped or a running broker, or of a copy: `refresh` takes note of files
that were rolled or have expired since. Where the log ends is not written anywhere; a walk finds
out (`reput.store.log_walk`).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from os import PathLike, fspath
from typing import NamedTuple

from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.files.mapped_file import MappedFiles
from reput.files.watch import FolderWatch
from reput.format.commit_log import (
    BLANK_BYTES,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MessageExt,
    RecordError,
    RecordLayout,
    decode,
    locate,
    read_size_and_magic,
)
from reput.format.file_names import COMMIT_LOG_FOLDER
from reput.store.commit_log_files import CommitLogFile, list_commit_log_files
from reput.store.damage import Damage


class LocatedRecord(NamedTuple):
    """A record whose lengths are checked: where it lies, and its file's bytes."""

    physical_offset: int
    data: memoryview
    layout: RecordLayout


class CommitLog:
    """Random access to the messages of a store; not for use from several threads at once.

    files      oldest first, as they were when last looked at
    seen_ends  by file, where a walk met the end of the log and nothing behind it, and the first bytes there

    Raises StoreNotFoundError for a folder without a CommitLog, StoreAccessError, and FormatError
    for files that overlap.
    """

    def __init__(self, store: str | PathLike[str]) -> None:
        self._store = fspath(store)
        self.folder = os.path.join(self._store, COMMIT_LOG_FOLDER)
        self._watch = FolderWatch(self.folder)
        self._maps = MappedFiles(scattered=True)
        self.seen_ends: dict[str, tuple[int, bytes]] = {}
        self.files: list[CommitLogFile] = []
        self._list()

    def _list(self) -> None:
        self._watch.changed()
        files = list_commit_log_files(self._store)
        if files != self.files:
            self.seen_ends.clear()
        self._maps.keep_only(file.path for file in set(files) & set(self.files))
        self.files = files
        self._starts = [file.start for file in files]

    def refresh(self) -> bool:
        """Look again which files there are; whether they changed."""
        is_growing = self.files[-1].size < self.files[0].size  # the last was being made
        if not self._watch.changed() and not is_growing:
            return False
        before = self.files
        self._list()
        return self.files != before

    def close(self) -> None:
        self._maps.close()

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte that has not expired."""
        return self.files[0].start

    @property
    def files_end(self) -> int:
        """End of the last file; the log's own end lies somewhere before."""
        return self.files[-1].end

    def holes(self) -> list[Damage]:
        """Ranges between the first file and the last that no file holds."""
        return [
            Damage(before.end, after.start - before.end, after.path, "no file holds these offsets")
            for before, after in zip(self.files, self.files[1:], strict=False)
            if before.end < after.start
        ]

    def file_at(self, physical_offset: int) -> CommitLogFile | None:
        """The file that holds this offset, if one does."""
        place = bisect_right(self._starts, physical_offset) - 1
        if place < 0 or physical_offset >= self.files[place].end:
            return None
        return self.files[place]

    def file_data(self, file: CommitLogFile) -> memoryview:
        """The bytes of one file, good until the next call.

        Raises StoreNotFoundError, StoreAccessError, FormatError.
        """
        return self._maps.get(file.path).data

    def get(self, physical_offset: int) -> MessageExt:
        """The message that begins at this offset.

        Raises MessageNotFoundError where none does, because it has expired or was never there,
        CorruptMessageError for one whose lengths cannot be right, StoreAccessError. The body's CRC
        is not compared (`MessageExt.body_crc_ok`).
        """
        data, position, path = self._place(physical_offset)
        try:
            return decode(data, position)
        except RecordError as error:
            raise self._not_a_message(data, position, path, physical_offset, error) from None

    def read_record(self, physical_offset: int) -> bytes:
        """The bytes of the record that begins there; raises as `get` does."""
        _, data, layout = self.locate(physical_offset)
        return bytes(data[layout.position : layout.position + layout.total_bytes])

    def locate(self, physical_offset: int) -> LocatedRecord:
        """The place of the record that begins there; raises as `get` does."""
        data, position, path = self._place(physical_offset)
        try:
            return LocatedRecord(physical_offset, data, locate(data, position, len(data)))
        except RecordError as error:
            raise self._not_a_message(data, position, path, physical_offset, error) from None

    def _place(self, physical_offset: int) -> tuple[memoryview, int, str]:
        """Bytes of the file, position in it, its path."""
        file = self.file_at(physical_offset)
        if file is None and self.refresh():
            file = self.file_at(physical_offset)
        if file is None:
            raise MessageNotFoundError(self._why_not_there(physical_offset))
        try:
            data = self._maps.get(file.path).data
        except StoreNotFoundError:
            self._list()
            raise MessageNotFoundError(self._why_not_there(physical_offset)) from None
        position = physical_offset - file.start
        if position >= len(data):
            raise CorruptMessageError(file.path, physical_offset, "the file is shorter than that")
        return data, position, file.path

    def _why_not_there(self, physical_offset: int) -> str:
        where = f"{self.folder}: offset {physical_offset}: no message there"
        if physical_offset < self.min_offset:
            return f"{where} any more: the log begins at {self.min_offset}"
        if physical_offset >= self.files_end:
            return f"{where}: the files end at {self.files_end}"
        return f"{where}: no file holds it"

    def _not_a_message(
        self, data: memoryview, position: int, path: str, physical_offset: int, error: RecordError
    ) -> MessageNotFoundError | CorruptMessageError:
        if position + BLANK_BYTES <= len(data):
            magic = read_size_and_magic(data, position)[1]
            if magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
                return CorruptMessageError(path, physical_offset, str(error))
        return MessageNotFoundError(f"{path}: offset {physical_offset}: no message begins there")
