"""Like a broker, a store tries a failing append to a ConsumeQueue thirty times. Then it accepts no more messages."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from reput.errors import StoreFailedError
from tests.recovery.checking import check_store
from tests.small import SMALL_64K

Message = reput.Message


class Failing:
    """Lets the next `left` writes into ConsumeQueues fail, and counts them in `failed`."""

    def __init__(self) -> None:
        self.left, self.failed = 0, 0
        self._pwrite = os.pwrite

    def __call__(self, descriptor: int, data: bytes, position: int) -> int:
        if self.left and "/consumequeue/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            self.left -= 1
            self.failed += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._pwrite(descriptor, data, position)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    failing = Failing()
    monkeypatch.setattr(os, "pwrite", failing)
    yield failing
    failing.left = 0


@pytest.mark.parametrize("times", [1, 29])
def test_an_append_is_tried_again(tmp_path: Path, disk: Failing, times: int) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_64K, append_retry_pause_s=0.001) as store:
        ends: dict[int, int] = {}
        store.subscribe(lambda topic, queue_id, end: ends.update({queue_id: end}))
        store.put_many([Message("T", b"x", [str(n)], queue_id=n % 3) for n in range(200)])
        assert store.wait_dispatched()
        disk.left = times
        store.put_many([Message("T", b"x", [str(n)], queue_id=n % 3) for n in range(200)])
        assert store.wait_dispatched()
        assert disk.failed == times
        assert ends == {0: 134, 1: 134, 2: 132}
    check_store(path, SMALL_64K)


def test_after_thirty_tries_the_store_takes_no_more(tmp_path: Path, disk: Failing) -> None:
    path = tmp_path / "store"
    store = reput.open_store(path, mode="rw", config=SMALL_64K, append_retry_pause_s=0.001)
    disk.left = 30
    put = store.put(Message("T", b"x", ["k"]))
    with pytest.raises(StoreFailedError, match="No space left"):
        store.wait_dispatched()
    assert (disk.left, disk.failed) == (0, 30)
    with pytest.raises(StoreFailedError):
        store.put(Message("T", b"y"))
    with pytest.raises(StoreFailedError):
        store.close()
    with reput.open_store(path, mode="rw", config=SMALL_64K) as again:
        assert again.get_by_queue("T", 0, 0).physical_offset == put.physical_offset
    check_store(path, SMALL_64K)
