"""Topics that are asked for and that no queue of the stores is of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

from reput.errors import MissingExtraError, StoreError
from reput.log.sources import LogListing
from reput.nearest import nearest_first
from reput.queues.store_queues import open_queues

_MOST_NAMES = 5


def unknown_topics(sources: Sequence[LogListing], topics: Iterable[str]) -> list[str]:
    """A line for each of the topics that no store has a queue of, with the names that there are, nearest first.

    None where a store is not on this machine, or has no queues: then it does not show which topics exist.
    """
    known: set[str] = set()
    for source in sources:
        own = _topics_of(source)
        if not own:
            return []
        known.update(own)
    return [_line(topic, sorted(known)) for topic in topics if topic not in known]


def _topics_of(source: LogListing) -> Sequence[str]:
    if source.folder is None:
        return ()
    try:
        with closing(open_queues(source.folder)) as queues:
            return queues.topics()
    except (StoreError, MissingExtraError):
        return ()


def _line(topic: str, known: list[str]) -> str:
    names = nearest_first(topic, known)[:_MOST_NAMES]
    more = len(known) - len(names)
    return f"no queue of topic {topic}; there are {', '.join(names)}" + (
        f" and {more:,} more" if more else ""
    )
