"""Stores of a few messages, made for a test: only a CommitLog."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reput.format.commit_log import MessageExt, encode
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.host import Host

FILE_BYTES = 1 << 16
STORED = 1_791_794_106_637

MESSAGE = MessageExt(
    topic="T", queue_id=0, queue_offset=0, physical_offset=0, size_bytes=0, flag=0, sys_flag=0,
    body_crc=0, born_timestamp=STORED - 5, born_host=Host("10.0.0.1", 1234),
    store_timestamp=STORED, store_host=Host("10.0.0.2", 10911), reconsume_times=0,
    prepared_transaction_offset=0, body=b"hello", properties_bytes=b"KEYS\x01k",
)  # fmt: skip


def write_store(folder: Path, messages: Sequence[MessageExt]) -> Path:
    """A store whose CommitLog has these messages, one behind the other in one file."""
    log = bytearray()
    for number, message in enumerate(messages):
        log += encode(replace(message, physical_offset=len(log), queue_offset=number))
    path = folder / COMMIT_LOG_FOLDER / offset_file_name(0)
    path.parent.mkdir(parents=True)
    path.write_bytes(log.ljust(FILE_BYTES, b"\0"))
    return folder
