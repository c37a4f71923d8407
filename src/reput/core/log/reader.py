"""Read messages of a CommitLog by their physical offset.

Mirrors `CommitLog.lookMessageByOffset` and `MappedFileQueue.findMappedFileByOffset` (tag rocketmq-all-4.9.3). Unlike
the broker, this reader takes the file size from the files instead of a setting, and checks every length in a record.

The files belong to a stopped or running broker, or to a copy. `refresh` finds new files and drops expired ones. No file
states the end of the log; a walk finds it (`reput.core.log.walk`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from reput.base import Finding
from reput.core.log.files import CommitLogFile, check_none_shorter, holes
from reput.core.log.offset_range import OffsetRange
from reput.core.log.record import LocatedRecord
from reput.core.log.sources import LogSource
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import (
    BLANK_BYTES,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET,
    MessageExt,
    RecordError,
    ShortBufferError,
    decode_located,
    locate,
    read_size_and_magic,
)
from reput.format.file_names import whole_size
from reput.io import GrowthWatch, OpenFiles, PooledReader

# Imported only for type checkers, so that a query by key does not load NumPy.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_Result = TypeVar("_Result")
# Size of the first read. Most records are shorter than this.
_FIRST_READ_BYTES = 4 << 10
# If an index entry or the caller states the size of the record, the first read has this size, up to this limit.
_MOST_TRUSTED_BYTES = 64 << 10


class CommitLogReader:
    """Random access to the messages of a log. Not thread-safe.

    files      the files when last listed, oldest first
    seen_ends  for each file, the position at which a walk found the end of the log, and the first bytes at this
        position

    Raises StoreNotFoundError for a folder without a CommitLog, StoreAccessError, FormatError for files that overlap,
    and StoreChangedError for a file that has become shorter.
    """

    def __init__(self, source: LogSource) -> None:
        self.source = source
        self._watch = GrowthWatch(source.watch())
        self._open_files = OpenFiles(source.open)
        self.seen_ends: dict[str, tuple[int, bytes]] = {}
        self.files: tuple[CommitLogFile, ...] = ()
        self._list()

    def _list(self) -> None:
        self._watch.changed()
        # The watch reports a change only once. If listing fails, this flag makes `refresh` list the files again.
        self._is_unlisted = True
        files = self.source.list().files
        whole = whole_size([file.start for file in files])
        self._watch.follow([(file.path, file.size) for file in files], whole)
        check_none_shorter(self.files, files)
        self._is_unlisted = False
        if files != self.files:
            self.seen_ends.clear()
        self._open_files.drop((file.path, file.inode) for file in set(self.files) - set(files))
        self.files = files
        self._starts = [file.start for file in files]

    def refresh(self) -> bool:
        """List the files again; return whether they changed."""
        if not self._watch.changed() and not self._is_unlisted:
            return False
        before = self.files
        self._list()
        return self.files != before

    def close(self) -> None:
        self._open_files.close()

    @property
    def min_offset(self) -> int:
        """Return the physical offset of the first byte that has not expired."""
        return self.files[0].start

    @property
    def first_offset(self) -> int:
        """Return the physical offset of the first unexpired record.

        In a DLedger log, a header precedes each record. The returned offset is the end of this header.
        """
        return self.files[0].start + self.files[0].gap

    @property
    def files_end(self) -> int:
        """Return the physical offset of the last file's end. The end of the log lies at or before it."""
        return self.files[-1].end

    def holes(self) -> list[Finding]:
        """Return a finding for each range of the log that is missing between two files."""
        return holes(self.files)

    def file_at(self, physical_offset: int) -> CommitLogFile | None:
        """Return the file that contains this offset; None if no such file exists."""
        place = bisect_right(self._starts, physical_offset) - 1
        if place < 0 or physical_offset >= self.files[place].end:
            return None
        return self.files[place]

    def files_within(self, start: int, stop: int) -> tuple[CommitLogFile, ...]:
        """Return the files with bytes of the range [start, stop), oldest first."""
        low = max(bisect_right(self._starts, start) - 1, 0)
        files = self.files[low : bisect_left(self._starts, stop)]
        return files[1:] if files and files[0].end <= start else files

    def parts(self, start: int, stop: int) -> Iterator[tuple[CommitLogFile, OffsetRange]]:
        """Yield the files with bytes of the range [start, stop), oldest first, each with its part of the range."""
        for file in self.files_within(start, stop):
            part = OffsetRange(max(start, file.start), min(stop, file.end))
            if part.start < part.stop:
                yield file, part

    def read(self, file: CommitLogFile, physical_offset: int, length: int) -> bytes:
        """Return `length` bytes of a file from a physical offset on, or fewer at the file's end.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.

        In RocketMQ: selectMappedBuffer.
        """
        position = physical_offset - file.start
        return self._open(file).read(position, min(length, file.size - position))

    def read_into(
        self, file: CommitLogFile, buffer: npt.NDArray[np.uint8], physical_offset: int
    ) -> None:
        """Fill `buffer` with bytes of a file from a physical offset on. Raises as `read` does.

        From this offset on, the file must have enough bytes to fill the buffer.
        """
        self._open(file).read_into(buffer, physical_offset - file.start)

    def read_each(
        self, file: CommitLogFile, physical_offsets: Sequence[int], lengths: Sequence[int]
    ) -> list[bytes]:
        """Return the bytes of a file at many offsets, all of which must be in the file. Raises as `read` does."""
        positions = [offset - file.start for offset in physical_offsets]
        return self._open(file).read_each(positions, lengths)

    def announce(self, physical_offsets: Iterable[int]) -> None:
        """Prepare calls of `locate` at many offsets. Over a network, all records are requested at the same time."""
        if self.source.is_local:
            return
        by_file: dict[CommitLogFile, list[int]] = {}
        for offset in physical_offsets:
            if (file := self.file_at(offset)) is not None:
                by_file.setdefault(file, []).append(offset - file.start)
        for file, positions in by_file.items():
            with suppress(StoreNotFoundError):  # `locate` reports the expired file.
                self._open(file).announce(positions, _FIRST_READ_BYTES)

    def use_descriptor(self, file: CommitLogFile, use: Callable[[int], _Result]) -> _Result | None:
        """Return the result of `use` for a file's descriptor; None for a remote file. Raises as `read` does."""
        return self._open(file).use_descriptor(use)

    def get(self, physical_offset: int) -> MessageExt:
        """Return the message that begins at this offset.

        The CRC of its body is not compared (`MessageExt.body_crc_ok`).

        Raises:
            MessageNotFoundError: no message begins there, because it has expired or never existed.
            CorruptMessageError: the record has impossible lengths, or states another physical offset.
            StoreAccessError, StoreChangedError: the file cannot be read.
        """
        _, data, layout = self.locate(physical_offset)
        return decode_located(data, layout)

    def read_record(self, physical_offset: int) -> bytes:
        """Return the bytes of the record that begins at this offset. Raises as `get` does."""
        return self.locate(physical_offset).record()

    def locate(
        self,
        physical_offset: int,
        likely_bytes: int = _FIRST_READ_BYTES,
        *,
        in_place: bool = True,
    ) -> LocatedRecord:
        """Return the record that begins at this offset. Raises as `get` does.

        One read is enough if the record has at most `likely_bytes`. With `in_place`, a record that states another
        offset is unreadable.
        """
        file = self.file_at(physical_offset)
        if file is None and self.refresh():
            # The file may have been created after the last listing.
            file = self.file_at(physical_offset)
        if file is None:
            raise MessageNotFoundError(self._why_not_there(physical_offset))
        # The size comes from an index entry, which may be damaged, so it is bounded.
        length = min(max(likely_bytes, MIN_RECORD_BYTES), _MOST_TRUSTED_BYTES)
        data = b""
        try:
            while True:
                data = self.read(file, physical_offset, length)
                try:
                    found = LocatedRecord(physical_offset, data, locate(data, 0, len(data)))
                    # This runs for each message that is read, so it calls no method.
                    at = found.layout.position
                    stated = PHYSICAL_OFFSET.unpack_from(data, at)[0] if in_place else None
                    if in_place and stated != physical_offset:
                        reason = f"the record here states physical offset {stated}"
                        raise file.corrupt(physical_offset, reason)
                    return found
                except ShortBufferError as error:
                    length = error.needed_bytes
                    if length > file.end - physical_offset:
                        raise
                    # A record may have 2 GiB, so the memory is freed before more is read.
                    data = b""
        except StoreNotFoundError:
            self._list()
            # The file has expired. The files were listed again, so the error states where the log begins now.
            raise MessageNotFoundError(self._why_not_there(physical_offset)) from None
        except RecordError as error:
            raise _not_a_message(data, file, physical_offset, error) from None

    def _open(self, file: CommitLogFile) -> PooledReader:
        return self._open_files.get(file.path, file.inode)

    def _why_not_there(self, physical_offset: int) -> str:
        where = f"{self.source.name}: offset {physical_offset}: no message begins there"
        if physical_offset < self.min_offset:
            return f"{where} any more: the log begins at {self.min_offset}"
        if physical_offset >= self.files_end:
            return f"{where}: the files end at {self.files_end}"
        return f"{where}: no file contains it"


def _not_a_message(
    data: bytes, file: CommitLogFile, physical_offset: int, error: RecordError
) -> MessageNotFoundError | CorruptMessageError:
    if len(data) >= BLANK_BYTES and read_size_and_magic(data, 0)[1] in (
        MESSAGE_MAGIC,
        MESSAGE_MAGIC_V2,
    ):
        return file.corrupt(physical_offset, str(error))
    return MessageNotFoundError(f"{file.path}: offset {physical_offset}: no message begins there")
