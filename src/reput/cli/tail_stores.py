"""Run `reput tail` over several stores: print one list of messages in order of their store times."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.output import pause, say_waiting, warn
from reput.cli.query_view import FoundPrinter
from reput.core import MessageStore
from reput.engine.messages import LogTail, TailFilter
from reput.engine.stores import FoundMessage, NamedStore, answered_by, in_threads, open_named
from reput.errors import StoreError, StoreNotFoundError

# Opening stores is mostly waiting for disks and object storage, so use many threads.
_AT_ONCE = 32
_TOGETHER = 256


def tail_stores(
    stores: Sequence[NamedStore],
    predicate: TailFilter,
    lines: int | None,
    layout: str,
    is_safe: bool,
    follow: bool,
    opening: dict[str, Any],
) -> int:
    """Print the last messages of all stores, and with `follow` new ones; return the exit code."""
    if lines is None and predicate.has_window and not follow:
        # Set a maximum number of lines, although all messages of these times are wanted: with a maximum, the messages
        # are found through the ConsumeQueues, and the logs are not read from their beginnings.
        lines = sys.maxsize
    show = FoundPrinter(layout, is_safe=is_safe).print
    with ExitStack() as stack:
        tails = _Tails(stack, stores, predicate, opening, follow)
        existing, count = tails.existing(lines), 0
        while batch := list(islice(existing, _TOGETHER)):
            show(batch)
            count += len(batch)
        is_damaged = tails.told_problems()
        while follow:
            messages = tails.new()
            show(messages)
            tails.told_problems()
            if not messages:
                pause()
    if is_damaged:
        return DAMAGED
    return FOUND if count else NOT_FOUND


class _OpenStore(NamedTuple):
    """An open store. Like a report, it has the field `is_complete`, which `in_threads` reads."""

    store: MessageStore
    is_complete: bool = True


class _Tails:
    """The ends of the logs of several stores. A message that several replicas have is returned once."""

    def __init__(
        self,
        stack: ExitStack,
        stores: Sequence[NamedStore],
        predicate: TailFilter,
        opening: dict[str, Any],
        follow: bool,
    ) -> None:
        self._stack, self._predicate, self._opening, self._follow = (
            stack,
            predicate,
            opening,
            follow,
        )
        self._logs = {store.name: store.log_name for store in stores}
        self._tails: dict[str, LogTail] = {}
        self._waiting: list[NamedStore] = []
        self._newest: dict[tuple[str, ...], int] = {}
        self._problems: list[str] = []
        openings = dict(in_threads(self._open, stores, _AT_ONCE))
        replaced = answered_by(stores, [openings[n].report is not None for n in range(len(stores))])
        # Add masters first. If a message has equal store times in master and replica, the master's is printed.
        for place in sorted(openings, key=lambda place: (stores[place].broker_id or 0, place)):
            answer = openings[place]
            if answer.report is not None:
                self._add(stores[place], answer.report.store)
            elif follow and isinstance(answer.error, StoreNotFoundError):
                say_waiting(answer.store)
                self._waiting.append(stores[place])
            elif replica := replaced.get(answer.store):
                warn(
                    f"{answer.store}: not read: {answer.error}; its replica {replica} is read in its place"
                )
            else:
                self._problems.append(f"{answer.store}: not read: {answer.error}")

    def _open(self, store: NamedStore) -> tuple[_OpenStore, int]:
        reader = open_named(store, **self._opening)
        return _OpenStore(reader), sum(file.size for file in reader.own_log.files)

    def _add(self, store: NamedStore, reader: MessageStore) -> None:
        self._tails[store.name] = LogTail(self._stack.enter_context(reader), self._predicate)

    def existing(self, lines: int | None) -> Iterator[FoundMessage]:
        """Return the last `lines` messages of all stores together, oldest first; all messages if `lines` is None."""
        messages = self._once(
            merge(
                *(self._of(name, tail, lines) for name, tail in self._tails.items()),
                key=lambda message: message.message.store_timestamp,
            )
        )
        if lines is None:
            return messages
        newest = list(messages)
        return iter(newest[max(len(newest) - lines, 0) :])

    def _of(self, name: str, tail: LogTail, lines: int | None) -> Iterator[FoundMessage]:
        try:
            messages = tail.new(to_the_end=not self._follow) if lines is None else tail.last(lines)
            for message in messages:
                yield FoundMessage(name, message)
        except StoreError as error:
            self._problems.append(f"{name}: not read further: {error}")

    def _once(self, messages: Iterable[FoundMessage]) -> Iterator[FoundMessage]:
        """Yield messages, but skip a message if another replica of the same broker has already returned it."""
        for message in messages:
            log, offset = self._logs[message.store], message.message.physical_offset
            # Replicas have the same log in the same order. So a message up to the last printed offset is a repetition.
            if len(log) == 1 or offset > self._newest.get(log, -1):
                self._newest[log] = offset
                yield message

    def new(self) -> list[FoundMessage]:
        """Return the messages that have arrived since the last call, in order of store time."""
        for store in self._waiting[:]:
            try:
                self._add(store, self._open(store)[0].store)
            except StoreNotFoundError:
                continue
            except StoreError as error:
                self._problems.append(f"{store.name}: not read: {error}")
            self._waiting.remove(store)
        messages = [
            message for name, tail in self._tails.items() for message in self._of(name, tail, None)
        ]
        messages.sort(key=lambda message: message.message.store_timestamp)
        return list(self._once(messages))

    def told_problems(self) -> bool:
        """Print problems since the last call; return whether there were any."""
        for name, tail in self._tails.items():
            self._problems += [f"{name}: {finding}" for finding in dict.fromkeys(tail.damage)]
            tail.damage = []
        problems, self._problems = list(dict.fromkeys(self._problems)), []
        warn(*problems)
        return bool(problems)
