"""What to do about damage."""

from __future__ import annotations

from typing import Literal, get_args

from reput.errors import UsageError

OnCorrupt = Literal["fail", "skip", "row"]
"""What to do about damage: raise, leave it out and tell, or give it as a row of its own."""


def check_on_corrupt(value: str) -> OnCorrupt:
    """Raises UsageError."""
    if value not in get_args(OnCorrupt):
        raise UsageError(f"on_corrupt {value}: fail, skip or row", arguments=["on_corrupt"])
    return value  # type: ignore[return-value]
