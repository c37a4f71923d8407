"""Whether a file has enough dirty pages to be worth a flush."""

from __future__ import annotations

import mmap


def is_worth_a_flush(flushed: int, written: int, least_pages: int, file_bytes: int) -> bool:
    """Whether bytes from `flushed` to `written` are, of files of that size one after the other.

    A file that is full always is; least_pages 0 asks for any byte.
    Source: `MappedFile.isAbleToFlush` (tag rocketmq-all-4.9.3).
    """
    if written <= flushed or written // file_bytes > flushed // file_bytes:
        return written > flushed
    return written // mmap.PAGESIZE - flushed // mmap.PAGESIZE >= least_pages
