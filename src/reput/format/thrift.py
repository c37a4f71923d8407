"""Structs of Apache Thrift in the compact protocol, as Parquet files have them in their footer and page headers."""

from __future__ import annotations

from typing import Any, NamedTuple

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY = range(1, 9)
LIST, SET, MAP, STRUCT, UUID = range(9, 14)
"""The kinds of values."""
_DOUBLE_BYTES, _UUID_BYTES = 8, 16
_MOST_DEPTH = 16
_MOST_VARINT_BYTES = 10
MOST_VALUES = 1 << 20
"""Maximum number of fields and items that a reader decodes. They take at most about 250 MB of memory."""


class Items(NamedTuple):
    """A list, and the kind of its items."""

    kind: int
    values: list[Any]


class Struct:
    """The fields of a struct: integers, bytes, `Items`, structs, and None for other kinds."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: dict[int, tuple[int, Any]] = {}

    def has(self, number: int) -> bool:
        return number in self._fields

    def get(self, number: int, kind: int) -> Any:
        """Return a field; None if it is missing or has another kind. Readers skip fields of another kind."""
        own, value = self._fields.get(number, (kind, None))
        return value if own == kind else None

    def add(self, number: int, kind: int, value: Any) -> None:
        """Add a field. Raises ValueError if it exists: readers differ in which of the two they take."""
        if number in self._fields:
            raise ValueError(f"a struct has the field {number} twice")
        self._fields[number] = kind, value


class Reader:
    """Reads structs from bytes in the compact protocol. `at` is the position up to which they were read."""

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self._data, self.at = data, at
        self._left = MOST_VALUES

    def struct(self, depth: int = 0) -> Struct:
        """Read a struct. Raises ValueError."""
        if depth > _MOST_DEPTH:
            raise ValueError("structs are nested too deeply")
        struct = Struct()
        number = 0
        while head := self._byte():
            # If the difference from the previous field's number fits in four bits, only the difference is stored.
            kind, delta = head & 15, head >> 4
            number = number + delta if delta else self._integer()
            self._count(1)
            struct.add(number, kind, None if kind in (TRUE, FALSE) else self._value(kind, depth))
        return struct

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return self._integer()
        if kind == BINARY:
            return self._taken(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._list(depth + 1)
        if kind in (TRUE, FALSE, BYTE):
            return self._byte()
        if kind == MAP:
            self._skip_map(depth + 1)
        elif kind in (DOUBLE, UUID):
            self._taken(_DOUBLE_BYTES if kind == DOUBLE else _UUID_BYTES)
        else:
            raise ValueError(f"a field has the unknown type {kind}")
        return None

    def _list(self, depth: int) -> Items:
        if depth > _MOST_DEPTH:
            raise ValueError("lists are nested too deeply")
        head = self._byte()
        # Fifteen means that the count follows.
        count = head >> 4 if head >> 4 < 15 else self._varint()
        self._check_count(count)
        return Items(head & 15, [self._value(head & 15, depth) for _ in range(count)])

    def _skip_map(self, depth: int) -> None:
        if depth > _MOST_DEPTH:
            raise ValueError("maps are nested too deeply")
        count = self._varint()
        self._check_count(count)
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._value(kinds >> 4, depth)
            self._value(kinds & 15, depth)

    def _check_count(self, count: int) -> None:
        # Each item takes at least a byte.
        if count > len(self._data) - self.at:
            raise ValueError("a list has more items than bytes")
        self._count(count)

    def _count(self, values: int) -> None:
        # An item of one byte takes a hundred bytes as an object.
        self._left -= values
        if self._left < 0:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")

    def _taken(self, length: int) -> bytes:
        if length > len(self._data) - self.at:
            raise ValueError("a value is cut off")
        self.at += length
        return bytes(self._data[self.at - length : self.at])

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ValueError("a struct is cut off")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for place in range(_MOST_VARINT_BYTES):
            byte = self._byte()
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise ValueError("an integer has too many bytes")

    def _integer(self) -> int:
        value = self._varint()
        # Zigzag encoding: the lowest bit is the sign.
        return value >> 1 ^ -(value & 1)
