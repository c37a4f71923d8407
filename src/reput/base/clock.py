"""Read the clock, and convert times and durations from and to text.

In this package, times are always milliseconds since 1970 in UTC.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_EPOCH_MS = re.compile(r"[+-]?\d+")
_AGO = re.compile(r"(?:(\d+(?:\.\d+)?|an?)\s*([a-z]+)\s+ago|now)", re.IGNORECASE)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]+)", re.IGNORECASE)
_UNITS_MS = {
    "ms": 1,
    "s": 1_000, "sec": 1_000, "second": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000,
    "d": 86_400_000, "day": 86_400_000,
    "w": 604_800_000, "week": 604_800_000,
}  # fmt: skip
_INT64 = 1 << 63
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
DAY_MS = _UNITS_MS["day"]
# Times in seconds from 2001 to 2106. Read as milliseconds, they are in the first weeks of 1970, before any broker.
SECONDS = range(1_000_000_000, 4_300_000_000)
_MOST_DAYS = 3650
_LONG_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def now_ms() -> int:
    """Return the current time in milliseconds since 1970 in UTC."""
    return time.time_ns() // 1_000_000


def format_duration(duration_ms: int) -> str:
    """Format a duration in its two largest units: `6 d 23 h`, `20 h 51 min`, `3.2 s`, `12 ms`."""
    sign, rest = ("-" if duration_ms < 0 else ""), abs(duration_ms)
    if rest < 1_000:
        return f"{sign}{rest} ms"
    if rest < 60_000:
        return f"{sign}{rest / 1_000:.1f} s"
    for (unit, unit_ms), (smaller, smaller_ms) in pairwise(_LONG_UNITS_MS):
        if rest >= unit_ms:
            return f"{sign}{rest // unit_ms:,} {unit} {rest % unit_ms // smaller_ms} {smaller}"
    raise AssertionError(duration_ms)


def format_days(days: float) -> str:
    """Format an estimated number of days: `12.3`, `413`, or `> 3,650` for more than ten years."""
    if days >= _MOST_DAYS:
        return f"> {_MOST_DAYS:,}"
    return f"{days:.1f}" if days < 100 else f"{days:,.0f}"


def parse_duration(text: str) -> int:
    """Parse a duration such as `36h` or `1.5 days`, in milliseconds. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    unit = match and (_UNITS_MS.get(match[2].lower()) or _UNITS_MS.get(match[2].lower()[:-1]))
    if not match or not unit:
        raise ValueError(
            f"{text!r} is not a duration: write a number and a unit, as in 90s, 36h or 2d"
        )
    return int(float(match[1]) * unit)


def looks_like_seconds(time: float) -> bool:
    """Return whether a number that should be milliseconds since 1970 is probably seconds."""
    return SECONDS.start <= time < SECONDS.stop


def parse_time(text: str, now_ms: int, *, is_end: bool = False) -> int:
    """Parse a time: ISO 8601 (UTC if it has no zone), milliseconds since 1970, `2h ago` or `now`.

    Args:
        text: The time.
        now_ms: The current time.
        is_end: Whether the time ends a window. Then a date without a time means the last millisecond of this day.

    Returns milliseconds since 1970. Raises ValueError, whose message is for users.
    """
    text = text.strip()
    if _EPOCH_MS.fullmatch(text):
        return _checked_ms(text)
    if ago := _AGO.fullmatch(text):
        return now_ms - _ago_ms(ago[1], ago[2])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: write 2026-10-14T08:35:06, milliseconds since 1970, "
            "or '2h ago'"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    rest_of_day = DAY_MS - 1 if is_end and _DATE.fullmatch(text) else 0
    return (moment - _EPOCH) // _MS + rest_of_day


def format_time(timestamp_ms: int, *, to_second: bool = False) -> str:
    """Format a time as `2026-10-14T08:35:06.637Z`, or as a number if it is outside the calendar.

    `to_second`: without the milliseconds.
    """
    try:
        moment = _EPOCH + timestamp_ms * _MS
    except OverflowError:
        return f"{timestamp_ms} ms"
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}".rjust(23, "0")
    return f"{text[:19] if to_second else text}Z"


def table_time(timestamp_ms: int, length: int = 23) -> str:
    """Format a time for a table, as `2026-10-14 08:35:06.637`. With a `length` of 19, it ends after the second."""
    text = format_time(timestamp_ms)
    return text[:length].replace("T", " ") if text.endswith("Z") else text


def _checked_ms(text: str) -> int:
    # Check the length first: int() takes quadratic time.
    if len(text) > 20 or not -_INT64 <= int(text) < _INT64:
        raise ValueError(f"{text[:24]!r} does not fit into 64 bits as milliseconds")
    if looks_like_seconds(int(text)):
        raise ValueError(in_seconds(int(text)))
    return int(text)


def in_seconds(time: int) -> str:
    """Return what to say about a time in seconds."""
    return f"{time} looks like seconds since 1970; times are milliseconds: pass {time}000"


def _ago_ms(amount: str | None, unit: str | None) -> int:
    if amount is None or unit is None:
        return 0  # The text is the word "now".
    unit = unit.lower()
    unit_ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
    if unit_ms is None:
        raise ValueError(f"{unit!r} is not a unit of time: ms, s, min, h, days or weeks")
    count = 1.0 if amount.lower() in ("a", "an") else float(amount)
    return int(count * unit_ms)
