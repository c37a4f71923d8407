"""Parse and format numbers of bytes."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,18})\s*(?:([kmgt])(i?b)?|b)?", re.IGNORECASE)
_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_size(text: str) -> int:
    """Parse a number of bytes. k, m, g and t stand for powers of 1024; kB, MB, GB and TB stand for powers of 1000.

    Raises ValueError.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a size: write 128MiB, or a number of bytes")
    base = 1000 if (match[3] or "").lower() == "b" else 1024
    return int(match[1]) * int(base ** ("kmgt".index(match[2].lower()) + 1) if match[2] else 1)


def format_size(size_bytes: float) -> str:
    """Format a number of bytes, as in `6.2 MiB`."""
    for step in _STEPS[:-1]:
        if abs(size_bytes) < 1024:
            return f"{size_bytes:,.0f} {step}" if step == "B" else f"{size_bytes:,.1f} {step}"
        size_bytes /= 1024
    return f"{size_bytes:,.1f} {_STEPS[-1]}"
