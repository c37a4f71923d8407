"""All of a log as lines: identical to single messages, damage and the log's end included."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.base.findings import Finding, Kind
from reput.core.query.message_store import MessageStore
from reput.engine.messages import tail_lines
from reput.engine.messages.codec import message_line
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.messages.tail_lines import lines_of_all
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, forge_log, write_store


def _check(path: Path, few: int, together: int = 8) -> int:
    """Compare all lines with the lines of single messages, and return their number.

    Each way opens the store itself, so that it must find the end of the log without the other's help.
    """
    with MessageStore(path) as store:
        slow = LogTail(store, TailFilter())
        expected = b"".join(message_line(m) + b"\n" for m in slow.new(to_the_end=True))
    with MessageStore(path) as store, patch.multiple(tail_lines, _FEW=few, _TOGETHER=together):
        quick = LogTail(store, TailFilter())
        count, found = 0, b""
        for lines in lines_of_all(quick, store.commit_log):
            count += lines.messages
            found += bytes(lines.data)
    assert found == expected
    assert count == expected.count(b"\n")
    assert quick.position == slow.position
    assert _by_place(quick.damage) == _by_place(slow.damage)
    return count


def _by_place(damage: list[Finding]) -> list[Finding]:
    """Sort findings, because the two ways report them in different orders: one continues after the kernels."""
    return sorted(damage, key=lambda one: (one.physical_offset or 0, one.kind, one.detail))


@pytest.mark.parametrize("name", ["basic", "orders", "timed", "tricky", "extremes", "lmq"])
def test_what_a_broker_wrote(name: str, golden: Callable[[str], GoldenStore]) -> None:
    store = golden(name)
    assert _check(store.path, 100) == len(store.messages)


@example(20, [(1457, 1)], 1, False)  # a body of one byte with the CRC of a body of twelve bytes
@given(
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(0, 1 << 13), st.integers(0, 255)), max_size=4),
    st.integers(1, 20),
    st.booleans(),
)
def test_damage_is_what_it_is_message_by_message(
    messages: int, damage: list[tuple[int, int]], few: int, is_missing: bool
) -> None:
    fields = [
        RecordFields(
            topic="SCHEDULE_TOPIC_XXXX" if n % 7 == 6 else "T",
            properties={"KEYS": f"k{n}", "DELAY": "x" if n == 34 else "3"},
            body=bytes([n]) * (n % 90),
        )
        for n in range(messages)
    ]
    files = [
        (start, bytearray(data)) for start, data in forge_log(fields, file_bytes=1 << 11).files()
    ]
    for at, byte in damage:
        number, place = divmod(at, 1 << 11)
        if number < len(files):
            files[number][1][place] = byte
    if is_missing and len(files) > 2:
        del files[1]
    with TemporaryDirectory() as folder:
        path = write_store(Path(folder) / "store", [(start, bytes(data)) for start, data in files])
        _check(path, few, 3)


def test_a_wrong_body_is_reported_wherever_it_is(tmp_path: Path) -> None:
    fields = [RecordFields(body=b"%04d" % n) for n in range(100)]
    data = bytearray(forge_log(fields, file_bytes=1 << 15).files()[0][1])
    for n in (3, 50, 99):
        data[data.index(b"%04d" % n)] ^= 1
    path = write_store(tmp_path / "store", [(0, bytes(data))])
    assert _check(path, 10) == 100
    with MessageStore(path) as store, patch.object(tail_lines, "_FEW", 10):
        tail = LogTail(store, TailFilter())
        list(lines_of_all(tail, store.commit_log))
        assert [one.kind for one in tail.damage] == [Kind.BODY_CRC] * 3
