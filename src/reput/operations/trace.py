"""`reput.trace`: follow one message through topics and stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Unpack

from reput.arguments import checked
from reput.errors import UsageError
from reput.examine.trace import trace as trace_life
from reput.examine.tracing.life import TRACE_SCHEMA, Life, life_fields
from reput.notebook import Report
from reput.operations.trace_text import life_lines, problems_of
from reput.query.open_store import open_store
from reput.store.store_reader import ReaderOptions

StorePath = str | PathLike[str]


@dataclass(frozen=True, slots=True, repr=False)
class TraceReport(Report):
    """The records of a message in order of time, and what happened to it.

    Attributes:
        stores: Paths of the stores that were searched.
        asked: The key, message id and topic that were asked for.
        life: Events, reasons and coverage.
    """

    stores: tuple[str, ...]
    asked: dict[str, str | None]
    life: Life

    @property
    def is_complete(self) -> bool:
        """Whether all that was searched could be read."""
        return self.life.is_complete

    @property
    def headline(self) -> str:
        return f"{len(self.life.events):,} records in {len(self.stores):,} stores"

    def __len__(self) -> int:
        return len(self.life.events)

    def lines(self) -> Iterator[str]:
        yield from life_lines(self.life)
        for problem in problems_of(self.life):
            yield f"reput: {problem}"

    def header(self) -> dict[str, Any]:
        """Return the first object of the trace as JSON lines."""
        return {"schema": TRACE_SCHEMA, "stores": list(self.stores), **self.asked}

    def as_dict(self) -> dict[str, Any]:
        *parts, end = life_fields(self.life)
        return {
            **self.header(),
            "events": [part for part in parts if "event" in part],
            "reasons": [part for part in parts if "reason" in part],
            "end": end,
        }


@checked
def trace(
    stores: StorePath | Sequence[StorePath],
    *,
    key: str | None = None,
    message_id: str | None = None,
    topic: str | None = None,
    most_messages: int = 100,
    most_entries: int = 20_000,
    **reading: Unpack[ReaderOptions],
) -> TraceReport:
    """Find everything that stores have of a message, and say what happened to it.

    Args:
        stores: A store or several.
        key: One of the message's KEYS, or its unique key; or
        message_id: its offset message id or unique key.
        topic: The topic in which to look for the key; None for all.
        most_messages: Messages per look-up, newest first.
        most_entries: Messages read per store from retry, dead letter, schedule and op queues.
        reading: Settings as for `open_store`.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    if (key is None) == (message_id is None):
        raise UsageError("pass one of key and message_id", arguments=["key", "message_id"])
    paths = [stores] if isinstance(stores, str | PathLike) else list(stores)
    if reading.get("index") is not None and len(paths) > 1:
        raise UsageError(f"index: is for one store, not {len(paths)}", arguments=["index"])
    with ExitStack() as stack:
        opened = [stack.enter_context(open_store(path, **reading)) for path in paths]
        life = trace_life(
            opened, key=key, message_id=message_id, topic=topic,
            most_messages=most_messages, most_entries=most_entries,
        )  # fmt: skip
    asked = {"key": key, "message": message_id, "topic": topic}
    return TraceReport(tuple(fspath(path) for path in paths), asked, life)
