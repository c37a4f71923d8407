"""Fillers: records that fill a range of any length exactly, and that a broker skips."""

from hypothesis import given, settings
from hypothesis import strategies as st

from reput.core.log.dispatch_batch import Queue
from reput.engine.check.repairing.log_damage import (
    DamagedRange,
    KnownMessage,
    can_be_filled,
    filler,
)
from tests.oracle.records import Blank, Record, decode
from tests.slow import examples


@given(
    st.integers(8, 3000),
    st.booleans(),
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(1, 3000), st.sampled_from(["T", "long" * 30]))
    ),
)
@settings(max_examples=examples(30))
def test_any_range_is_filled_exactly(
    length: int, ends_file: bool, entries: list[tuple[int, int, str]]
) -> None:
    start = 1000
    known = tuple(
        KnownMessage(start + at, size, Queue(topic, 3), number)
        for number, (at, size, topic) in enumerate(sorted({e[0]: e for e in entries}.values()))
        if at < length
    )
    damaged = DamagedRange(start, start + length, 77, ends_file, known)
    if not can_be_filled(damaged):
        assert length < 200
        return
    position, numbers, blank = start, [], False
    for offset, data in filler(damaged):
        assert not blank
        assert offset == position
        found = decode(data, 0)
        if isinstance(found, Blank):
            blank, position = True, position + found.declared_size
            continue
        assert isinstance(found, Record)
        assert (found.physical_offset, found.total_size, found.index_keys) == (
            offset,
            len(data),
            [],
        )
        # To a reader of a growing log, a zero at this place means that the record is not completely written yet.
        assert data[-1] != 0
        if found.sys_flag & 12 == 0:
            numbers.append(found.queue_offset)
        position += found.total_size
    assert position == start + length
    assert blank == ends_file  # without the filler, a broker ends the log where the file ends
    assert numbers == sorted(numbers)


def test_messages_of_their_own_sizes_each_have_a_placeholder() -> None:
    known = tuple(KnownMessage(1000 + 200 * n, 200, Queue("T", 0), n) for n in range(5))
    found = [decode(data, 0) for _, data in filler(DamagedRange(1000, 2000, 5, False, known))]
    assert [
        (r.physical_offset, r.total_size, r.queue_offset) for r in found if isinstance(r, Record)
    ] == [(k.physical_offset, k.size, k.queue_offset) for k in known]


def test_a_large_range_is_many_records() -> None:
    sizes = [len(data) for _, data in filler(DamagedRange(0, 5 << 20 | 1, 5))]
    assert sum(sizes) == 5 << 20 | 1
    assert max(sizes) <= 1 << 20
