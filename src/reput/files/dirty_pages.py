"""Decide whether a file has enough dirty pages to be worth a flush."""

from __future__ import annotations

import mmap


def is_worth_a_flush(flushed: int, written: int, least_pages: int, file_bytes: int) -> bool:
    """Return whether the bytes from `flushed` to `written` are worth a flush, in consecutive files of `file_bytes`.

    A full file always is. With least_pages 0, any byte is. Source: `MappedFile.isAbleToFlush` (tag rocketmq-all-4.9.3).
    """
    if written <= flushed or written // file_bytes > flushed // file_bytes:
        return written > flushed
    return written // mmap.PAGESIZE - flushed // mmap.PAGESIZE >= least_pages
