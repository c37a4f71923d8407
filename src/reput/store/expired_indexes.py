"""Files of the indexes that speak of nothing but expired messages.

Mirrors `IndexService.deleteExpiredFile` and `ConsumeQueue.correctMinOffset`, `.deleteExpiredFile` (tag
rocketmq-all-4.9.3): the last file of each stays.
"""

from __future__ import annotations

from pathlib import Path

from reput.files.disk import Disk
from reput.files.reader import FileReader
from reput.format.consume_queue import ENTRY_BYTES, decode_entry
from reput.format.file_names import (
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    is_index_file_name,
    parse_offset_file_name,
)
from reput.format.index_file import HEADER_BYTES, decode_header


def index_paths(output: Path) -> list[Path]:
    """The IndexFiles there, oldest first."""
    folder = output / INDEX_FOLDER
    return sorted(path for path in folder.iterdir() if is_index_file_name(path.name))


def delete_expired_indexes(output: Path, log_begin: int, disk: Disk) -> int:
    """Delete files whose messages all lie before `log_begin`; returns how many. Raises StoreAccessError."""
    gone = [path for path in index_paths(output)[:-1] if _end_of_index(path) < log_begin]
    for folder in (output / CONSUME_QUEUE_FOLDER).glob("*/*"):
        files = sorted(
            path for path in folder.iterdir() if parse_offset_file_name(path.name) is not None
        )
        for path in files[:-1]:
            if _last_entry(path) >= log_begin:
                break
            gone.append(path)
    for path in gone:
        disk.delete(path)
    for folder in {path.parent for path in gone}:
        disk.sync_folder(folder)
    return len(gone)


def _end_of_index(path: Path) -> int:
    with FileReader(str(path)) as reader:
        return decode_header(reader.read(0, HEADER_BYTES)).end_physical_offset


def _last_entry(path: Path) -> int:
    """Physical offset of the last entry of a ConsumeQueue file that is full."""
    with FileReader(str(path)) as reader:
        return decode_entry(
            reader.read(path.stat().st_size - ENTRY_BYTES, ENTRY_BYTES)
        ).physical_offset
