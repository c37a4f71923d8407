"""Root without its right to ignore the modes of files, so that tests of refused access run as every user."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# linux/capability.h: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
_IGNORE_MODES = 1 << 1 | 1 << 2
_VERSION_3 = 0x20080522
_EFFECTIVE = 0  # the first of the words effective, permitted, inheritable; three more are of higher capabilities


@contextmanager
def ordinary_rights() -> Iterator[None]:
    """Take the right to ignore the modes of files from this thread, and from threads that it starts.

    A process that it starts as root has the right again.
    """
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root may read and write everything")
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    words = (ctypes.c_uint32 * 6)()

    def call(name: str) -> None:
        if getattr(libc, name)(header, words) != 0:
            raise OSError(ctypes.get_errno(), "the capabilities of this thread cannot be changed")

    call("capget")
    before = words[_EFFECTIVE]
    words[_EFFECTIVE] = before & ~_IGNORE_MODES
    call("capset")
    try:
        yield
    finally:
        words[_EFFECTIVE] = before
        call("capset")
