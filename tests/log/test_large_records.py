"""A record may have up to 2 GiB: a reader holds its bytes once, and its body once more."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.format.commit_log import encode
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import reput as run

_BODY_BYTES = 48 << 20
_LITTLE = 4 << 20
MESSAGE_BYTES = len(encode(MESSAGE))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The large record is neither the first of its log nor the last."""
    large = replace(MESSAGE, body=bytes(_BODY_BYTES), properties_bytes=b"KEYS\x01large")
    return write_log(tmp_path_factory.mktemp("large") / "store", [MESSAGE, large, MESSAGE])


def most_memory(read: Callable[[], object]) -> int:
    """Return the peak of allocated bytes above the current level."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_walk_holds_a_record_once(store: Path) -> None:
    log = CommitLogReader(StoreLog(store))
    found: list[int] = []

    def walk() -> None:
        found.extend(record.layout.body_bytes for record in LogWalk(log, 0))

    assert most_memory(walk) < _BODY_BYTES + _LITTLE
    assert found == [len(MESSAGE.body), _BODY_BYTES, len(MESSAGE.body)]


def test_a_message_is_its_record_and_its_body(store: Path) -> None:
    with reput.open_store(store) as opened:
        assert most_memory(lambda: opened.get(MESSAGE_BYTES)) < 2 * _BODY_BYTES + _LITTLE
        assert most_memory(lambda: opened.query("T", "large")) < 2 * _BODY_BYTES + _LITTLE
        (found,) = opened.query("T", "large").messages
        assert (found.physical_offset, len(found.body)) == (MESSAGE_BYTES, _BODY_BYTES)


def test_what_is_shown_of_a_large_body_is_its_beginning(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.engine.messages.message_text._TEXT_LIMIT_BYTES", _BODY_BYTES - 1)
    ran = run("show", store, str(MESSAGE_BYTES))
    assert f"body             {_BODY_BYTES:,} bytes, too large to be shown whole" in ran.out
    assert ran.out.rstrip().endswith("--body-only writes all stored bytes")
    assert most_memory(lambda: run("show", store, str(MESSAGE_BYTES))) < 2 * _BODY_BYTES + _LITTLE
