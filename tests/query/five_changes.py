"""One random change to a file of a 5.x store, and the errors in its answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from reput.base.config import StoreConfig
from reput.core.query.message_store import MessageStore
from reput.engine.check.run import check_store
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import ReputError
from reput.format.consume_queue import PRE_BLANK
from tests.check.checking import facts
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.mutators import changed_file

PATTERNS = {
    "five_batch": ("batchconsumequeue/*/*/*", "batchconsumequeue/*/*/*", "config/topics.json"),
    "five_ext": ("consumequeue_ext/*/*/*", "consumequeue_ext/*/*/*", "checkpoint"),
    "five_dledger": ("dledger-*/data/*", "dledger-*/index/*", "dledger-*/checkpoint"),
    "five_rocksdb": ("consumequeue/*", "consumequeue/*.sst", "consumequeue/MANIFEST*"),
    "five_multipath": ("commitlog?/*", "compaction/*", "abort.bak"),
    "five_timer": ("timerlog/*", "timerwheel", "config/timercheck"),
}
"""The files to change in each golden store. A pattern that is listed twice is chosen twice as often."""
_LOGS = ("five_dledger", "five_multipath")
_MOST_PULLED = 64
_UNITS = 334  # units of the timer log
_Queue = tuple[str, int]


@dataclass(slots=True)
class Changes:
    """Changes a copy of a golden store repeatedly, and queries it.

    asked   number of changes
    loud    number of changes after which an answer was reported as incomplete, or was an error
    wrong   (change: problem) of each wrong answer that nothing reported
    """

    golden: GoldenStore
    path: Path
    random: Random
    asked: int = 0
    loud: int = 0
    wrong: list[str] = field(default_factory=list)

    def run(self, count: int) -> None:
        copy_store(self.golden.path, self.path)
        with MessageStore(self.golden.path) as whole:
            self._run(count, whole)

    def _run(self, count: int, whole: MessageStore) -> None:
        for _ in range(count):
            files = [
                path
                for path in sorted(self.path.glob(self.random.choice(PATTERNS[self.golden.name])))
                if path.is_file() and 4 <= path.stat().st_size < 1 << 22
            ]
            if not files:
                continue
            file = self.random.choice(files)
            with changed_file(file, self.random) as what:
                self.asked += 1
                before = facts(self.path)
                answers = _Answers(self.golden, whole, self.path, self.random)
                problems = list(answers.problems())
                if facts(self.path) != before:
                    problems.append("the store has changed")
                self.loud += answers.is_loud
                change = f"{file.relative_to(self.path)}: {what}"
                self.wrong += [f"{change}: {problem}" for problem in problems]


class _Answers:
    """Compares the answers of a changed store with those of the golden store."""

    def __init__(
        self, golden: GoldenStore, whole: MessageStore, path: Path, random: Random
    ) -> None:
        """`golden` has the expected answers, `whole` is the opened golden store, `path` is the changed store."""
        self._golden, self._path, self._random = golden, path, random
        self._config = StoreConfig.from_broker_settings(golden.config)
        self._config = StoreConfig(
            queue_entries=self._config.queue_entries, hash_slots=self._config.hash_slots,
            index_items=self._config.index_items, enable_lmq=self._config.enable_lmq,
            enable_multi_dispatch=self._config.enable_multi_dispatch,
            batch_queue_file_bytes=self._config.batch_queue_file_bytes,
        )  # fmt: skip
        self._whole = whole
        self._sizes = {row.physical_offset: row.size for row in golden.messages}
        self._first: dict[_Queue, int] = {}
        for row in golden.queue_entries:
            if row.size != PRE_BLANK.size:
                queue = row.topic, row.queue_id
                self._first[queue] = min(self._first.get(queue, row.queue_offset), row.queue_offset)
        self.is_loud = False

    def problems(self) -> Iterator[str]:
        found = []
        for ask in (self._pull, self._query, self._tail):
            try:
                with MessageStore(self._path, config=self._config) as store:
                    found += list(ask(store))
            except ReputError as error:
                self._note(error)
                if "\n" in str(error):
                    yield f"several lines: {error}"
        yield from found
        yield from self._check()
        yield from self._commands()

    def _note(self, said: object) -> None:
        self.is_loud = self.is_loud or bool(said)

    def _queues(self) -> dict[_Queue, list[int]]:
        queues: dict[_Queue, list[int]] = defaultdict(list)
        for row in self._golden.queue_entries:
            if row.size != PRE_BLANK.size and not row.topic.startswith("%LMQ%"):
                queues[row.topic, row.queue_id].append(row.physical_offset)
        return queues

    def _is_intact(self, store: MessageStore, offset: int) -> bool:
        """Return whether the log still has the record unchanged. Otherwise no reader can find it."""
        try:
            return store.get_record(offset) == self._whole.get_record(offset)
        except ReputError:
            return False

    def _missing(self, store: MessageStore, found: list[int], expected: list[int]) -> list[int]:
        return [
            offset
            for offset in expected
            if offset not in set(found)
            and (self._golden.name not in _LOGS or self._is_intact(store, offset))
        ]

    def _pull(self, store: MessageStore) -> Iterator[str]:
        queues = self._queues()
        for queue in self._random.sample(sorted(queues), min(len(queues), 6)):
            found: list[int] = []
            try:
                start, first = store.min_queue_offset(*queue), self._first[queue]
                if self._golden.name not in _LOGS:  # logs in which messages may have expired
                    self._note(start > first)
                while True:
                    answer = store.pull(*queue, start, _MOST_PULLED)
                    found += [message.physical_offset for message in answer.messages]
                    if answer.next_begin_offset <= start:
                        break
                    start = answer.next_begin_offset
                missing = self._missing(store, found, queues[queue])
                if missing and store.min_queue_offset(*queue) <= first:
                    yield f"pull of {queue} misses {missing[:3]}"
            except ReputError as error:
                self._note(error)
            if strange := set(found) - set(queues[queue]):
                yield f"pull of {queue} finds {sorted(strange)[:3]}"

    def _query(self, store: MessageStore) -> Iterator[str]:
        keyed = [row for row in self._golden.messages if row.uniq_key and row.sys_flag & 12 != 12]
        for row in self._random.sample(keyed, 5):
            answer = store.query(row.topic, str(row.uniq_key))
            found = [message.physical_offset for message in answer.messages]
            self._note(answer.coverage.unreadable)
            if answer.is_complete and self._missing(store, found, [row.physical_offset]):
                yield f"the query of {row.uniq_key} misses {row.physical_offset}"

    def _tail(self, store: MessageStore) -> Iterator[str]:
        tail = LogTail(store, TailFilter())
        found = [message.physical_offset for message in tail.last(40)]
        self._note(tail.damage)
        newest = sorted(self._sizes)[-40:]
        if not tail.damage and (missing := self._missing(store, found, newest)):
            yield f"the tail misses {missing[:3]}"

    def _check(self) -> Iterator[str]:
        try:
            findings = list(check_store(self._path, config=self._config))
            quick = list(check_store(self._path, config=self._config, quick=True))
        except ReputError as error:
            self._note(error)
            if "\n" in str(error):
                yield f"check says several lines: {error}"
            return
        if any("\n" in str(finding) for finding in [*findings, *quick]):
            yield "a finding of several lines"
        if self.is_loud and not findings:
            yield "the check finds nothing"

    def _commands(self) -> Iterator[str]:
        for command in ("inspect", "timer") if self._golden.name == "five_timer" else ("inspect",):
            ran = reput(
                command, self._path, *(("--all", "--format", "jsonl") if command == "timer" else ())
            )
            self._note(ran.err if command == "timer" else "")
            if "unexpected" in ran.err:
                yield f"{command}: {ran.err}"
            has_first = (self._path / "timerlog" / "00000000000000000000").exists()
            if command == "timer" and not ran.err and has_first and len(ran.lines) != _UNITS:
                yield f"timer lists {len(ran.lines)}"
