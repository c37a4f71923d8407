"""The permitted outcomes for bytes that are not a store."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

from reput.errors import ReputError


def allowed() -> AbstractContextManager[object]:
    """Let a ReputError end the block: bad bytes were reported as such."""
    return suppress(ReputError)
