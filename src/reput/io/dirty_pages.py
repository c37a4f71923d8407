"""Decide whether a file has enough dirty pages for a flush."""

from __future__ import annotations

import mmap


def is_worth_a_flush(flushed: int, written: int, least_pages: int, file_bytes: int) -> bool:
    """Return whether to flush the bytes from offset `flushed` to offset `written`.

    Both offsets count from the start of a sequence of files, each `file_bytes` long. A full file is always flushed.
    With least_pages 0, any byte is enough. Source: `MappedFile.isAbleToFlush` (tag rocketmq-all-4.9.3).

    In RocketMQ: OS_PAGE_SIZE.
    """
    if written <= flushed or written // file_bytes > flushed // file_bytes:
        return written > flushed
    return written // mmap.PAGESIZE - flushed // mmap.PAGESIZE >= least_pages
