"""The next client for a thread is the one that has used threads least, even if it reconnects, waits or leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from threading import Event

from reput.wings.serve.remoting.threads import FairThreads, User


class Clock:
    """A clock that jobs advance by the time that they claim to take."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Bench:
    """Runs one thread at a time by default, and records its calls in order."""

    def __init__(self, threads: int = 1) -> None:
        self.clock = Clock()
        self.threads = FairThreads(threads, self.clock)
        self.begun: list[str] = []
        self._left = 0
        self._all_done = asyncio.Event()

    def submit(self, user: User, name: str, takes_s: float = 0.0) -> None:
        self._left += 1
        self._all_done.clear()
        self.threads.submit(user, partial(self._work, name, takes_s), self._done)

    def _work(self, name: str, takes_s: float) -> str:
        self.begun.append(name)
        self.clock.now_s += takes_s
        return name

    def _done(self, name: str) -> None:
        self._left -= 1
        if not self._left:
            self._all_done.set()

    async def all_done(self) -> None:
        await self._all_done.wait()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def guarded() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(guarded())


def test_a_client_that_grew_heavy_while_it_waited_is_not_next() -> None:
    async def test() -> None:
        bench, heavy, light = Bench(), User(), User()
        for n in range(4):
            bench.submit(heavy, f"heavy {n}", 5.0)
        for n in range(2):
            bench.submit(light, f"light {n}", 0.1)
        await bench.all_done()
        assert bench.begun == ["heavy 0", "light 0", "light 1", "heavy 1", "heavy 2", "heavy 3"]

    run(test)


def test_who_connects_anew_is_not_before_who_stays_and_asks_little() -> None:
    async def test() -> None:
        bench, quiet = Bench(), User()
        bench.submit(quiet, "quiet", 0.01)
        await bench.all_done()
        for n in range(20):
            bench.submit(User(), f"first {n}", 1.0)
        await bench.all_done()
        for n in range(20):
            bench.submit(User(), f"anew {n}", 1.0)
        bench.submit(quiet, "quiet", 0.01)
        await bench.all_done()
        assert bench.begun.index("quiet", 1) == 22

    run(test)


def test_clients_that_come_all_at_once_are_not_before_who_asks_little() -> None:
    async def test() -> None:
        bench, quiet = Bench(), User()
        for _ in range(5):
            bench.submit(quiet, "quiet", 0.01)
            await bench.all_done()
            bench.clock.now_s += 10
        for n in range(20):
            bench.submit(User(), f"{n}", 1.0)
        bench.submit(quiet, "last", 0.01)
        await bench.all_done()
        assert bench.begun.index("last") == 6

    run(test)


def test_of_clients_that_connect_anew_each_gets_its_turn() -> None:
    async def test() -> None:
        bench = Bench()
        for n in range(5):
            bench.submit(User(), f"{n}", 1.0)
        newcomer = User()
        bench.submit(newcomer, "new", 0.1)
        bench.submit(newcomer, "new", 0.1)
        for n in range(5, 10):
            bench.submit(User(), f"{n}", 1.0)
        await bench.all_done()
        assert bench.begun[5] == "new"

    run(test)


def test_a_client_has_one_job_at_work_while_others_wait_and_leaves_a_thread_free() -> None:
    async def test() -> None:
        bench, first, second = Bench(4), User(), User()
        for n in range(8):
            bench.submit(first, f"first {n}")
        assert (first.running, len(first.waiting)) == (3, 5)
        bench.submit(second, "second")
        bench.submit(second, "second")
        assert (first.running, second.running) == (3, 1)
        bench.threads._finish(first, lambda outcome: None, None, 0.0)
        assert (first.running, second.running) == (2, 1)
        bench.threads.shutdown()

    run(test)


def test_the_last_thread_is_kept_for_clients_that_use_little_or_have_waited() -> None:
    async def test() -> None:
        bench, quiet, newcomer = Bench(4), User(), User()
        bench.submit(quiet, "quiet")
        await bench.all_done()
        bench.clock.now_s += 10
        users = [User() for _ in range(3)]
        release = Event()
        for user in users:
            bench.threads.submit(user, release.wait, lambda outcome: None)
        bench.submit(newcomer, "new")
        bench.submit(quiet, "quiet")
        while bench.begun.count("quiet") < 2 or quiet.running:
            await asyncio.sleep(0)
        assert newcomer.running == 0
        bench.clock.now_s += 5
        await bench.all_done()
        assert bench.begun == ["quiet", "quiet", "new"]
        release.set()

    run(test)


def test_jobs_of_a_client_that_is_gone_or_not_ready_do_not_begin() -> None:
    async def test() -> None:
        is_ready = False
        bench, gone, other = Bench(), User(), User(lambda: is_ready)
        bench.submit(gone, "first")
        bench.submit(gone, "gone")
        gone.leave()
        bench.submit(other, "later")
        bench.submit(User(), "third")
        while "third" not in bench.begun or bench.threads._busy:
            await asyncio.sleep(0)
        assert bench.begun == ["first", "third"]
        is_ready = True
        bench.threads.wake(other)
        while bench.threads._busy or other.waiting:
            await asyncio.sleep(0)
        assert bench.begun == ["first", "third", "later"]

    run(test)
