"""Recovery of the IndexFiles: up to which message they are whole, and what to keep of them.

A broker believes every file it finds (`IndexService.load`, tag rocketmq-all-4.9.3), never takes out an entry whose
message was cut off, and indexes the last message once more at some starts. Here a file is kept as long as it, and all
before it, account for the log; the last message that is indexed is always dispatched again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import ReputError, StoreError
from reput.files.disk import Disk
from reput.format.file_names import INDEX_FOLDER, is_index_file_name
from reput.store.commit_log import CommitLog
from reput.store.commit_log_files import CommitLogFile
from reput.store.index_file_writer import IndexFileWriter
from reput.store.keyed_record import read_keyed_record
from reput.store.recovery.report import RecoveryReport
from reput.store.scan import FileScan, ScanBuffers

_MOST_CUT_ITEMS = 1 << 20
_CHECKED_ITEMS = 64


class IndexRecovery:
    """Walks the files from the oldest to the newest that is good, and cuts the last back to whole messages."""

    def __init__(
        self,
        store: Path,
        files: list[CommitLogFile],
        config: StoreConfig,
        disk: Disk,
        report: RecoveryReport,
        log: CommitLog | None = None,
    ) -> None:
        """`log` is the store's own unless it is another's that is indexed here."""
        self._folder, self._files, self._config = store / INDEX_FOLDER, files, config
        self._disk, self._report = disk, report
        self._log = log or CommitLog(store)
        self._buffers = ScanBuffers()

    def run(self) -> tuple[IndexFileWriter | None, int]:
        """The file to go on with, and the physical offset from which on to dispatch. Raises StoreAccessError."""
        paths = sorted(p for p in self._folder.iterdir() if is_index_file_name(p.name))
        kept: list[Path] = []
        end: int | None = None  # of the last good file
        for path in paths:
            problem, file_end = self._check(path, end, is_last=path == paths[-1])
            if problem:
                self._report.notes.append(f"{path}: {problem}")
                break
            kept.append(path)
            end = file_end
        for path in reversed(paths[len(kept) :]):
            self._disk.delete(path)
        last, position = self._cut(kept)
        self._disk.sync_folder(self._folder)
        self._log.close()
        return last, position

    def _check(self, path: Path, before: int | None, is_last: bool) -> tuple[str, int]:
        """Why a file cannot be kept, or nothing; and the offset of its last message."""
        if path.stat().st_size != self._config.index_file_bytes:
            return f"has {path.stat().st_size} bytes, not {self._config.index_file_bytes}", 0
        file = IndexFileWriter(path, self._config, self._disk)
        try:
            header = file.header
            if not 1 < header.index_count <= self._config.index_items:
                return "has no entries", 0
            if not is_last and not file.is_full:
                return "is not full, but another follows", 0
            offsets = file.offsets()
            problem = self._check_content(file, offsets, self._needs_chains(file, is_last))
            if not problem:
                problem = self._check_gap(before, int(offsets[0]))
            return problem, int(offsets[-1])
        finally:
            file.close()

    def _needs_chains(self, file: IndexFileWriter, is_last: bool) -> bool:
        return is_last or not self._report.is_clean

    def _check_content(
        self, file: IndexFileWriter, offsets: npt.NDArray[np.int64], chains: bool
    ) -> str:
        header = file.header
        if (np.diff(offsets) < 0).any():
            return "its entries are out of order"
        if header.end_physical_offset != offsets[-1] or header.begin_physical_offset != offsets[0]:
            return "its header does not tell of its entries"
        if chains and not file.chains_are_whole():
            return "its chains are broken"
        return ""

    def _check_gap(self, before: int | None, begin: int) -> str:
        """Whether a message between two files, or before the first, has keys that are in neither."""
        start = self._report.log_begin if before is None else before
        stop = min(begin, self._report.log_end)
        for file in self._files:
            low, high = max(start, file.start), min(stop, file.end)
            if low >= high:
                continue
            scan = FileScan(file, low, high, self._config, buffers=self._buffers)
            for batch in scan.batches():
                rows = np.flatnonzero(batch.messages["key_count"])
                offsets = batch.messages["physical_offset"][rows]
                if (offsets > before if before is not None else offsets >= 0).any():
                    return "messages before its first are in no file"
        return ""

    def _cut(self, paths: list[Path]) -> tuple[IndexFileWriter | None, int]:
        """Cut off the last message and all behind the end of the log; open the file that is last then."""
        position: int | None = None
        while paths:
            file = IndexFileWriter(paths[-1], self._config, self._disk)
            offsets = file.offsets()
            if position is None:
                position = self._last_that_holds(file, offsets)
            kept = int(np.searchsorted(offsets, position)) if position is not None else 0
            if kept > 0 and len(offsets) - kept <= _MOST_CUT_ITEMS:
                with suppress(ReputError):
                    timestamp = self._log.get(int(offsets[kept - 1])).store_timestamp
                    if kept < len(offsets):
                        file.cut(kept + 1, timestamp)
                        file.sync()
                    return file, position or 0
                if int(offsets[kept - 1]) < self._report.log_begin:  # expired
                    if kept < len(offsets):
                        file.cut(kept + 1, file.header.begin_timestamp)
                    return file, position or 0
            file.close()
            if kept:
                position = int(offsets[0])
            self._disk.delete(paths.pop())
        return None, self._report.log_begin if position is None else position

    def _last_that_holds(self, file: IndexFileWriter, offsets: npt.NDArray[np.int64]) -> int | None:
        """Offset of the file's last message before which every entry checked is true; None where none is."""
        count = int(np.searchsorted(offsets, self._report.log_end))
        low, high = 0, count  # items before `low` hold
        while low < high:  # what points astray was written before a truncation, and lies at the end
            middle = (low + high) // 2
            if self._holds(file, middle + 1):
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        checked = range(max(low - _CHECKED_ITEMS, 0), low)
        wrong = [item for item in checked if not self._holds(file, item + 1)]
        last = wrong[0] - 1 if wrong else low - 1
        return int(offsets[last]) if last >= 0 else None

    def _holds(self, file: IndexFileWriter, number: int) -> bool:
        item = file.item(number)
        if item.physical_offset < self._report.log_begin:
            return True
        if item.physical_offset >= self._report.log_end:
            return False
        try:
            record = read_keyed_record(self._log.locate(item.physical_offset))
        except StoreError:
            return False
        return record.stated_offset == item.physical_offset and record.has_key_hash(item.key_hash)
