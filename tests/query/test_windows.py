"""Queries of a time window: complete to the millisecond for any clock, and quick if the clock never stepped back."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.core.index import long_chain, search, window_search
from reput.core.index.proofs import Proof
from reput.core.log.reader import CommitLogReader
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import StoreReader
from reput.errors import StoreError
from reput.format.commit_log import MESSAGE_MAGIC
from reput.format.index_file import index_key, item_position, key_hash
from tests.index.proving import index_of, prove_and_keep
from tests.oracle.forge import RecordFields, forge_log, write_store

pytestmark = pytest.mark.usefixtures("own_cache")
SLOTS, ITEMS = 7, 24
BEGIN = 1_700_000_000_000
STEPS = st.one_of(
    st.integers(0, 900), st.integers(0, 5000), st.sampled_from([0, 0, 1, 999, 1000, 1001, 60_000]),
    st.sampled_from([-1, -400, -1001, -100_000, -3 * (1 << 41), 3 * (1 << 41)]),
)  # fmt: skip
RISING = st.integers(0, 2500)


def _times(steps: Sequence[int]) -> list[int]:
    now, times = BEGIN, []
    for step in steps:
        now += step
        times.append(now)
    return times


def _store(path: Path, times: Sequence[int], items: int = ITEMS) -> Path:
    """Write a store whose messages have a common key and their own unique key. Every fifth message has no key."""
    fields = [
        RecordFields(
            properties={"A": "b"} if n % 5 == 4 else {"KEYS": "hot", "UNIQ_KEY": f"u{n}"},
            store_timestamp=time,
        )
        for n, time in enumerate(times)
    ]
    log = forge_log(fields, file_bytes=1 << 14)
    write_store(path, log.files())
    index_of(path, log.files(), slots=SLOTS, items=items)
    return path


def _prove_all(path: Path, items: int = ITEMS) -> list[Proof]:
    found = []
    with StoreReader(path, hash_slots=SLOTS, index_items=items) as store:
        for file in store.index.current():
            found.append(prove_and_keep(file, store.commit_log))
    return found


def _windows(times: Sequence[int]) -> Iterator[tuple[int | None, int | None]]:
    """Return windows that begin or end at the time of a message, or a millisecond before or after it."""
    edges = sorted({times[0], times[-1], min(times), max(times), times[len(times) // 2]})
    for begin in [None, *(edge + off for edge in edges for off in (-1, 0, 1))]:
        yield begin, None
        yield None, begin
        for length in (0, 1, 999, 3000):
            yield begin, None if begin is None else begin + length


def _check(path: Path, times: Sequence[int], items: int = ITEMS) -> None:
    with MessageStore(path, hash_slots=SLOTS, index_items=items) as store:
        everything = store.query("T", "hot").messages
        assert len(everything) == sum(n % 5 != 4 for n in range(len(times)))
        for begin, end in _windows(times):
            found = store.query("T", "hot", begin=begin, end=end)
            low, high = (-(1 << 70) if begin is None else begin, 1 << 70 if end is None else end)
            expected = [m for m in everything if low <= m.store_timestamp <= high]
            assert list(found.messages) == expected, (begin, end)
            assert found.is_complete


@pytest.fixture
def many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower all limits, so that a few candidates are read like many: the newest in Python, all others by kernels."""
    monkeypatch.setattr(search, "_READ_FIRST", 2)
    monkeypatch.setattr(search, "_FEW", 3)
    monkeypatch.setattr(long_chain, "_PART_ITEMS", 12)
    monkeypatch.setattr(long_chain, "_FEWEST_STEPS", 2)
    monkeypatch.setattr(long_chain, "_PIECE", 5)
    monkeypatch.setattr(window_search, "_LEAST_READ_BYTES", 100)
    monkeypatch.setattr(window_search, "_WINDOW_BYTES", 700)


@given(st.lists(STEPS, min_size=2, max_size=60) | st.lists(RISING, min_size=2, max_size=60))
@example(
    [0, 5000, -3000, 10, 2000, 2000, 0, 0, 7, -1, 100_000, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
)
def test_any_clock(steps: list[int]) -> None:
    times = _times(steps)
    with TemporaryDirectory() as folder:
        path = _store(Path(folder) / "store", times)
        _check(path, times)  # the file is not proven, only spot-checked
        _prove_all(path)
        _check(path, times)


@given(st.lists(STEPS, min_size=10, max_size=90))
@example([0, 5000, -3000, 10, 2000, 2000, 0, 0, 7, -1, 100_000, *[4] * 60])
@pytest.mark.usefixtures("many_at_once")
def test_any_clock_and_many_candidates(steps: list[int]) -> None:
    times = _times(steps)
    with TemporaryDirectory() as folder:
        path = _store(Path(folder) / "store", times, items=200)
        _check(path, times, 200)
        _prove_all(path, 200)
        _check(path, times, 200)


@pytest.mark.usefixtures("many_at_once")
def test_of_many_candidates_only_those_in_the_window_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [BEGIN + (100 * n if n % 7 else -n) for n in range(700)]
    path = _store(tmp_path / "store", times, items=3000)
    with MessageStore(path, hash_slots=SLOTS, index_items=3000) as store:
        store.query("T", "none")
        located = []
        locate = CommitLogReader.locate

        def counting(log: CommitLogReader, *where: int) -> object:
            located.append(where)
            return locate(log, *where)

        monkeypatch.setattr(CommitLogReader, "locate", counting)
        found = store.query("T", "hot", begin=times[101], end=times[101] + 2999)
        assert len(found.messages) == 21
        assert len(located) < 60
        located.clear()
        newest = store.query("T", "hot", begin=times[101], end=times[101] + 2999, limit=4)
        assert newest.messages == found.messages[:4]
        assert newest.cursor is not None
        older = store.query(
            "T", "hot", begin=times[101], end=times[101] + 2999, after=newest.cursor
        )
        assert older.messages == found.messages[4:]


def _hot_offsets(path: Path) -> list[int]:
    with MessageStore(path, hash_slots=SLOTS, index_items=3000) as store:
        return [one.physical_offset for one in store.query("T", "hot").messages][::-1]


@pytest.mark.every_case
@pytest.mark.parametrize(
    "damage", ["another key", "another place", "no magic", "too long", "a chain", "another time"]
)
@pytest.mark.usefixtures("many_at_once")
def test_what_is_wrong_outside_the_window_is_noticed(tmp_path: Path, damage: str) -> None:
    """Damage is noticed as if each candidate were read alone: the range is scanned, and its index is not trusted."""
    times = [BEGIN + 100 * n for n in range(300)]
    path = _store(tmp_path / "store", times, items=3000)
    wrong = _hot_offsets(path)[100]
    (index,) = (path / "index").iterdir()
    if damage == "a chain":
        data = bytearray(index.read_bytes())
        wanted = struct.pack(">iq", key_hash(index_key("T", "hot")), wrong)
        struct.pack_into(">i", data, data.index(wanted) + 16, 2**30)
        index.write_bytes(data)
    else:
        log = path / "commitlog" / f"{wrong >> 14 << 14:020d}"
        data, at = bytearray(log.read_bytes()), wrong % (1 << 14)
        assert int.from_bytes(data[at + 4 : at + 8], "big", signed=True) == MESSAGE_MAGIC
        position, change = {
            "another key": (data.index(b"hot", at), b"hat"),
            "another place": (at + 28, struct.pack(">q", wrong + 1)),
            "no magic": (at + 4, bytes(4)),
            "too long": (at + 84, struct.pack(">i", 2**30)),
            "another time": (at + 56, struct.pack(">q", times[280])),
        }[damage]
        data[position : position + len(change)] = change
        log.write_bytes(data)
    with MessageStore(path, hash_slots=SLOTS, index_items=3000) as store:
        window = {"begin": times[270], "end": times[290]}
        before = [one.physical_offset for one in store.query("T", "hot").messages]
        found = store.query("T", "hot", **window)
        stored = [one.store_timestamp for one in found.messages]
    expected = [time for n, time in enumerate(times) if n % 5 != 4 and 270 <= n <= 290][::-1]
    if damage == "another time":
        assert stored == [*expected, times[280]]
        assert found.coverage.problems == ()
    else:
        assert stored == expected
        assert found.coverage.problems
        assert found.coverage.scanned
    assert (wrong in before) == (damage in ("a chain", "another time"))


@pytest.mark.usefixtures("many_at_once")
def test_a_file_of_the_log_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    times = [BEGIN + 100 * n for n in range(600)]
    path = _store(tmp_path / "store", times, items=3000)
    with MessageStore(path, hash_slots=SLOTS, index_items=3000) as store:
        window = {"begin": times[500], "end": times[590]}
        expected = store.query("T", "hot", **window).messages
        logs = sorted((path / "commitlog").iterdir())
        assert len(logs) > 4
        logs[1].unlink()  # this file is lost
        found = store.query("T", "hot", **window)
        assert found.messages == expected
        assert not found.is_complete
        logs[0].unlink()  # the first file expires
        logs[2].unlink()
        found = store.query("T", "hot", **window)
        assert found.messages == expected
        assert found.is_complete


@pytest.mark.usefixtures("many_at_once")
def test_a_file_of_the_log_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    times = [BEGIN + 100 * n for n in range(600)]
    path = _store(tmp_path / "store", times, items=3000)
    with MessageStore(path, hash_slots=SLOTS, index_items=3000) as store:
        store.query("T", "none")
        with open(sorted((path / "commitlog").iterdir())[1], "r+b") as file:
            file.truncate(100)
        with pytest.raises(StoreError):
            store.query("T", "hot", begin=times[500], end=times[590])


def test_a_time_so_early_that_javas_difference_wraps(tmp_path: Path) -> None:
    """Index items of such messages state the maximal number of seconds; here they are the newest items."""
    times = [BEGIN + 100 * n for n in range(400)] + [-(2**63) + 5 + n for n in range(4)]
    path = _store(tmp_path / "store", times, items=3000)
    _prove_all(path, 3000)
    with MessageStore(path, hash_slots=SLOTS, index_items=3000) as store:
        found = store.query("T", "hot", end=BEGIN + 5000).messages
    wanted = [time for n, time in enumerate(times) if n % 5 != 4 and time <= BEGIN + 5000]
    assert [message.store_timestamp for message in found] == wanted[::-1]


def test_only_what_can_be_of_the_window_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [BEGIN + 100 * n for n in range(2000)]
    path = _store(tmp_path / "store", times, items=1500)
    assert [proof.is_timed for proof in _prove_all(path, 1500)] == [True] * 3
    located = []
    locate = CommitLogReader.locate
    with MessageStore(path, hash_slots=SLOTS, index_items=1500) as store:
        store.query("T", "none")

        def counting(log: CommitLogReader, *where: int) -> object:
            located.append(where)
            return locate(log, *where)

        monkeypatch.setattr(CommitLogReader, "locate", counting)
        found = store.query("T", "hot", begin=times[-1] - 999, end=times[-1])
        assert len(found.messages) == 8
        assert len(located) < 60
        located.clear()
        found = store.query("T", "hot", begin=times[1000], end=times[1000] + 999)
        assert len(found.messages) == 8
        assert len(located) < 60


@pytest.mark.parametrize("damage", ["an edge", "a fall", "the header"])
def test_seconds_that_are_wrong_are_not_relied_on(tmp_path: Path, damage: str) -> None:
    """They are not used even after the file was proved."""
    times = [BEGIN + 100 * n for n in range(1000)]
    path = _store(tmp_path / "store", times, items=3000)
    (proof,) = _prove_all(path, 3000)
    assert proof.is_timed
    (index,) = (path / "index").iterdir()
    data = bytearray(index.read_bytes())
    if damage == "the header":
        struct.pack_into(">q", data, 0, BEGIN - 30_000)
    else:
        first, last = (2, 900) if damage == "an edge" else (700, 700)
        for item in range(first, last + 1):
            struct.pack_into(">i", data, item_position(SLOTS, item) + 12, 0)
    # Overwrite the file in place, so that it keeps its inode and its size, by which a saved proof might be found.
    index.write_bytes(data)
    monkeyed = _prove_all(path, 3000)
    if damage != "the header":
        assert monkeyed[0].is_timed is False
    _check(path, times, 3000)


def test_an_edge_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """An open file changes: its items state earlier times than their messages have, but the times still ascend."""
    times = [BEGIN + 100 * n for n in range(1000)]
    path = _store(tmp_path / "store", times, items=3000)
    _prove_all(path, 3000)
    with MessageStore(path, hash_slots=SLOTS, index_items=3000) as store:
        window = {"begin": times[500], "end": times[500] + 5000}
        expected = store.query("T", "hot", **window).messages
        assert expected
        (index,) = (path / "index").iterdir()
        with open(index, "r+b") as file:
            for item in range(2, 1601):
                file.seek(item_position(SLOTS, item) + 12)
                file.write(struct.pack(">i", 0))
        assert store.query("T", "hot", **window).messages == expected
