"""A random change to a file of a store, and the answers that then miss a message without reporting it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import reput
from reput.core.query.answers import PullStatus
from reput.core.store.store_reader import StoreReader
from reput.engine.compare.proof import prove_all
from reput.errors import ReputError
from tests.index.proving import messages
from tests.index.readers import by_table
from tests.lookup.looking_up import bulk
from tests.mutators import changed_file
from tests.oracle.walk import read_log, walk
from tests.query.stores import build_store, offsets

SLOTS, ITEMS, COUNT = 64, 150, 120
FOLDERS = ("commitlog", "consumequeue", "index")
TOPIC, QUEUE = "T", 0
_KEYS = 4
_MOST_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Truth:
    """The messages of the log, found by a scan.

    keyed   physical offsets by key, newest first
    queued  physical offsets of the messages of one queue
    newest  physical offset of the last message
    """

    keyed: dict[str, list[int]]
    queued: list[int]
    newest: int


def scan(path: Path) -> Truth:
    keyed: dict[str, list[int]] = {}
    queued, newest = [], -1
    for offset, record in walk(read_log(path)).records:
        newest = offset
        if record.topic == TOPIC:
            for key in record.index_keys:
                keyed.setdefault(key, []).insert(0, offset)
            if record.queue_id == QUEUE:
                queued.append(offset)
    return Truth(keyed, queued, newest)


@dataclass(slots=True)
class Mutations:
    """Changes a store of a hundred messages repeatedly, and queries it.

    asked   number of compared answers
    loud    number of answers that were reported as incomplete, or were an error
    missed  (change, answer) of wrong answers that nothing reported
    """

    path: Path
    is_proved: bool
    random: Random
    asked: int = 0
    loud: int = 0
    missed: list[tuple[str, str]] = field(default_factory=list)

    def build(self) -> None:
        build_store(self.path, messages(COUNT).files(), hash_slots=SLOTS, index_items=ITEMS)

    def run(self, changes: int, in_bulk_every: int) -> None:
        whole = scan(self.path)
        for number in range(changes):
            with self._changed() as (change, is_log):
                truth = scan(self.path) if is_log else whole
                self._ask(change, truth, whole, number % in_bulk_every == 0)

    @contextmanager
    def _changed(self) -> Iterator[tuple[str, bool]]:
        folder = self.random.choice(FOLDERS)
        files = sorted(file for file in (self.path / folder).rglob("*") if file.is_file())
        file = self.random.choice(files)
        with changed_file(file, self.random) as what:
            yield f"{file.relative_to(self.path)}: {what}", folder == "commitlog"

    def _ask(self, change: str, truth: Truth, whole: Truth, in_bulk: bool) -> None:
        lost_end = truth.newest < whole.newest
        known = sorted({*truth.keyed, *whole.keyed})
        keys = ["every", *self.random.sample(known, _KEYS)]
        wanted = [truth.keyed.get(key, []) for key in keys]
        if self.is_proved:
            self._prove()
        self._compare(change, "query", lambda: self._query(keys, wanted, lost_end))
        self._compare(change, "pull", lambda: self._pull(truth.queued, lost_end))
        if in_bulk:
            self._compare(change, "lookup", lambda: self._look_up(keys, wanted, lost_end))
            self._compare(change, "table", lambda: self._table(keys, wanted))

    def _compare(self, change: str, what: str, ask: Callable[[], bool | None]) -> None:
        """Count an answer. `ask` returns None if it is marked incomplete, otherwise whether it has every message."""
        self.asked += 1
        try:
            found = ask()
        except ReputError:
            found = None
        self.loud += found is None
        if found is False:
            self.missed.append((change, what))

    def _prove(self) -> None:
        try:
            with StoreReader(self.path, hash_slots=SLOTS, index_items=ITEMS) as store:
                prove_all(store.own_log, store.index.current())
        except ReputError:
            pass

    def _query(self, keys: Sequence[str], wanted: Sequence[list[int]], lost: bool) -> bool | None:
        with reput.open_store(self.path, hash_slots=SLOTS, index_items=ITEMS) as store:
            found = [store.query(TOPIC, key) for key in keys]
        if not all(each.is_complete for each in found):
            return None
        return not lost and all(
            {*offsets} <= {*of} for offsets, of in zip(wanted, map(_offsets, found), strict=True)
        )

    def _pull(self, queued: Sequence[int], lost: bool) -> bool:
        pulled: set[int] = set()
        with reput.open_store(self.path) as store:
            position = store.min_queue_offset(TOPIC, QUEUE)
            for _ in range(_MOST_STEPS):
                result = store.pull(TOPIC, QUEUE, position, 64)
                pulled.update(message.physical_offset for message in result.messages)
                position = result.next_begin_offset
                if result.status is PullStatus.NO_NEW_MESSAGE:
                    break
        return not lost and {*queued} <= pulled

    def _look_up(self, keys: Sequence[str], wanted: Sequence[list[int]], lost: bool) -> bool | None:
        rows = [(TOPIC, key, None, None) for key in keys]
        found = bulk(self.path.parent / f"staged-{self.asked}", [self.path], rows)
        if not all(row.coverage["is_complete"] for row in found):
            return None
        return not lost and all(
            {*offsets} <= {*row.offsets} for offsets, row in zip(wanted, found, strict=True)
        )

    def _table(self, keys: Sequence[str], wanted: Sequence[list[int]]) -> bool:
        found = by_table(self.path, [(TOPIC, key) for key in keys])
        return all({*offsets} <= {*of} for offsets, of in zip(wanted, found, strict=True))


_offsets = offsets
