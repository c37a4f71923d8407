"""An index that is missing, lost in part or wrong: every reader's answer is complete, and states what was scanned."""

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

import reput
from reput.format.index_file import index_key, key_hash
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase
from tests.index.readers import READERS, Reader
from tests.oracle.forge import RecordFields, flip_bit, forge_log, overwrite, write_store
from tests.query.stores import (
    Keyed,
    build_store,
    keyed_messages,
    offsets,
    walked_messages,
    write_index,
)
from tests.slow import IS_THOROUGH

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]
_TORN_CASES = (
    *("abort_clean", "checkpoint_future_abort", "crc_late_abort", "crc_late_noabort"),
    *("crc_old_noabort", "index_count_zero_abort", "index_count_zero_noabort"),
    *("index_deleted_abort", "index_deleted_noabort", "index_header_zero_noabort"),
    *("index_junk_file", "index_last_entry_half", "index_short_file", "kill9", "lmq_restart"),
    *("magic_first_lastfile_abort", "name_collision", "short_file", "size_bigger_noabort"),
    *("tail_noabort",),
)


@pytest.fixture
def basic(golden: Golden, tmp_path: Path) -> Path:
    """A copy of `basic` that tests may damage."""
    return copy_store(golden("basic").path, tmp_path / "store")


@pytest.fixture(scope="module")
def keyed(golden: Golden) -> Keyed:
    return keyed_messages(golden("basic").messages)


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


def index_files(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


def assert_finds_all(reader: Reader, path: Path, keyed: Keyed, step: int = 23) -> None:
    """Check every `step`th key; in a quick run, only a fifth of these keys."""
    asked = sorted(keyed)[:: step if IS_THOROUGH else 5 * step]
    expected = [sorted(keyed[each], reverse=True) for each in asked]
    found = reader(path, asked)
    assert {a: f for a, f, e in zip(asked, found, expected, strict=True) if f != e} == {}


def test_without_index_everything_is_scanned(basic: Path, keyed: Keyed, reader: Reader) -> None:
    for path in index_files(basic):
        path.unlink()
    assert_finds_all(reader, basic, keyed, step=97)
    with reput.open_store(basic) as opened:
        coverage = opened.query("TopicB", "K1").coverage
        assert coverage.scanned == (coverage.log,)
        assert (coverage.indexed, coverage.problems) == ((), ())
    (basic / "index").rmdir()
    with reput.open_store(basic) as opened:
        assert opened.query("TopicB", "K1").coverage == coverage


def test_where_a_file_is_lost_its_range_is_scanned(
    basic: Path, golden: Golden, keyed: Keyed, reader: Reader
) -> None:
    lost = golden("basic").index[12]
    (basic / "index" / lost.file).unlink()
    assert_finds_all(reader, basic, keyed)
    with reput.open_store(basic) as opened:
        coverage = opened.query("TopicB", "K1").coverage
        assert lost.file not in {part.index_file for part in coverage.indexed}
        assert any(
            part.start <= lost.begin_physical_offset and lost.end_physical_offset <= part.stop
            for part in coverage.scanned
        )


@pytest.mark.parametrize("left_bytes", [1, 39, 40, 3000, 8439])
def test_a_truncated_file_is_named_and_its_range_scanned(
    basic: Path, keyed: Keyed, left_bytes: int, reader: Reader
) -> None:
    path = index_files(basic)[7]
    path.write_bytes(path.read_bytes()[:left_bytes])
    assert_finds_all(reader, basic, keyed)
    with reput.open_store(basic) as opened:
        (problem,) = opened.query("TopicB", "K1").coverage.problems
        assert str(problem).startswith(f"{path}: offset {left_bytes}: {left_bytes} bytes")


def test_names_that_are_not_numbers_are_left_alone(
    basic: Path, keyed: Keyed, reader: Reader
) -> None:
    (basic / "index" / "junk").write_bytes(b"junk")
    (basic / "index" / "20261120223100000.bak").write_bytes(bytes(8440))
    (basic / "index" / "20261120223100001").mkdir()
    assert_finds_all(reader, basic, keyed, step=97)
    with reput.open_store(basic) as opened:
        assert opened.query("TopicB", "K1").coverage.problems == ()


def damage_chains(path: Path, slots: Iterable[int], how: str, random: Random) -> None:
    """Break the chain of each of these slots in an IndexFile of `basic`."""
    data = bytearray(path.read_bytes())
    items_at = 40 + 4 * 100
    count = struct.unpack_from(">i", data, 36)[0]
    for slot in slots:
        (item,) = struct.unpack_from(">i", data, 40 + 4 * slot)
        if item == 0:
            continue
        (before,) = struct.unpack_from(">i", data, items_at + 20 * item + 16)
        to = {
            "itself": item,
            "forward": min(item + 1 + random.randrange(20), count - 1),
            "outside": count + random.randrange(100),
            "far outside": 2**31 - 1,
            "below zero": -random.randrange(1, 2**31),
            "another slot": max(item - 1, 1),
        }[how]
        at = 40 + 4 * slot if how == "outside" or before == 0 else items_at + 20 * item + 16
        struct.pack_into(">i", data, at, to)
    path.write_bytes(data)


_BROKEN = ("itself", "forward", "outside", "far outside", "below zero", "another slot")


@pytest.mark.parametrize("how", _BROKEN)
def test_with_many_broken_chains_the_file_is_not_believed(
    basic: Path, keyed: Keyed, how: str, reader: Reader
) -> None:
    path = index_files(basic)[3]
    damage_chains(path, range(0, 100, 3), how, Random(how))
    # Query first: a look-up proves parts of the index and saves the proof, and then this problem is no longer reported.
    with reput.open_store(basic) as opened:
        (problem,) = opened.query("TopicB", "K1").coverage.problems
        assert str(problem) == f"{path}: its slots do not lead to its entries"
    assert_finds_all(reader, basic, keyed, step=17)


@pytest.mark.parametrize("how", _BROKEN)
def test_a_broken_chain_is_cut_and_only_the_range_of_its_file_scanned(
    basic: Path, golden: Golden, keyed: Keyed, how: str, reader: Reader
) -> None:
    row = golden("basic").index[3]
    slot = 17
    damage_chains(basic / "index" / row.file, [slot], how, Random(how))
    in_the_slot = [asked for asked in sorted(keyed) if key_hash(index_key(*asked)) % 100 == slot]
    elsewhere = next(asked for asked in sorted(keyed) if asked not in in_the_slot)
    size = row.end_physical_offset - row.begin_physical_offset
    assert_finds_all(reader, basic, {asked: keyed[asked] for asked in in_the_slot[:20]}, step=1)
    with reput.open_store(basic) as opened:
        whole = opened.query(*elsewhere).coverage
        assert whole.problems == ()
        for asked in in_the_slot[:20]:
            found = opened.query(*asked)
            assert offsets(found) == sorted(keyed[asked], reverse=True)
            # Ranges of the log that items lost from the chain may have covered are reported and scanned.
            problems = found.coverage.problems
            assert {problem.file for problem in problems} == {str(basic / "index" / row.file)}
            assert all(problem.detail.endswith("were scanned") for problem in problems)
            assert found.coverage.scanned_bytes - whole.scanned_bytes <= size
            assert row.file not in {part.index_file for part in found.coverage.indexed}
            assert found.is_complete


def test_lost_pages_of_slots_or_items_are_noticed(
    basic: Path, keyed: Keyed, reader: Reader
) -> None:
    files = index_files(basic)
    for path, at, length in (
        (files[2], 40, 400),  # every slot
        (files[4], 440 + 20 * 200, 4000),  # some of the newer half of the items
        (files[6], 440 + 20, 3000),  # some of the older half of the items
        (files[8], 16, 8),  # the header's begin fields
    ):
        data = bytearray(path.read_bytes())
        data[at : at + length] = bytes(length)
        path.write_bytes(data)
    assert_finds_all(reader, basic, keyed)
    with reput.open_store(basic) as opened:
        assert len(opened.query("TopicB", "K1").coverage.problems) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", _TORN_CASES)
@pytest.mark.parametrize("state", ["before", "after", "after_more"])
def test_nothing_is_missed_in_a_damaged_golden_store(
    torn: Torn, name: str, state: str, reader: Reader
) -> None:
    path = torn(name).root / state
    if not path.exists():
        pytest.skip(f"{name} has no {state}")
    keyed = walked_messages(path)
    newest = sorted(keyed, key=lambda asked: max(keyed[asked]))[-60:]
    with reput.open_store(path) as opened:
        coverage = opened.query(*newest[0]).coverage
        step = 20 if coverage.scanned_bytes > coverage.log.size_bytes / 3 else 1  # slow, and simple
        asked = [*sorted(keyed)[:: 29 * step], *newest[::step]]
        for each, found in zip(asked, reader(path, asked), strict=True):
            # An index may lead to messages after damage, which the oracle's walk does not reach.
            beyond = set(found) - set(keyed[each])
            assert set(keyed[each]) <= set(found)
            assert all(opened.get(offset).topic == each[0] for offset in beyond)


class CutLog:
    """A log that its broker truncated at a damaged record, and then continued."""

    def __init__(self, path: Path, more: int) -> None:
        old = [
            RecordFields(properties={"KEYS": f"old{n} every"}, store_timestamp=1000 + n)
            for n in range(200)
        ]
        log = forge_log(old, file_bytes=1 << 16)
        self.cut_at = log.offsets[100]
        new = [
            RecordFields(properties={"KEYS": f"new{n} every"}, body=b"b", store_timestamp=9000 + n)
            for n in range(more)
        ]
        tail = forge_log(new, file_bytes=1 << 16, start_offset=self.cut_at)
        self.new_offsets = tail.offsets
        written = tail.files()[0][1][: tail.end_offset - self.cut_at]
        files = overwrite(log.files(), self.cut_at, written)
        self.path = write_store(path, files)
        # The index is never cut: it has all of the old entries, and of the new ones only
        # entries after the last old one.
        write_index(path, log.files(), hash_slots=50, index_items=150)
        checkpoint = struct.pack(">qqq", 0, 9000 + more - 1, 0)
        (path / "checkpoint").write_bytes(checkpoint.ljust(4096, b"\0"))


@pytest.mark.parametrize("more", [1, 2, 5, 30, 95])
def test_messages_over_what_was_cut_off_are_found(
    tmp_path: Path, more: int, reader: Reader
) -> None:
    log = CutLog(tmp_path / "store", more)
    fresh = [("T", f"new{n}") for n in range(more)]
    assert reader(log.path, fresh) == [[offset] for offset in log.new_offsets]
    (every,) = reader(log.path, [("T", "every")])
    assert set(log.new_offsets) <= set(every)
    kept, cut = reader(log.path, [("T", "old99"), ("T", "old100")])
    assert kept != []
    assert cut == []


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "as they were"])
def test_messages_that_changed_places_are_found_if_they_state_them(
    tmp_path: Path, in_place: bool, reader: Reader
) -> None:
    records = [RecordFields(properties={"KEYS": f"k{n + 100} every"}) for n in range(400)]
    log = forge_log(records, file_bytes=1 << 16)
    path = build_store(tmp_path / "store", log.files(), hash_slots=50, index_items=1000)
    first, second = log.offsets[170], log.offsets[230]
    size = log.offsets[171] - first
    assert log.offsets[231] - second == size
    ((_, data),) = files = log.files()
    for at, other in ((first, second), (second, first)):
        moved = bytearray(data[other : other + size])
        if in_place:
            moved[28:36] = struct.pack(">q", at)  # the field PHYSICALOFFSET
        files = overwrite(files, at, bytes(moved))
    (path / "commitlog" / f"{0:020d}").write_bytes(files[0][1])
    asked = [("T", "k270"), ("T", "k330"), ("T", "k271"), ("T", "every")]
    every = [at for at in log.offsets[::-1] if in_place or at not in (first, second)]
    places = [[second], [first]] if in_place else [[], []]
    assert reader(path, asked) == [*places, [log.offsets[171]], every]


def test_damage_where_it_must_be_scanned_is_told(tmp_path: Path) -> None:
    records = [RecordFields(properties={"KEYS": f"k{n}"}, body=b"x" * 50) for n in range(100)]
    log = forge_log(records, file_bytes=2048)
    hit = log.offsets[40]
    start = hit - hit % 2048
    lost = [n for n, o in enumerate(log.offsets) if hit <= o < start + 2048]
    path = build_store(tmp_path / "store", log.files(), hash_slots=20, index_items=1000)
    damaged = write_store(tmp_path / "damaged", flip_bit(log.files(), hit + 5, 0))
    with reput.open_store(damaged) as opened:
        for n, offset in enumerate(log.offsets):
            found = opened.query("T", f"k{n}")
            assert offsets(found) == ([] if n in lost else [offset])
            (lost_bytes,) = found.coverage.unreadable
            assert (lost_bytes.start, lost_bytes.stop) == (hit, start + 2048)
            assert lost_bytes.file_offset == hit - start
            assert lost_bytes.file == str(damaged / "commitlog" / f"{start:020d}")
            assert not found.is_complete
    # the index shows where the next record begins
    with reput.open_store(damaged, index=path) as opened:
        assert offsets(opened.query("T", f"k{lost[1]}")) == [log.offsets[lost[1]]]
        hurt = opened.query("T", f"k{lost[0]}")
        assert offsets(hurt) == []
        assert not hurt.is_complete


def test_a_lost_log_file_is_told(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("basic").path, tmp_path / "store")
    lost = sorted((path / "commitlog").iterdir())[5]
    lost.unlink()
    start = int(lost.name)
    keyed = keyed_messages(golden("basic").messages)
    with reput.open_store(path) as opened:
        for topic, key in sorted(keyed)[::97]:
            found = opened.query(topic, key)
            readable = [o for o in keyed[topic, key] if not start <= o < start + 65536]
            assert offsets(found) == sorted(readable, reverse=True)
            assert [(d.start, d.length) for d in found.coverage.unreadable] == [(start, 65536)]


def test_an_expired_head_is_no_damage(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("basic").path, tmp_path / "store")
    for file in sorted((path / "commitlog").iterdir())[:7]:
        file.unlink()
    keyed = keyed_messages(golden("basic").messages)
    first = 7 * 65536
    with reput.open_store(path) as opened:
        for topic, key in sorted(keyed)[::37]:
            found = opened.query(topic, key)
            left = [o for o in keyed[topic, key] if o >= first]
            assert offsets(found) == sorted(left, reverse=True)
            assert found.coverage.log.start == first
            assert found.is_complete
            assert found.coverage.problems == ()
        # The IndexFile that also has entries of expired messages is still used for the remaining ones.
        assert found.coverage.indexed[-1].start == first
