"""Describe the layout of a structure in a file as one table of its fields.

The fields are big endian and follow each other without padding. Everything that depends on the layout derives from its
table: the struct that reads all fields or a few of them, the columns of a NumPy dtype, and the positions that kernels
use.
"""

from __future__ import annotations

import struct
from itertools import accumulate


class Layout:
    """The fields of a structure, in their order, and what derives from them.

    Args:
        codes: The code of each field in `struct`: b, h, i, q for integers of 1, 2, 4, 8 bytes, 4s for four raw bytes.

    Attributes:
        codes: the fields' codes
        struct: reads and writes all fields
        size: size of the structure in bytes
        positions: the byte at which each field begins
    """

    __slots__ = ("codes", "positions", "size", "struct")

    def __init__(self, **codes: str) -> None:
        self.codes = codes
        self.struct = struct.Struct(">" + "".join(codes.values()))
        self.size = self.struct.size
        ends = accumulate((struct.calcsize(">" + code) for code in codes.values()), initial=0)
        self.positions = dict(zip(codes, ends, strict=False))

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Return the fields of a NumPy dtype of this structure."""
        return tuple(
            (name, ("V" if code.endswith("s") else ">i") + str(struct.calcsize(">" + code)))
            for name, code in self.codes.items()
        )

    def reader(self, *names: str) -> struct.Struct:
        """Return a struct that reads some fields, in their order, from the start of the structure."""
        return struct.Struct(">" + self._form(names))

    def whole(self, *names: str) -> str:
        """Return a format of `struct` that reads some fields, in their order, and has the size of the structure."""
        form = self._form(names)
        return f"{form}{self.size - struct.calcsize('>' + form)}x"

    def _form(self, names: tuple[str, ...]) -> str:
        form, end = "", 0
        for name in names:
            form += f"{self.positions[name] - end}x{self.codes[name]}"
            end = self.positions[name] + struct.calcsize(">" + self.codes[name])
        return form
