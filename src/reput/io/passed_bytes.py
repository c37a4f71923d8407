"""Pass bytes to another process as a file descriptor, because they may be too large for a message between processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def passed_bytes(data: bytes) -> Iterator[int]:
    """Yield the descriptor of a nameless file with these bytes, open during the with block. Raises OSError."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.fileno()


def received_bytes(descriptor: int) -> bytes:
    """Return the bytes of a descriptor that another process has passed, and close it. Raises OSError."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read()
