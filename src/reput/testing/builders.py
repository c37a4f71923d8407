"""Build messages and CommitLogs for tests directly, without a broker or a writable store."""

from __future__ import annotations

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
"""A message of topic T, queue 0, with the key `k`. Create other messages from it with `dataclasses.replace`."""


def write_log(
    folder: str | Path, messages: Sequence[MessageExt], file_bytes: int = FILE_BYTES
) -> Path:
    """Write a store of one CommitLog file that contains exactly these messages, in order.

    Physical offsets and sizes of the messages are set to their real values, queue offsets to 0, 1, 2 and so on. The
    rest of the file is zero, as in a broker's file.

    Args:
        folder: The directory of the store. It is created.
        messages: The messages of the log.
        file_bytes: Size of the file in bytes. The file becomes larger if the messages need more.

    Returns:
        `folder`, which can be passed to `reput.open_store`, `reput.rebuild` and other functions.
    """
    log = bytearray()
    for number, message in enumerate(messages):
        log += encode(replace(message, physical_offset=len(log), queue_offset=number))
    path = Path(folder) / COMMIT_LOG_FOLDER / offset_file_name(0)
    path.parent.mkdir(parents=True)
    path.write_bytes(log.ljust(file_bytes, b"\0"))
    return Path(folder)
