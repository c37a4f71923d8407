"""Make small CommitLogs: seeds from golden records, and files from an input."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.format.commit_log import MessageExt, RecordError, decode, encode, encode_blank
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from tests.golden.stores import GoldenStore, unpack

FILE_BYTES = 2048
MAX_BYTES = 4 * FILE_BYTES
_BLANK_BYTES = 8
_STORES = ("basic", "extremes", "lmq", "orders", "tricky")
_RECORDS = 8
_RECORD_BYTES = 700
_SEEDS = 12  # From each store, about.


def write_log(store: Path, data: bytes) -> Path:
    """Write `store`/commitlog with these bytes, cut into files. The last one is filled up with zeros."""
    folder = store / COMMIT_LOG_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for start in range(0, max(len(data), 1), FILE_BYTES):
        piece = data[start : start + FILE_BYTES].ljust(FILE_BYTES, b"\0")
        (folder / offset_file_name(start)).write_bytes(piece)
    return store


def log_seeds() -> list[bytes]:
    """Return logs with a few golden records each, laid out again for small files, so that every offset is right."""
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        for name in _STORES:
            store = GoldenStore(name, unpack(name, Path(folder)))
            messages = _messages(store.path)
            step = max(len(messages) // _SEEDS, 1)
            seeds += [_lay_out(messages[n : n + _RECORDS]) for n in range(0, len(messages), step)]
    return seeds


def _messages(store: Path) -> list[MessageExt]:
    log = CommitLogReader(StoreLog(store))
    try:
        found = [decode(record.data, record.layout.position) for record in LogWalk(log, 0)]
    finally:
        log.close()
    return [message for message in found if _is_small(message)]


def _is_small(message: MessageExt) -> bool:
    try:
        return len(encode(message)) <= _RECORD_BYTES
    # Values that no writer makes, such as a negative length of a body, cannot be encoded.
    except RecordError:
        return False


def _lay_out(messages: list[MessageExt]) -> bytes:
    log = bytearray()
    for message in messages:
        left = FILE_BYTES - len(log) % FILE_BYTES
        if message.size_bytes + _BLANK_BYTES > left:
            log += encode_blank(left).ljust(left, b"\0")
        log += encode(replace(message, physical_offset=len(log)))
    return bytes(log)
