"""Files expire at every single step of a reader: it answers for the old or for the remaining store."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.base.config import StoreConfig
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.query.answers import PullStatus
from reput.core.query.message_store import MessageStore
from reput.engine.writer.expiry import carry_out, plan_expiry
from reput.errors import MessageNotFoundError
from reput.io.disk import Disk

CONFIG = StoreConfig(commit_log_file_bytes=1 << 13, queue_entries=10, hash_slots=64, index_items=60)
MESSAGES = 120
EARLY, LATE = 45, 100  # queue offsets: the first one expires, the second does not
Ask = Callable[[MessageStore], Any]


class Listing:
    """The results of os.scandir, read to the end at once."""

    def __init__(self, entries: list["os.DirEntry[str]"]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> "Listing":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator["os.DirEntry[str]"]:
        return self._entries


class Steps:
    """Counts the calls of a reader to the system, and does something before call number `at`."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, happens: Callable[[], None]) -> None:
        self.made, self._at, self._happens = 0, at, happens
        self._scandir = os.scandir
        self._is_busy = False
        for name in ("open", "stat"):
            patch.setattr(os, name, self._wrapped(getattr(os, name)))
        patch.setattr(os, "scandir", self._list)

    def _step(self) -> None:
        if self._is_busy:
            return
        if self.made == self._at:
            self._is_busy = True
            self._happens()
            self._is_busy = False
        self.made += 1

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            self._step()
            return call(*args, **options)

        return step

    def _list(self, path: str) -> Listing:
        self._step()
        with self._scandir(path) as entries:
            listing = Listing(list(entries))
        self._step()
        return listing


class Expiring:
    """A store of one queue whose first half is about to expire."""

    def __init__(self, folder: Path) -> None:
        self.source, self.path = folder / "source", folder / "store"
        with reput.open_store(self.source, mode="rw", config=CONFIG) as store:
            for number in range(MESSAGES):
                store.put(reput.Message("T", b"x" * 250, [f"k{number}", "all"], f"t{number % 2}"))
            store.wait_dispatched()
            self.messages = [store.get_by_queue("T", 0, n) for n in range(MESSAGES)]
        self._gone = self.messages[60].physical_offset // CONFIG.commit_log_file_bytes
        self.begin = self._gone * CONFIG.commit_log_file_bytes
        self.least = next(
            n for n in range(MESSAGES) if self.messages[n].physical_offset >= self.begin
        )

    def renew(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.source, self.path)

    def expire(self) -> None:
        log = CommitLogReader(StoreLog(self.path))
        carry_out(plan_expiry(self.path, log, log.files[: self._gone]), Disk())
        log.close()


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> Expiring:
    return Expiring(tmp_path_factory.mktemp("expiring"))


def pulled(number: int, tags: str | None = None) -> tuple[Ask, Callable[[Expiring, Any], bool]]:
    def is_right(made: Expiring, result: Any) -> bool:
        if result.status == PullStatus.OFFSET_TOO_SMALL:
            return bool(number < made.least == result.next_begin_offset)
        expected = [m for m in made.messages[number:] if tags in (None, m.properties["TAGS"])]
        assert result.status == PullStatus.FOUND
        return bool(result.messages == tuple(expected[: len(result.messages)]))

    return lambda store: store.pull("T", 0, number, 20, tags), is_right


def found_or_gone(made: Expiring, number: int, found: Any) -> bool:
    """Return whether the answer is the expected message, or is empty because the message has expired."""
    known = made.messages[number]
    return bool(found == [known] or (found == [] and known.physical_offset < made.begin))


def got(number: int, get: Callable[[MessageStore], Any]) -> tuple[Ask, Callable[..., bool]]:
    def ask(store: MessageStore) -> list[Any]:
        try:
            return [get(store)]
        except MessageNotFoundError:
            return []

    return ask, lambda made, found: found_or_gone(made, number, found)


def queried(number: int) -> tuple[Ask, Callable[[Expiring, Any], bool]]:
    return (
        lambda store: store.query("T", f"k{number}"),
        lambda made, result: (
            result.is_complete and found_or_gone(made, number, list(result.messages))
        ),
    )


def is_a_suffix(made: Expiring, result: Any) -> bool:
    newest = made.messages[::-1]
    count = len(result.messages)
    assert result.is_complete, result.coverage
    return count >= MESSAGES - made.least and list(result.messages) == newest[:count]


ASKED = {
    "pull early": pulled(EARLY),
    "pull late": pulled(LATE),
    "pull at the edge": pulled(55, "t1"),
    "get by queue early": got(EARLY, lambda store: store.get_by_queue("T", 0, EARLY)),
    "get by queue late": got(LATE, lambda store: store.get_by_queue("T", 0, LATE)),
    "query early": queried(EARLY),
    "query late": queried(LATE),
    "query all": (lambda store: store.query("T", "all"), is_a_suffix),
    "min": (
        lambda store: store.min_queue_offset("T", 0),
        lambda made, least: least in (0, made.least),
    ),
    "max": (lambda store: store.max_queue_offset("T", 0), lambda made, end: end == MESSAGES),
    "by time": (
        lambda store: store.offset_by_time("T", 0, 0),
        lambda made, first: first in (0, made.least),
    ),
    "end": (
        lambda store: store.end_offset(),
        lambda made, end: end == made.messages[-1].physical_offset + made.messages[-1].size_bytes,
    ),
    "as a broker": (
        lambda store: store.query_message("T", f"k{LATE}", 5, 0, 1 << 62),
        lambda made, result: made.messages[LATE].physical_offset in result.physical_offsets,
    ),
}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_an_answer_while_files_expire(expiring: Expiring, name: str, warm: bool) -> None:
    ask, is_right = ASKED[name]
    at, more = 0, True
    while more:
        expiring.renew()
        with reput.open_store(expiring.path, config=CONFIG) as store:
            if warm:
                ask(store)
            with pytest.MonkeyPatch.context() as patch:
                steps = Steps(patch, at, expiring.expire)
                answer = ask(store)
            more = steps.made > at
            assert is_right(expiring, answer), (at, answer)
            expired = ask(store)
            assert is_right(expiring, expired), (at, expired)
        at += 1
    assert at > 1


def test_opening_while_files_expire(expiring: Expiring) -> None:
    at, more = 0, True
    while more:
        expiring.renew()
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(patch, at, expiring.expire)
            store = reput.open_store(expiring.path)
        with store:
            more = steps.made > at
            assert is_a_suffix(expiring, store.query("T", "all"))
        at += 1
    assert at > 5
