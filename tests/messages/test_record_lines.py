"""The printed lines of records have the same bytes, whether few or many records are converted at a time."""

from collections.abc import Callable

import pytest

from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.engine.messages import codec
from reput.engine.messages.codec import RecordLines, message_line
from tests.golden.stores import GoldenStore


@pytest.mark.parametrize("few_in_all", [0, 150, 1 << 30])
def test_few_and_many(
    few_in_all: int, golden: Callable[[str], GoldenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "_FEW_IN_ALL", few_in_all)
    monkeypatch.setattr(codec, "_KERNELS", "not loaded")
    log = CommitLogReader(StoreLog(golden("basic").path))
    found = list(LogWalk(log, log.min_offset))[:400]
    expected = b"".join(message_line(record.message()) + b"\n" for record in found)
    lines = RecordLines()
    parts = [found[:3], found[3:100], found[100:101], [], found[101:]]
    assert b"".join(b"".join(map(bytes, lines.of(part))) for part in parts) == expected
    alone = [record.alone() for record in found]
    assert b"".join(map(bytes, RecordLines().of(alone))) == expected
    assert all(len(record.data) == record.layout.total_bytes for record in alone)
