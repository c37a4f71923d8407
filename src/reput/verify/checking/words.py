"""Words that findings share."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(timestamp_ms: int) -> str:
    """A store timestamp to the second, or the number itself where it is no time of a calendar."""
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def between(first_ms: int, last_ms: int) -> str:
    first, last = time_text(first_ms), time_text(last_ms)
    return f"at {first}" if first == last else f"between {first} and {last}"


def counted(count: int, noun: str) -> str:
    """`1 key`, `1,707 keys`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
