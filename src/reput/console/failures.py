"""An error as an answer over HTTP: which status, and what kind it is."""

from __future__ import annotations

from typing import NamedTuple

from reput.errors import (
    FormatError,
    MessageNotFoundError,
    ReputError,
    StoreNotFoundError,
    UsageError,
)


class Failure(NamedTuple):
    """A status, a word for programs, a heading and a sentence for people."""

    status: int
    kind: str
    title: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """A failure is never a "not found": what is damaged or unreadable has kinds of its own."""
        if isinstance(error, UsageError):
            return cls(400, "usage", "This cannot be asked", str(error))
        if isinstance(error, (MessageNotFoundError, StoreNotFoundError)):
            return cls(404, "not_found", "Not found", str(error))
        if isinstance(error, FormatError):
            return cls(500, "damaged", "The store is damaged here", str(error))
        if isinstance(error, ReputError):
            return cls(500, "unreadable", "The store cannot be read", str(error))
        return cls(500, "internal", "Something went wrong", "the server's log says what")

    def as_json(self) -> dict[str, object]:
        return {"error": {"kind": self.kind, "message": self.text}}
