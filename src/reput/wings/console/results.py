"""Collect the results of one search over one or many stores, for a page that shows them as they are found."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from weakref import WeakValueDictionary

from reput.base import counted, did_you_mean, one_line
from reput.engine.messages import body_preview, coverage_in_words
from reput.engine.writer import MissingStore, SharedStore
from reput.errors import ReputError
from reput.format.commit_log import MessageExt
from reput.wings.console.arguments import Failure, SearchForm
from reput.wings.console.mounts import Until
from reput.wings.console.searching import Outcome, Progress, Share, Steps, search
from reput.wings.serve import HTTP

_LEAST_SHARE_BYTES = 64 << 10
_BEAT_S = 0.3
_PREVIEW, _KEYS, _TAGS = 240, 80, 32
_AT_WORK = BoundedSemaphore(HTTP.search_threads)
EXHAUSTED = -1
"""Cursor value of a store without older messages."""


@dataclass(frozen=True, slots=True)
class Row:
    """A message in a table. It has only a preview of the body, because many bodies would take much memory."""

    store: str
    physical_offset: int
    store_timestamp: int
    topic: str
    queue_id: int
    queue_offset: int
    tags: str
    keys: str
    body: str

    @classmethod
    def of(cls, store: str, message: MessageExt) -> Row:
        keys = " ".join(message.keys) or message.unique_key or ""
        return cls(
            store, message.physical_offset, message.store_timestamp, message.topic,
            message.queue_id, message.queue_offset, one_line(message.tags or "", _TAGS),
            one_line(keys, _KEYS), body_preview(message, _PREVIEW),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beat:
    """The progress of a search.

    Attributes:
        done: Number of finished stores.
        left_bytes: Bytes of log left to read in stores that are being searched.
        count: Number of found messages.
    """

    done: int
    left_bytes: int
    count: int


@dataclass(slots=True)
class _OfStore:
    """The part of a search in one store."""

    name: str
    rows: list[Row] = field(default_factory=list)
    outcome: Outcome | None = None
    failure: Failure | None = None
    left_bytes: int = 0

    def prefix(self, count: int) -> int:
        """Return `count`, or more if the page would otherwise end between two messages of one batch.

        The next page begins at a physical offset, which all messages of a batch share.
        """
        while 0 < count < len(self.rows) and (
            self.rows[count].physical_offset == self.rows[count - 1].physical_offset
        ):
            count += 1
        return count


class Results:
    """One search.

    Attributes:
        id: The id of the search, with which the user can stop it.
        total: Number of stores.
        count: Number of messages found so far.
        hits: Number of stores with messages.
        without: Number of stores that were searched completely and have no matching message.
        rows: With several stores: the messages to show, newest first; set at the end of the search. With one store:
            empty, because `rows_and_beats` yields the messages.
        is_stopped: Whether the user stopped the search.
        unsearched: Number of stores whose search was stopped, or ended at the time limit.
        failures: Stores that could not be searched, with the errors.
        missing: Number of configured stores that do not exist.
        problems: Reasons why messages may be missing.
        searched_ranges: The searched ranges, in sentences.
        cursors: By store, the cursor of older messages for the next page; empty if no store has older messages.
    """

    def __init__(
        self,
        stores: Sequence[tuple[str, SharedStore]],
        missing: Mapping[str, MissingStore],
        form: SearchForm,
        cursors: Mapping[str, int],
        until: Until,
    ) -> None:
        self._stores, self._form, self._start_cursors = stores, form, cursors
        self.id, self.until = secrets.token_urlsafe(16), until
        self.is_stopped = False
        self.has_one_store = len(stores) + len(missing) == 1
        self.total, self.missing = len(stores) + len(missing), len(missing)
        self.count = self.hits = self.without = self.unsearched = 0
        self.rows: list[Row] = []
        self.failures: list[tuple[str, Failure]] = []
        self.problems: list[str] = []
        self.searched_ranges: list[str] = []
        self.cursors: dict[str, int] = {}
        self._log_bytes = self._scanned_bytes = 0
        self._shown_to: dict[str, int | None] = {}
        """For each store with further rows: the cursor after its last shown row."""

    @property
    def has_older(self) -> bool:
        return bool(self.cursors)

    @property
    def advice(self) -> str | None:
        """Return a hint with similar topics if no searched store has the requested topic; else None.

        The hint is empty if no topic is similar. Also return None if the stores have no topics at all: consumequeue/
        may be lost, so the requested topic may exist.
        """
        topics = set[str]()
        if self._form.topic is not None:
            for _, store in self._stores:
                with suppress(ReputError):
                    topics.update(store.topics())
        if self._form.topic is None or not topics or self._form.topic in topics:
            return None
        return did_you_mean(self._form.topic, sorted(topics))

    def rows_and_beats(self) -> Generator[tuple[Row, ...] | Beat, None, None]:
        """Yield rows as they are found, and progress. Closing the generator stops the search."""
        try:
            yield from self._of_single() if self.has_one_store else self._of_many()
        finally:
            self.until.stop()

    def _of_single(self) -> Generator[tuple[Row, ...] | Beat, None, None]:
        for name, store in self._stores:
            part, due = _OfStore(name), time.monotonic() + _BEAT_S
            for step in self._steps(part, store):
                if step:
                    part.rows += step
                    self.count += len(step)
                    yield step
                elif time.monotonic() >= due:
                    due = time.monotonic() + _BEAT_S
                    yield Beat(0, part.left_bytes, self.count)
            self._end([part])

    def _of_many(self) -> Generator[Beat, None, None]:
        parts = [_OfStore(name) for name, _ in self._stores]
        pool = ThreadPoolExecutor(HTTP.search_threads)
        try:
            searched = [
                (part, store)
                for part, (name, store) in zip(parts, self._stores, strict=True)
                if self._start_cursors.get(name) != EXHAUSTED
            ]
            # Each thread of the pool runs in a copy of the context, because the context has the roles of the user.
            pending = {
                pool.submit(copy_context().run, self._collect, part, store)
                for part, store in searched
            }
            due = time.monotonic()
            while pending:
                _, pending = wait(pending, _BEAT_S, FIRST_COMPLETED)
                if not pending or time.monotonic() >= due:
                    due = time.monotonic() + _BEAT_S
                    self.count = sum(len(part.rows) for part in parts)
                    done = self.total - self.missing - len(pending)
                    yield Beat(done, sum(part.left_bytes for part in parts), self.count)
        finally:
            # The threads check the stop signal (`until`) before each step of a search, and end once the signal is set.
            # So `shutdown` need not wait for the threads.
            self.until.stop()
            pool.shutdown(wait=False, cancel_futures=True)
        self._merge(parts)
        self._end(parts)

    def _collect(self, part: _OfStore, store: SharedStore) -> None:
        for step in self._steps(part, store):
            part.rows += step or ()
        part.left_bytes = 0

    def _steps(self, part: _OfStore, store: SharedStore) -> Iterator[tuple[Row, ...] | None]:
        """Search one store. Yield rows, or None for progress. At the end, store the outcome or failure in `part`."""
        share = Share(max(HTTP.answer_bytes // max(len(self._stores), 1), _LEAST_SHARE_BYTES))
        form = self._form._replace(after=self._start_cursors.get(part.name))
        try:
            steps = search(store, form, share, self.until)
            # A child process takes the memory of its steps, and the number of child processes is limited.
            for step in steps if form.is_in_child else _in_turn(steps):
                if isinstance(step, Outcome):
                    part.outcome = step
                elif isinstance(step, Progress):
                    part.left_bytes = step.left_bytes
                    yield None
                elif step:
                    yield tuple(Row.of(part.name, message) for message in step)
        except ReputError as error:
            part.failure = Failure.of(error)

    def _merge(self, parts: Sequence[_OfStore]) -> None:
        """Take the newest rows of all stores.

        Rows of one store are taken in their order, so that a cursor can continue after them.
        """
        waiting = {part.name: part for part in parts if part.rows}
        counts = dict.fromkeys(waiting, 0)
        while waiting and len(self.rows) < self._form.limit:
            name = max(
                waiting,
                key=lambda store_name: waiting[store_name].rows[counts[store_name]].store_timestamp,
            )
            part, begin = waiting[name], counts[name]
            counts[name] = part.prefix(begin + 1)
            self.rows += part.rows[begin : counts[name]]
            if counts[name] == len(part.rows):
                del waiting[name]
        # For a store without a row on this page, the next page begins where this page began.
        self._shown_to = {
            name: part.rows[counts[name] - 1].physical_offset
            if counts[name]
            else self._start_cursors.get(name)
            for name, part in waiting.items()
        }

    def _end(self, parts: Sequence[_OfStore]) -> None:
        """Join the results of the stores, and compute the cursors of the next page."""
        cursors, has_older = dict[str, int](), False
        for part in parts:
            cursor = self._start_cursors.get(part.name)
            self.hits += bool(part.rows)
            if part.failure is not None:
                self.failures.append((part.name, part.failure))
            if part.outcome is not None:
                self._add(part, part.outcome)
                ended = part.outcome.cursor
                has_older |= ended is not None
                cursor = EXHAUSTED if ended is None else ended
            if part.name in self._shown_to:
                has_older, cursor = True, self._shown_to[part.name]
            if cursor is not None:
                cursors[part.name] = cursor
        self.cursors = cursors if has_older else {}
        if not self.has_one_store:
            self.searched_ranges = list(self._in_words())

    def _add(self, part: _OfStore, outcome: Outcome) -> None:
        prefix = "" if self.has_one_store else f"{part.name}: "
        self.without += not part.rows and outcome.is_complete and not outcome.is_late
        self.problems += [f"{prefix}{problem}" for problem in outcome.problems]
        self.unsearched += outcome.is_late
        if outcome.coverage is not None:
            self._log_bytes += outcome.coverage.log.size_bytes
            self._scanned_bytes += outcome.coverage.scanned_bytes
            if self.has_one_store:
                self.searched_ranges += coverage_in_words(outcome.coverage)

    def _in_words(self) -> Iterator[str]:
        if self.without:
            yield f"{counted(self.without, 'store', verb='has')} no such message."
        if self._log_bytes:
            scanned = f", {self._scanned_bytes:,} of them message by message" * bool(
                self._scanned_bytes
            )
            yield f"Searched {self._log_bytes:,} bytes of log{scanned}."


def _in_turn(steps: Steps) -> Iterator[tuple[MessageExt, ...] | Progress | Outcome]:
    """Yield the steps of a search.

    At most `HTTP.search_threads` steps (of all searches) run at the same time, because each running step takes memory.
    """
    try:
        while True:
            with _AT_WORK:
                step = next(steps, None)
            if step is None:
                return
            yield step
    finally:
        steps.close()


class Searches:
    """The searches that are running, by their ids."""

    def __init__(self) -> None:
        # The dictionary has only weak references: the page that shows a search keeps the search alive. So a search
        # disappears from the dictionary when its page ends, even after an error.
        self._running: WeakValueDictionary[str, Results] = WeakValueDictionary()

    def add(self, results: Results) -> Results:
        self._running[results.id] = results
        return results

    def stop(self, name: str) -> None:
        """Stop a search. Its page shows the messages found so far. Does nothing if the search has ended."""
        results = self._running.get(name)
        if results is not None:
            results.is_stopped = True
            results.until.stop()
