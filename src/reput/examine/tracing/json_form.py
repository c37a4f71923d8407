"""A trace as JSON: what `reput trace` prints, described in docs/trace.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reput.examine.tracing.life import Event, Life, StoreCoverage
from reput.messages.json_codec import message_fields
from reput.store.coverage_text import coverage_fields

TRACE_SCHEMA = "reput-trace/1"
"""Raised with every change that a program would have to know of; see docs/trace.md."""


def life_fields(life: Life, most_body_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """An object per event, per reason, then the end; see `message_fields` for longer bodies."""
    for event in life.events:
        yield _event_fields(event, most_body_bytes)
    for reason in life.reasons:
        yield {"reason": reason.kind, "text": reason.text, "events": reason.events}
    yield {
        "complete": life.is_complete,
        "events": len(life.events),
        "searched": [_searched_fields(one) for one in life.searched],
    }


def _event_fields(event: Event, most_body_bytes: int | None) -> dict[str, Any]:
    return {
        "event": event.role,
        "store": event.store,
        "life": event.life,
        "gap_ms": event.gap_ms,
        "found_by": event.found_by,
        "due_ms": event.due_ms,
        "queued": event.is_queued,
        "group": event.group,
        "message": message_fields(event.message, most_body_bytes),
    }


def _searched_fields(searched: StoreCoverage) -> dict[str, Any]:
    return {
        "store": searched.store,
        "complete": searched.is_complete,
        "shortened": searched.is_shortened,
        "unread": searched.unread,
        **coverage_fields(searched.coverage),
        "unreadable": [
            one.as_json() for one in (*searched.coverage.unreadable, *searched.problems)
        ],
    }
