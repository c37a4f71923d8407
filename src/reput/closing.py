"""The context manager that everything with a `close` is."""

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
        """Give back what is held."""
        raise NotImplementedError
