"""`reput.find`: the messages with a key, in one store or in many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple, Unpack

from reput.arguments import Time, checked, optional_milliseconds
from reput.clock import format_time
from reput.errors import UsageError
from reput.format.commit_log import MessageExt
from reput.messages.json_codec import message_fields
from reput.notebook import Report
from reput.operations.named_stores import NamedStore
from reput.operations.stores import (
    StoreAnswer,
    Stores,
    in_threads,
    open_named,
    raise_if_misused,
    stores_in_words,
    stores_of,
)
from reput.query.answers import QueryResult, coverage_fields
from reput.store.store_reader import ReaderOptions
from reput.text import one_line, printable

StorePath = str | PathLike[str]
_AT_ONCE = 32  # a query mostly waits, for a disk or for object storage
_NAME_WIDTH, _KEYS_WIDTH = 40, 60


class FoundMessage(NamedTuple):
    """A message, and the name of the store that it lies in."""

    store: str
    message: MessageExt


@dataclass(frozen=True, slots=True, repr=False)
class FindReport(Report):
    """The messages of all stores, newest first, and how much of each store was searched.

    Attributes:
        messages: By falling store time.
        answers: One per store, in the order of the stores; a store that could not be read has an error.
        is_limited: Whether a limit left out older messages.
    """

    messages: tuple[FoundMessage, ...]
    answers: tuple[StoreAnswer[QueryResult], ...]
    is_limited: bool = False

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[FoundMessage]:
        return iter(self.messages)

    @property
    def is_complete(self) -> bool:
        """Whether each store could be read, and read whole."""
        return all(one.is_complete for one in self.answers)

    @property
    def headline(self) -> str:
        count, stores = len(self.messages), len({found.store for found in self.messages})
        total = self.total()
        text = f"{count:,} message{'' if count == 1 else 's'}" if count else "No message"
        text += f" in {stores:,} of {len(self.answers):,} stores" if len(self.answers) > 1 else ""
        text += ", and there are older ones" if self.is_limited else ""
        failed, unreadable = total["failed"], total["unreadable_bytes"]
        text += f"; {stores_in_words(failed)} could not be read" if failed else ""
        return text + (f"; {unreadable:,} bytes could not be read" if unreadable else "")

    def lines(self) -> Iterator[str]:
        for store, message in self.messages:
            place = (
                f"{one_line(message.topic, _NAME_WIDTH)}/{message.queue_id}/{message.queue_offset}"
            )
            keys = one_line(" ".join(message.keys), _KEYS_WIDTH)
            where = f"  {printable(store)}" if len(self.answers) > 1 else ""
            yield f"{format_time(message.store_timestamp)}{where}  {place}  {keys}".rstrip()
        yield f"{self.headline}."
        for one in self.answers:
            if one.error is not None:
                yield printable(f"reput: {one.store}: not searched: {one.error}")
            covered = one.report.coverage if one.report else None
            for said in (*covered.notes, *covered.unreadable) if covered else ():
                yield printable(f"reput: {one.store}: {said}")

    def coverage(self) -> list[dict[str, Any]]:
        """Return how much of each store was searched, one object per store."""
        return [
            {
                "store": one.store,
                "path": one.path,
                "is_complete": one.is_complete,
                "error": None if one.error is None else str(one.error),
                **_searched(one.report),
            }
            for one in self.answers
        ]

    def total(self) -> dict[str, Any]:
        """Return the sums of the coverage over all stores."""
        rows = self.coverage()
        sums = {name: sum(row[name] for row in rows) for name in _SUMMED}
        failed = sum(one.error is not None for one in self.answers)
        return {"stores": len(rows), "failed": failed, "is_complete": self.is_complete, **sums}

    def as_dict(self) -> dict[str, Any]:
        return {
            "messages": [{"store": store, **message_fields(one)} for store, one in self.messages],
            "is_limited": self.is_limited,
            "total": self.total(),
            "stores": self.coverage(),
        }


_SUMMED = ("log_bytes", "indexed_bytes", "scanned_bytes", "unreadable_bytes")


@checked
def find(
    stores: Stores,
    key: str,
    *,
    topic: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    limit: int | None = None,
    on_answer: Callable[[StoreAnswer[QueryResult]], None] = lambda answer: None,
    **reading: Unpack[ReaderOptions],
) -> FindReport:
    """Find all messages that have a key, in one store or in many, newest first.

    Args:
        stores: Paths, URLs, patterns of these, or NamedStores; each store is searched once.
        key: A unique key, or one of a message's KEYS.
        topic: Messages of this topic only.
        begin: Stored at this time or later.
        end: Stored at this time or earlier.
        limit: Maximum number of messages, the newest of all stores.
        on_answer: Called with the answer of each store as soon as it is known.
        reading: Settings as for `open_store`; the options of a NamedStore take precedence.

    Raises:
        UsageError: no store is named, or an argument is wrong. A store that cannot be read raises nothing: the
            report names it, and is incomplete.
    """
    bounds = {"begin": optional_milliseconds(begin), "end": optional_milliseconds(end)}
    named = stores_of(stores, reading.get("storage_options"))
    if len(named) > 1 and reading.get("index") is not None:
        raise UsageError(f"index: for one store, not {len(named)}", arguments=["index"])

    def ask(store: NamedStore) -> QueryResult:
        with open_named(store, **reading) as opened:
            return opened.query(topic, key, limit=limit, **bounds)

    answers: list[StoreAnswer[QueryResult] | None] = [None] * len(named)
    for place, answer in in_threads(ask, named, _AT_ONCE):
        answers[place] = answer
        on_answer(answer)
    known = tuple(answer for answer in answers if answer is not None)
    raise_if_misused(known)
    found = [
        FoundMessage(answer.store, message) for answer in known for message in answer.report or ()
    ]
    found.sort(key=lambda one: one.message.store_timestamp, reverse=True)
    is_cut = any(answer.report and answer.report.cursor is not None for answer in known)
    is_limited = is_cut or (limit is not None and len(found) > limit)
    return FindReport(tuple(found[:limit]), known, is_limited)


def _searched(found: QueryResult | None) -> Mapping[str, Any]:
    if found is None:
        return {**dict.fromkeys(_SUMMED, 0), "searched": None}
    covered = found.coverage
    return {
        "log_bytes": covered.log.size_bytes,
        "indexed_bytes": covered.indexed_bytes,
        "scanned_bytes": covered.scanned_bytes,
        "unreadable_bytes": covered.unreadable_bytes,
        "searched": coverage_fields(covered),
    }
