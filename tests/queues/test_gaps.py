"""Queues with pre-blank entries between others, which represent lost messages."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput.core.queues.reader import ConsumeQueueReader
from reput.engine.check.run import check_store
from reput.engine.stores import open_store
from tests.oracle.forge import RecordFields, encode_record, flip_bit, forge_log, write_store
from tests.rebuild.rebuilding import SMALL, rebuild

COUNT, LOST = 40, range(17, 24)
FIELDS = RecordFields("T", b"x" * 50, {"KEYS": "k"})
CONFIG = replace(SMALL, queue_entries=8)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with one queue of forty messages. Seven of them, the last ones of a log file, are unreadable."""
    size = len(encode_record(FIELDS))
    fields = [
        replace(FIELDS, queue_offset=n, store_timestamp=1_700_000_000_000 + 1000 * n)
        for n in range(COUNT)
    ]
    log = forge_log(fields, file_bytes=LOST.stop * size + 8)
    write_store(tmp_path, flip_bit(log.files(), log.offsets[LOST.start] + 4, 0))
    report = rebuild(tmp_path, tmp_path, CONFIG)
    assert report.queue_blanks == len(LOST)
    assert "7 pre-blank entries take the places of lost messages" in "".join(report.notes)
    return tmp_path


def test_every_other_message_has_its_number(store: Path) -> None:
    with open_store(store) as opened:
        assert (opened.min_queue_offset("T", 0), opened.max_queue_offset("T", 0)) == (0, COUNT)
        at, numbers = 0, []
        while at < COUNT:
            pulled = opened.pull("T", 0, at)
            numbers += [message.queue_offset for message in pulled.messages]
            at = pulled.next_begin_offset
    assert numbers == [n for n in range(COUNT) if n not in LOST]


def test_offset_by_time_passes_over_the_gap(store: Path) -> None:
    with open_store(store) as opened:
        for number in set(range(COUNT)) - set(LOST):
            offset = opened.offset_by_time("T", 0, 1_700_000_000_000 + 1000 * number)
            least = LOST.start if number == LOST.stop else number
            assert least <= offset <= number


def test_minimum_and_expiry_pass_over_the_gap(store: Path) -> None:
    queue = ConsumeQueueReader(str(store / "consumequeue" / "T" / "0"))
    for number in set(range(COUNT)) - set(LOST):
        at = queue.entry(number).physical_offset
        assert queue.min_queue_offset(at) == number
        assert len(queue.files_before(at)) <= number // CONFIG.queue_entries
    queue.close()


def test_a_check_finds_no_entry_out_of_place(store: Path) -> None:
    """Check reads the records after the damage in its file. A broker and a rebuild do not."""
    kinds = {finding.kind for finding in check_store(store, config=CONFIG) if finding.is_wrong}
    assert kinds == {"unreadable_record", "missing_queue_entry", "missing_index_entry"}
