"""What is wrong with a file, and where."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that cannot be right: the file, the byte in it, why. Its text is one line."""

    path: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: offset {self.offset}: {self.reason}"
