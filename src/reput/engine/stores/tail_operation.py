"""Define `reput.tail`, which returns the last messages of a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, Unpack

from reput.base import Finding, Report, checked, counted, printable
from reput.core import ReaderOptions, wanted_tags
from reput.engine.messages import LogTail, TailFilter, message_fields, table_lines
from reput.engine.stores.opening import open_store
from reput.format.commit_log import MessageExt


@dataclass(frozen=True, slots=True, repr=False)
class TailReport(Report):
    """The last messages of a log, oldest first, and its unreadable parts."""

    messages: tuple[MessageExt, ...]
    damage: tuple[Finding, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether the evidence covers the log from the oldest message to the end."""
        return not self.damage

    @property
    def headline(self) -> str:
        count = len(self.messages)
        return counted(count, "message")

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[MessageExt]:
        return iter(self.messages)

    def lines(self) -> Iterator[str]:
        if self.messages:
            yield from table_lines(self.messages)
        for lost in self.damage:
            yield f"reput: {printable(str(lost))}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "messages": [message_fields(message) for message in self.messages],
            "damage": [lost.as_json() for lost in self.damage],
        }


@checked
def tail(
    store: str | PathLike[str],
    count: int = 10,
    *,
    topic: str | None = None,
    queue_id: int | None = None,
    key: str | None = None,
    tags: str | None = None,
    **reading: Unpack[ReaderOptions],
) -> TailReport:
    """Read the last messages of a store in the order of its CommitLog. Nothing is locked or written.

    Args:
        store: A store, or its URL.
        count: Number of messages.
        topic: Only messages of this topic.
        queue_id: Only messages of queues with this id.
        key: Only messages with this key or unique key.
        tags: Only messages with one of these tags, as in "a || b".
        reading: Settings as for `open_store`.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    predicate = TailFilter(topic, queue_id, key, frozenset(wanted_tags(tags)))
    with open_store(store, **reading) as reader:
        end = LogTail(reader, predicate)
        return TailReport(tuple(end.last(count)), tuple(dict.fromkeys(end.damage)))
