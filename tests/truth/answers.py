"""The answer of a reading path, in one form for all paths, and the list of paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import reput
from reput.core.query.message_store import MessageStore
from reput.engine.writer.shared_store import SharedStore
from reput.format.commit_log import MessageExt
from tests.truth.messages import Question, Truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Answer:
    """Messages, or their physical offsets where a path returns no more, and whether the path says that these are all.

    `is_complete` is the claim of the path: for example exit code 0 or 1, `is_complete`, or a return without an
    exception. `count` is the answer of a path that only counts messages.
    """

    messages: tuple[MessageExt | int, ...]
    is_complete: bool
    remark: str = ""
    count: int | None = None

    @classmethod
    def of(cls, messages: Iterable[MessageExt | int], is_complete: bool = True) -> Answer:
        return cls(tuple(messages), is_complete)


@dataclass
class Session:
    """A store while questions are asked. Opened files stay open until `close`.

    Without a session of Spark, the paths of `reput.spark` are not asked.
    """

    path: str
    folder: Path
    truth: Truth
    spark: SparkSession | None = None
    opened: list[Callable[[], None]] = field(default_factory=list)
    count: int = 0

    @property
    def has_archive(self) -> bool:
        return (self.folder / "archive").exists()

    @cached_property
    def store(self) -> MessageStore:
        store = reput.open_store(self.path)
        self.opened.append(store.close)
        return store

    @cached_property
    def shared(self) -> SharedStore:
        store = SharedStore(self.path)
        self.opened.append(store.close)
        return store

    def asked_for(self, places: Iterable[int], asked: Question) -> tuple[int, ...]:
        """Return the messages of a trace that its question asks for. A trace also has copies of them."""
        wanted = {one.at for one in self.truth.answer(asked)}
        return tuple(at for at in places if at in wanted or at not in self.truth.by_offset)

    def new_path(self, suffix: str = "") -> Path:
        """Return a path that does not exist yet, for the output of a path."""
        self.count += 1
        return self.folder / f"output-{self.count}{suffix}"

    def close(self) -> None:
        for close in reversed(self.opened):
            close()
        self.opened.clear()
        for name in ("store", "shared", "served", "client"):
            self.__dict__.pop(name, None)


Ask = Callable[[Session, Question], Answer | None]
"""Asks one path. None if the path cannot be asked this question."""


@dataclass(frozen=True)
class ReadingPath:
    """One way to ask one kind of question.

    Attributes:
        is_brokers: Whether the path answers as a broker would, so that it may miss messages without saying so.
        is_of_log: Whether the path returns all records of the log, also records that no queue and no index has.
        has_index: Whether the path uses the index for keys, which shows that a record has lost a key.
        is_of_records: Whether the path compares the keys of records alone, and not those of messages in inner batches.
    """

    name: str
    kind: str
    ask: Ask
    is_brokers: bool = False
    is_of_log: bool = False
    has_index: bool = True
    is_of_records: bool = False

    def __str__(self) -> str:
        return f"{self.name}:{self.kind}"


PATHS: dict[str, ReadingPath] = {}


def path(name: str, *kinds: str, **facts: bool) -> Callable[[Ask], Ask]:
    """Register a function as a reading path for these kinds of questions."""

    def register(ask: Ask) -> Ask:
        for kind in kinds:
            added = ReadingPath(name, kind, ask, **facts)
            assert str(added) not in PATHS, added
            PATHS[str(added)] = added
        return ask

    return register
