"""What could not be read of a CommitLog."""

from __future__ import annotations

from typing import NamedTuple


class Damage(NamedTuple):
    """Bytes of the CommitLog that could not be read as records: physical offset, length, file, why."""

    physical_offset: int
    length: int
    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: offset {self.physical_offset}: {self.length} bytes lost: {self.reason}"
        )
