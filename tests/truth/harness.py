"""Damage a store, ask every reading path, and compare the answers with the messages that the store was built from."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from time import process_time_ns
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

import reput
from reput.errors import ReputError
from reput.format.commit_log import MessageExt
from reput.io import stamps
from tests.oracle.forge import body_position
from tests.oracle.records import Record, UnreadableError, decode
from tests.truth.answers import PATHS, Answer, ReadingPath, Session
from tests.truth.damages import DAMAGES, Damaging
from tests.truth.messages import KINDS, Question, TrueMessage
from tests.truth.stores import BUILDERS, LOG_BYTES, Built

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EACH = 2
"""Number of questions of each kind in one scene."""
STATES = ("closed", "proven", "open", "grown", "restored")
"""The history of a store before its damage.

closed    nothing; no process has read it
proven    it was proved and read
open      it was proved and read, and it stays open; files are changed through mappings
grown     its earlier state was proved and read; then it grew
restored  as grown, and proved and read again; after the damage, proofs and maps of the earlier state replace the newer
"""


@dataclass(frozen=True)
class Violation:
    """A wrong answer. `rule` names what was broken.

    missing   a complete answer lacks a message of the truth
    invented  an answer has a message that was never stored
    other     an answer has a message that was not asked for
    repeated  an answer has a message twice
    needless  an answer about an undamaged store is incomplete
    broken    an error that is not one of reput's
    differ    two paths gave complete, different answers
    """

    seed: int
    store: str
    state: str
    damage: str
    path: str
    question: str
    rule: str
    expected: str
    came: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.rule}: {self.path}\n  store     {self.store} ({self.state})\n"
            f"  damage    {self.damage}\n  question  {self.question}\n"
            f"  expected  {self.expected}\n  came      {self.came}"
        )

    def line(self) -> str:
        """Return what is needed to find the violation, in one line."""
        return f"{self.seed} {self.rule} {self.path} | {self.store} {self.state} | {self.damage} | {self.question}"


@dataclass
class Scene:
    """One damaged store, and what its log still holds."""

    seed: int
    name: str
    state: str
    built: Built
    store: Path
    names: tuple[str, ...] = ()
    damages: list[str] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        return any(name != "none" for name in self.names)

    @cached_property
    def _log(self) -> list[tuple[int, bytes]]:
        if self.built.is_archive:
            return []
        files = [path for path in self.store.glob("commitlog*/*") if path.name.isdigit()]
        return sorted((int(path.name), path.read_bytes()) for path in files)

    @cached_property
    def begin(self) -> int:
        """Return the physical offset of the first log file that is left. Messages before it have expired."""
        if self.built.has_archive:
            return 0
        return self._log[0][0] if self._log else 1 << 62

    @cached_property
    def _archived(self) -> list[int]:
        """Return the start offsets of archived log files that are unchanged."""
        return [
            int(path.name[:20])
            for path in (self.built.folder / "archive").glob("log/*")
            if _same(path, self.store.parent / "archive" / "log" / path.name)
        ]

    def stored(self, message: TrueMessage) -> bytes:
        """Return the bytes in the place of a message."""
        for start, data in self._log:
            if start <= message.at < start + len(data):
                return data[message.at - start :][: len(message.data)]
        is_archived = any(start <= message.at < start + LOG_BYTES for start in self._archived)
        return message.data if is_archived else b""

    @cached_property
    def lost(self) -> list[TrueMessage]:
        """Return the messages whose records are not as they were written."""
        return [one for one in self.built.truth.messages if self.stored(one) != one.data]

    @cached_property
    def altered(self) -> set[int]:
        """Return the physical offsets of records that changed, but that no checksum shows to be damaged."""
        return {one.at for one in self.lost if self._is_valid(one)}

    @cached_property
    def with_wrong_body(self) -> set[int]:
        """Return the physical offsets of records of which only the body is damaged, as its checksum shows."""
        return {one.at for one in self.lost if self._is_damaged_body(one)}

    def _is_damaged_body(self, message: TrueMessage) -> bool:
        at = body_position(message.fields)
        stored, end = self.stored(message), at + len(message.fields.body)
        return (stored[:at], stored[end:]) == (message.data[:at], message.data[end:])

    @cached_property
    def unqueued(self) -> set[int]:
        """Return the physical offsets of records that no queue has."""
        return {one.at for one in self.built.truth.messages if not one.queues}

    def _is_valid(self, message: TrueMessage) -> bool:
        try:
            record = decode(self.stored(message))
        except (UnreadableError, ValueError, IndexError):
            return False
        return (
            isinstance(record, Record)
            and record.total_size == len(message.data)
            and record.physical_offset == message.at
            and record.body_crc == crc32(record.body) & 0x7FFFFFFF
        )

    @cached_property
    def excused(self) -> set[int]:
        """Return the physical offsets of lost messages whose loss nothing may show.

        If the end of the log is lost, only queues, IndexFiles and the checkpoint show it. So it may be unknown if
        one of these was damaged as well.
        """
        of_others = [name for name in self.names if not name.startswith(("log", "record", "none"))]
        if not of_others:
            return set()
        lost, found = {one.at for one in self.lost}, set()
        for message in reversed(self.built.truth.messages):
            if message.at not in lost:
                break
            found.add(message.at)
        return found

    def expected(self, path: ReadingPath, asked: Question) -> set[int]:
        """Return the physical offsets of the messages that a complete answer must have."""
        wanted = self.built.truth.answer(asked, is_of_log=path.is_of_log)
        if asked.kind == "newest":
            wanted = self.built.truth.newest(asked)
        unshown = self.altered | self.excused
        if asked.kind == "key" and path.has_index:
            unshown -= self.unkeyed
        if asked.kind == "key" and path.is_of_records:
            wanted = [one for one in wanted if asked.key in one.own_keys]
        return {one.at for one in wanted if one.at >= self.begin and one.at not in unshown}

    @cached_property
    def unkeyed(self) -> set[int]:
        """Return the physical offsets of records that lost a key, which only their index entries show."""
        if any(not name.startswith(("record", "none")) for name in self.names):
            return set()
        return {one.at for one in self.lost if one.at in self.altered and self._has_lost_keys(one)}

    def _has_lost_keys(self, message: TrueMessage) -> bool:
        record = decode(self.stored(message))
        assert isinstance(record, Record)
        found = (record.properties.get("UNIQ_KEY"), *record.properties.get("KEYS", "").split(" "))
        return record.topic == message.topic and not {*message.keys} <= {*found}

    def is_repeated(self, asked: Question, at: int, count: int) -> bool:
        """Return whether an answer has a record too often. An inner batch may come as its messages, or as a whole."""
        true = self.built.truth.by_offset.get(at)
        if true is None or not true.inner:
            return count > 1
        if asked.kind == "newest":
            return count > len(true.inner)
        of_key = true.times(asked.key) if asked.kind == "key" else 0
        return count not in (1, of_key or len(true.inner))

    def violation(
        self, path: ReadingPath, asked: Question, rule: str, expected: object, came: object
    ) -> Violation:
        damage = "; ".join(self.damages)
        return Violation(
            self.seed,
            self.name,
            self.state,
            damage,
            str(path),
            str(asked),
            rule,
            str(expected),
            str(came),
        )


def judge(scene: Scene, path: ReadingPath, asked: Question, answer: Answer) -> Iterator[Violation]:
    """Yield what is wrong with an answer."""
    if answer.count is not None:
        yield from _judge_count(scene, path, asked, answer)
        return
    # A path may return records that no queue has, such as rolled-back ones, if it states a window only.
    wanted = {one.at for one in scene.built.truth.answer(asked, is_of_log=True)}
    places = list(map(_place, answer.messages))
    for rule, wrong in _wrong_messages(scene, path, asked, wanted, answer).items():
        yield scene.violation(
            path, asked, rule, sorted(wanted), f"{len(wrong)}, for example {wrong[0]}"
        )
    if (
        any(scene.is_repeated(asked, at, count) for at, count in Counter(places).items())
        and not path.is_brokers
    ):
        yield scene.violation(path, asked, "repeated", sorted({*places}), sorted(places))
    missing = sorted(scene.expected(path, asked) - {*places})
    by_offset = scene.built.truth.by_offset
    if any(at in by_offset and _is_exchanged(scene, asked, by_offset[at]) for at in places):
        missing = []
    if answer.is_complete and missing and not path.is_brokers:
        remark = f" ({answer.remark})" if answer.remark else ""
        shown = f"complete, without {missing}{remark}; came {sorted(places)}"
        yield scene.violation(path, asked, "missing", sorted(wanted), shown)
    if not answer.is_complete and not scene.is_damaged:
        yield scene.violation(path, asked, "needless", "a complete answer", answer)


def _judge_count(
    scene: Scene, path: ReadingPath, asked: Question, answer: Answer
) -> Iterator[Violation]:
    assert answer.count is not None
    least = _numbers(scene, path, asked, scene.expected(path, asked))
    most = _numbers(scene, path, asked, {one.at for one in scene.built.truth.messages})
    if answer.is_complete and answer.count < least:
        yield scene.violation(path, asked, "missing", least, answer.count)
    if answer.is_complete and answer.count > most and not scene.altered:
        yield scene.violation(path, asked, "invented", most, answer.count)
    if not answer.is_complete and not scene.is_damaged:
        yield scene.violation(path, asked, "needless", "a complete answer", answer)


def _numbers(scene: Scene, path: ReadingPath, asked: Question, places: set[int]) -> int:
    """Return how many messages, or how many numbers of a queue, these records are."""
    wanted = scene.built.truth.answer(asked, is_of_log=path.is_of_log)
    found = [one for one in wanted if one.at in places]
    if asked.kind == "count":
        return len(found)
    numbers = scene.built.truth.by_queue[asked.topic or "", asked.queue_id]
    return max((number + 1 for number, one in numbers.items() if one in found), default=0)


def _place(message: MessageExt | int) -> int:
    return message.physical_offset if isinstance(message, MessageExt) else message


def _wrong_messages(
    scene: Scene, path: ReadingPath, asked: Question, wanted: set[int], answer: Answer
) -> Mapping[str, list[str]]:
    """Return the messages that were never stored, or not asked for, by the rule that they break."""
    found: dict[str, list[str]] = {}
    for one in answer.messages:
        at = _place(one)
        if at in scene.altered or (at in scene.with_wrong_body and _is_marked(one)):
            continue
        true = scene.built.truth.by_offset.get(at)
        if path.is_brokers and _states_another_place(scene, one):
            continue
        if true is None or (isinstance(one, MessageExt) and not true.is_same(one)):
            found.setdefault("invented", []).append(f"{at}: {one}")
        elif path.is_brokers and asked.key in true.own_keys:
            continue  # An index of an earlier state has other times, and a broker takes the times of the index.
        elif at not in wanted and not _is_exchanged(scene, asked, true):
            found.setdefault("other", []).append(f"{at}: {one}")
    return found


def _states_another_place(scene: Scene, message: MessageExt | int) -> bool:
    """Return whether this is a changed record that states another offset. A broker sends it as it is."""
    return isinstance(message, MessageExt) and any(
        lost.is_same(replace(message, physical_offset=lost.at)) for lost in scene.lost
    )


def _is_marked(message: MessageExt | int) -> bool:
    """Return whether a message shows that its body is damaged. A path that returns no bodies need not."""
    return isinstance(message, int) or not message.body_crc_ok


def _is_exchanged(scene: Scene, asked: Question, came: TrueMessage) -> bool:
    """Return whether an entry led to another message of the queue. Like a broker, reput then follows the entry."""
    places = {(topic, queue_id) for topic, queue_id, _ in came.queues}
    is_changed = any(name.startswith(("entries", "entry", "queue")) for name in scene.names)
    return asked.kind == "place" and is_changed and (asked.topic, asked.queue_id) in places


def ask(
    scene: Scene, path: ReadingPath, session: Session, asked: Question
) -> tuple[Answer | None, list[Violation]]:
    """Return an answer, and what is wrong with it. An error of reput is an incomplete answer."""
    try:
        answer = path.ask(session, asked)
    except ReputError as error:
        answer = Answer((), False, f"{type(error).__name__}: {error}")
    except Exception as error:
        answer = Answer((), False, f"{type(error).__name__}: {error}")
        return answer, [
            scene.violation(path, asked, "broken", "an answer or an error of reput", repr(error))
        ]
    return answer, list(judge(scene, path, asked, answer)) if answer is not None else []


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.read_bytes() == other.read_bytes()


@dataclass
class Result:
    """The outcome of some combinations: a damaged store and a path with its questions of one kind each."""

    combinations: int = 0
    answers: int = 0
    complete: int = 0
    violations: list[Violation] = field(default_factory=list)
    processor_ns: Counter[str] = field(default_factory=Counter)
    """Processor time of each path."""

    def add(self, other: Result) -> None:
        self.combinations += other.combinations
        self.answers += other.answers
        self.complete += other.complete
        self.violations += other.violations
        self.processor_ns += other.processor_ns

    def summary(self) -> str:
        """Return the numbers, and how often each path broke each rule."""
        counts = Counter((one.rule, one.path) for one in self.violations).most_common()
        lines = [f"{count:6} {rule:9} {path}" for (rule, path), count in counts]
        lines.append(
            f"{self.combinations:,} combinations, {self.answers:,} answers, {self.complete:,} of them complete, "
            f"{len(self.violations):,} violations, {self.processor_ns.total() / 1e9:,.0f} s of processor time"
        )
        return "\n".join(lines)


class Harness:
    """Builds each store once, in a folder of its own, and runs scenes by their seeds.

    `store`, `state` and `damages` (names, separated by commas) replace what a seed chooses. `spark` is a session for
    the paths of `reput.spark`.
    """

    def __init__(
        self,
        folder: Path,
        store: str | None = None,
        state: str | None = None,
        damages: str | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        self._folder, self._spark = folder, spark
        self._store, self._state, self._damages = store, state, damages
        self._built: dict[str, Built] = {}

    def built(self, name: str) -> Built:
        if name not in self._built:
            self._built[name] = BUILDERS[name](self._folder / "built" / name)
        return self._built[name]

    def run(self, seed: int, only: Callable[[ReadingPath], bool] = lambda path: True) -> Result:
        """Build and damage the store of a seed, and ask all paths."""
        random = Random(seed)
        names = sorted(DAMAGES)
        # Consecutive seeds have all damages in turn.
        chosen = [names[seed % len(names)], *random.choices(names, k=random.choice((0, 0, 1)))]
        name, state = random.choice(_suitable(chosen[0])), random.choice(STATES)
        name, state = self._store or name, self._state or state
        chosen = self._damages.split(",") if self._damages else chosen
        folder = self._folder / f"scene-{seed}"
        folder.mkdir()
        try:
            with _cache(folder / "cache"):
                return self._run(seed, name, state, chosen, folder, random, only)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(
        self, seed: int, name: str, state: str, chosen: Sequence[str], folder: Path, random: Random,
        only: Callable[[ReadingPath], bool],
    ) -> Result:  # fmt: skip
        built = self.built(name)
        store = folder / "store"
        if state in _FROM_EARLIER and built.has_archive:
            state = "proven"
        shutil.copytree(built.folder, folder, dirs_exist_ok=True)
        if state in _FROM_EARLIER:
            shutil.rmtree(store)
            shutil.copytree(built.earlier, store)
        session = Session(built.opened(folder), folder, built.truth, self._spark)
        questions = Random(seed + 1)
        try:
            if state != "closed":
                _warm_up(session, built, Random(seed))
            if state != "open":
                session.close()
            if state in _FROM_EARLIER:
                shutil.copytree(folder / "cache", folder / "cache-earlier")
                _grow(store, built.folder / "store")
            if state == "restored":
                _warm_up(session, built, Random(seed))
                session.close()
            to = Damaging(store, built, random, is_mapped=state == "open")
            done = [(each, DAMAGES[each](to)) for each in chosen]
            if state == "restored":
                shutil.rmtree(folder / "cache")
                (folder / "cache-earlier").rename(folder / "cache")
            scene = Scene(
                seed, name, state, built, store, tuple(each for each, what in done if what is not None),
                [what for _, what in done if what is not None],
            )  # fmt: skip
            return _ask_all(scene, session, questions, only)
        finally:
            session.close()


def _suitable(damage: str) -> list[str]:
    """Return the names of stores that have what a damage changes."""
    only = {
        "archive": ["archive", "joined"],
        "extension": ["extension"],
        "queue_database": ["both", "keys", "rocksdb", "selective", "separate"],
    }
    for prefix, stores in only.items():
        if damage.startswith(prefix):
            return stores
    return sorted(BUILDERS.keys() - {"archive"})


def _warm_up(session: Session, built: Built, random: Random) -> None:
    """Prove the IndexFiles, and let readers remember what they learn of the log."""
    with suppress(ReputError):
        reput.prove(session.path)
    for kind in ("key", "window", "queue"):
        for asked in built.truth.questions(kind, random, 2, ()):
            for path in PATHS.values():
                if path.kind == kind and path.name in _WARM:
                    with suppress(ReputError):
                        path.ask(session, asked)


_FROM_EARLIER = ("grown", "restored")
_WARM = (
    "MessageStore.query",
    "SharedStore.query",
    "messages_of_topic",
    "MessageStore.pull",
    "LogTail",
)


def _grow(store: Path, later: Path) -> None:
    """Write what a store got since its earlier state, in place, as an owner does."""
    for source in sorted(later.rglob("*")):
        target = store / source.relative_to(later)
        if source.is_dir():
            target.mkdir(exist_ok=True)
        elif not target.exists():
            shutil.copyfile(source, target)
        elif target.read_bytes() != source.read_bytes():
            with target.open("r+b") as file:
                file.write(source.read_bytes())
                file.truncate()


def _ask_all(
    scene: Scene, session: Session, random: Random, only: Callable[[ReadingPath], bool]
) -> Result:
    likely = scene.lost or _near(scene)
    result = Result()
    for kind in KINDS:
        asked = list(scene.built.truth.questions(kind, random, _EACH, likely))
        answered: dict[Question, list[tuple[ReadingPath, Answer]]] = {}
        for path in PATHS.values():
            if path.kind != kind or not only(path):
                continue
            before, begin = result.answers, process_time_ns()
            for question in asked:
                answer, violations = ask(scene, path, session, question)
                if answer is None:
                    continue
                result.answers += 1
                result.complete += answer.is_complete
                result.violations += violations
                is_comparable = not (path.is_brokers or path.is_of_records)
                if not violations and is_comparable and answer.is_complete:
                    answered.setdefault(question, []).append((path, answer))
            result.combinations += result.answers > before
            result.processor_ns[str(path)] += process_time_ns() - begin
        result.violations += _differing(scene, answered)
    return result


def _near(scene: Scene) -> list[TrueMessage]:
    return list(scene.built.truth.messages[-20:])


def _differing(
    scene: Scene, answered: Mapping[Question, Sequence[tuple[ReadingPath, Answer]]]
) -> Iterator[Violation]:
    """Yield complete answers to one question that differ, though each alone may be right."""
    for question, answers in answered.items():
        # Some paths count messages of inner batches, others count records.
        if question.kind == "newest":
            continue
        first, one = answers[0]
        optional = scene.altered | scene.unqueued
        expected = _places(one) - optional
        for path, answer in answers[1:]:
            if _places(answer) - optional != expected:
                came = f"{sorted(_places(answer))}; {first}: {sorted(expected)}"
                yield scene.violation(path, question, "differ", f"the answer of {first}", came)


def _places(answer: Answer) -> set[int]:
    return set(map(_place, answer.messages))


@contextmanager
def _cache(folder: Path) -> Iterator[None]:
    """Use a cache folder of its own for proofs and maps, and keep them, whatever the file system is."""
    with pytest.MonkeyPatch.context() as patch:
        file_system = stamps._file_system(str(folder.parent))
        patch.setattr(stamps, "_REPORTING", stamps._REPORTING | {file_system})
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield
