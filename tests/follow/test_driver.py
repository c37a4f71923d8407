"""The loop that maintains indexes of a log: it waits for the first message, rebuilds once, and stops between steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from reput.base.config import StoreConfig
from reput.core.index.set_writer import IndexFileSetWriter
from reput.engine.rebuild.follow import driver
from reput.engine.rebuild.follow import follower as followed_log
from reput.engine.rebuild.follow.driver import follow_store
from reput.engine.rebuild.follow.follower import Follower
from reput.engine.rebuild.report import FollowReport, RebuildReport
from reput.errors import UsageError
from tests.follow.following import CONFIG, MADE, GrowingLog, assert_as_rebuilt
from tests.rebuild.rebuilding import rebuild
from tests.waiting import wait_for

_TIMEOUT_S = 600


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "_SETTLED_S", 0)
    monkeypatch.setattr(driver, "_POLL_S", 0.01)


def rebuilt(store: Path, output: Path, config: StoreConfig) -> RebuildReport:
    return rebuild(store, output, config)


class Following(Thread):
    """Runs `follow_store` in a thread, and records its callbacks."""

    def __init__(self, store: Path, output: Path) -> None:
        super().__init__(daemon=True)
        self._store, self._output = store, output
        self.stop, self.waits, self.position = Event(), Event(), 0
        self.called: list[str] = []
        self.report: FollowReport | None = None

    def run(self) -> None:
        self.report = follow_store(
            self._store, self._output, rebuilt, config=CONFIG, stop=self.stop,
            on_wait=self._waits, on_rebuilt=self._rebuilt, on_resume=self._resumed,
            on_step=self._step,
        )  # fmt: skip

    def _waits(self) -> None:
        self.called.append("waits")
        self.waits.set()

    def _rebuilt(self, report: RebuildReport) -> None:
        self.called.append("rebuilt")
        self.position = report.log_end

    def _resumed(self, report: FollowReport) -> None:
        self.called.append("resumed")
        self._step(report)

    def _step(self, report: FollowReport) -> None:
        self.position = report.position

    def until(self, position: int) -> None:
        wait_for(lambda: self.position >= position or not self.is_alive())
        assert self.position >= position

    def end(self) -> FollowReport:
        self.stop.set()
        self.join(_TIMEOUT_S)
        assert self.report is not None
        return self.report


@contextmanager
def following(store: Path, output: Path) -> Iterator[Following]:
    thread = Following(store, output)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop.set()
        thread.join(_TIMEOUT_S)


@pytest.mark.parametrize("found", ["nothing", "a folder", "an empty file"])
def test_the_first_message_of_a_log_is_waited_for(tmp_path: Path, found: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    if found != "nothing":
        (store / "commitlog").mkdir()
    if found == "an empty file":
        (store / "commitlog" / f"{0:020d}").touch()
    with following(store, tmp_path / "out") as running:
        assert running.waits.wait(_TIMEOUT_S)
        log = GrowingLog(store, MADE.files())
        log.write_to(MADE.offsets[3])
        log.write_to(MADE.offsets[100])
        running.until(MADE.offsets[100])
        assert running.end().position == MADE.offsets[100]
    assert running.called == ["waits", "rebuilt"]
    assert_as_rebuilt(log, tmp_path / "out", CONFIG)


def test_it_can_end_while_it_waits(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with following(tmp_path / "store", tmp_path / "out") as running:
        assert running.waits.wait(_TIMEOUT_S)
        assert running.end() == FollowReport()
    assert not (tmp_path / "out").exists()


def test_a_second_run_continues_without_a_rebuild(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(MADE.offsets[100])
    with following(log.path, tmp_path / "out") as first:
        log.write_to(MADE.offsets[200])
        first.until(MADE.offsets[200])
    log.write_to(MADE.offsets[300])
    with following(log.path, tmp_path / "out") as second:
        second.until(MADE.offsets[300])
        log.write_to(MADE.offsets[400])
        second.until(MADE.offsets[400])
    assert (first.called, second.called) == (["rebuilt"], ["resumed"])
    # A rebuild, or an earlier run, has indexed the others.
    assert first.report is not None
    assert second.report is not None
    # The rebuild may have read some of the 100 messages that were written meanwhile.
    assert (first.report.messages <= 100, second.report.messages) == (True, 200)
    assert_as_rebuilt(log, tmp_path / "out", CONFIG)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_end_in_the_middle_of_a_step_is_like_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The interrupted step has written queue entries of messages that neither the index nor the saved state has."""
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(MADE.offsets[100])

    def refuse(index: IndexFileSetWriter, batch: object) -> None:
        raise error

    def grow(report: RebuildReport) -> None:
        assert report.log_end == MADE.offsets[100]

    with monkeypatch.context() as patch:
        polled = Follower.poll

        def poll(follower: Follower) -> bool:
            log.write_to(MADE.offsets[300])
            patch.setattr(IndexFileSetWriter, "put", refuse)
            return polled(follower)

        patch.setattr(Follower, "poll", poll)
        if error is KeyboardInterrupt:
            follow_store(log.path, tmp_path / "out", rebuilt, config=CONFIG, on_rebuilt=grow)
        else:
            with pytest.raises(error):
                follow_store(log.path, tmp_path / "out", rebuilt, config=CONFIG, on_rebuilt=grow)
    with following(log.path, tmp_path / "out") as again:
        again.until(MADE.offsets[300])
    assert_as_rebuilt(log, tmp_path / "out", CONFIG)


def test_the_store_itself_is_not_an_output(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is the store itself"):
        follow_store(tmp_path, tmp_path, rebuilt)
