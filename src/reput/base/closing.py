"""Provide a base class for context managers with a method `close`."""

from __future__ import annotations

from typing import Self


class Closing:
    """Calls `close` at the end of the context."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError
