"""Bytes that go to another process as a file descriptor: a message to it need not have room for them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def passed_bytes(data: bytes) -> Iterator[int]:
    """A descriptor of a file without a name that holds these bytes, as long as the context lasts. Raises OSError."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.fileno()


def received_bytes(descriptor: int) -> bytes:
    """The bytes of a descriptor that another process has passed; it is closed. Raises OSError."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read()
