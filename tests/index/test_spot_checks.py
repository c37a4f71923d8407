"""Spot checks of an unproven IndexFile: holes, lost and stale pages of slots, broken links."""

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reput
from reput.core.index import entries
from reput.core.index.key_index import Basis
from reput.core.index.reader import IndexFileReader
from reput.core.index.spot_checks import (
    LEAST_DOUBT,
    LostSlotsError,
    SlotPages,
    find_gaps,
    lost_items,
)
from reput.core.store.store_reader import StoreReader
from tests.index.proving import (
    ITEMS,
    ITEMS_AT,
    SLOTS,
    change_words,
    index_of,
    messages,
    prove_and_keep,
)
from tests.index.readers import READERS, Reader
from tests.oracle.forge import LogForge, write_store
from tests.oracle.index_file import IndexFile

pytestmark = pytest.mark.usefixtures("own_cache")
PAGE_SLOTS, PAGES = 1024, 5
MANY_SLOTS = PAGE_SLOTS * PAGES
WIDE_SLOTS = PAGE_SLOTS * 50
MANY = 30_000


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


def asked_of(log: LogForge, numbers: Sequence[int]) -> dict[tuple[str, str], list[int]]:
    """Return the expected offsets by (topic, key) of these messages of the log. Every third message has no key."""
    return {("T", f"k{n}"): [log.offsets[n]] for n in numbers if n % 3}


def missed_by(reader: Reader, path: Path, wanted: dict[tuple[str, str], list[int]]) -> list[object]:
    found = reader(path, list(wanted))
    return [each for each, offsets in zip(wanted.items(), found, strict=True) if each[1] != offsets]


@pytest.mark.parametrize("off", [(101, 200), (150, 154), (20, 290)])
def test_messages_of_a_time_without_indexing_are_found(
    tmp_path: Path, off: tuple[int, int], reader: Reader
) -> None:
    log = messages(300)
    path = write_store(tmp_path / "store", log.files())
    start, stop = log.offsets[off[0]], log.offsets[off[1]]
    index_of(path, log.files(), lambda record: not start <= record.physical_offset < stop)
    assert missed_by(reader, path, asked_of(log, range(*off))) == []


def test_only_what_was_not_indexed_is_scanned(tmp_path: Path) -> None:
    log = messages(300)
    path = write_store(tmp_path / "store", log.files())
    start, stop = log.offsets[101], log.offsets[200]
    index_of(path, log.files(), lambda record: not start <= record.physical_offset < stop)
    with reput.open_store(path) as opened:
        coverage = opened.query("T", "k5").coverage
    size = log.offsets[1] - log.offsets[0]
    assert coverage.scanned_bytes < stop - start + 8 * size
    assert coverage.indexed_bytes > log.offsets[190] - 8 * size


@pytest.mark.parametrize("damages", [1, 2, 3])
def test_damaged_links_hide_nothing(tmp_path: Path, damages: int, reader: Reader) -> None:
    log = messages(120)
    path = write_store(tmp_path / "store", log.files())
    # The second file stays intact, so that its content shows the number of slots of both.
    file, _ = index_of(path, log.files(), items=130)
    random = Random(damages)
    slots, links = range(40, ITEMS_AT, 4), range(ITEMS_AT + 20 + 16, ITEMS_AT + 20 * 130, 20)
    offsets = range(ITEMS_AT + 20 + 8, ITEMS_AT + 20 * 130, 20)
    sound = file.read_bytes()
    for _ in range(10 if reader is READERS["query"] else 3):
        file.write_bytes(sound)
        words = [random.choice(random.choice((slots, links, offsets))) for _ in range(damages)]
        change_words(file, words, random)
        assert missed_by(reader, path, asked_of(log, range(0, 120, 7))) == [], words


@pytest.fixture(scope="module")
def many() -> IndexFile:
    """An IndexFile whose slots fill several pages. Its keys are spread over all of them."""
    file = IndexFile(MANY_SLOTS, MANY + 10, 0)
    for number in range(MANY):
        file.put("T", f"{number * 0x9E3779B97F4A7C15 % 2**64:016X}{number}", 100 * number, 1)
    return file


@pytest.fixture
def opened(many: IndexFile, tmp_path: Path) -> Iterator[IndexFileReader]:
    path = tmp_path / "20260101000000000"
    path.write_bytes(many.to_bytes())
    yield from open_file(path)


def open_file(path: Path, slots: int = MANY_SLOTS) -> Iterator[IndexFileReader]:
    file = IndexFileReader(str(path), slots, MANY + 10)
    yield file
    file.close()


def key_hashes(file: IndexFileReader, page: range) -> list[int]:
    """Return the hashes of items whose slots are in a range, each once."""
    found = {hashed for hashed, _, _ in file.links(MANY) if hashed % MANY_SLOTS in page}
    return sorted(found)


def test_sound_pages_are_believed_without_a_search(
    opened: IndexFileReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IndexFileReader, "search", None)
    pages = SlotPages(opened)
    for page in range(PAGES):
        pages.check(page * PAGE_SLOTS)


@pytest.mark.parametrize("age", [1.0, 0.5, 0.05])
def test_a_page_of_slots_as_it_was_is_noticed(many: IndexFile, tmp_path: Path, age: float) -> None:
    """A page with old slots is noticed. An age of 1 means a page of zeros."""
    data = bytearray(many.to_bytes())
    older = IndexFile(MANY_SLOTS, MANY + 10, 0)
    for number in range(int(MANY * (1 - age))):
        older.put("T", f"{number * 0x9E3779B97F4A7C15 % 2**64:016X}{number}", 100 * number, 1)
    data[4096:8192] = older.to_bytes()[4096:8192]
    (tmp_path / "20260101000000000").write_bytes(data)
    lost = range(1024 - 10, 2048 - 10)
    for file in open_file(tmp_path / "20260101000000000"):
        hidden = 0
        for key_hash in key_hashes(file, lost)[::40]:
            newest = [file.item(number).physical_offset for number in file.search(key_hash, MANY)]
            if newest[::-1] != list(file.offsets(key_hash)):
                hidden += 1
                with pytest.raises(LostSlotsError, match="does not lead to all entries"):
                    SlotPages(file).check(key_hash)
        assert hidden
        SlotPages(file).check(key_hashes(file, range(1014))[0])


@pytest.fixture(scope="module")
def consecutive() -> bytes:
    """An IndexFile whose keys are consecutive numbers, which do not spread over the slots."""
    made = IndexFile(WIDE_SLOTS, MANY + 10, 0)
    for number in range(MANY):
        made.put("T", f"k{number:05d}", 100 * number, 1)
    return made.to_bytes()


@pytest.fixture
def sequential(consecutive: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "20260101000000000"
    path.write_bytes(consecutive)
    return path


def test_keys_that_do_not_spread_cost_some_searches_and_one_comparison(
    sequential: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            made[name] += 1
            return call(*arguments)

        return count

    for file in open_file(sequential, WIDE_SLOTS):
        pages = SlotPages(file)
        doubts = sum(
            (pages.doubt(len(page), len(page) - page.count(0), max(page), MANY) or 0) >= LEAST_DOUBT
            for page in map(file.slot_page, range(file.slot_pages))
        )
        assert doubts == 34
        search = counted("search", IndexFileReader.search)
        monkeypatch.setattr(IndexFileReader, "search", search)
        compare = counted("comparison", entries.intact_slot_pages)
        monkeypatch.setattr(entries, "intact_slot_pages", compare)
        for hashed, _, _ in file.links(MANY):
            pages.check(hashed)
    assert made == {"search": 4, "comparison": 1}


@pytest.mark.parametrize("lost", [0, 7, 49])
def test_a_page_of_zeros_is_noticed_after_any_number_of_unfounded_doubts(
    sequential: Path, lost: int
) -> None:
    data = bytearray(sequential.read_bytes())
    begin, end = max(40, lost * 4096), (lost + 1) * 4096
    data[begin:end] = bytes(end - begin)
    sequential.write_bytes(data)
    for file in open_file(sequential, WIDE_SLOTS):
        pages, missed = SlotPages(file), []
        hashes = sorted(
            (hashed for hashed, _, _ in file.links(MANY)[::50]),
            key=lambda hashed: file.slot_page_of(hashed % WIDE_SLOTS) == lost,
        )
        for hashed in hashes:
            wanted = [file.offset(number) for number in file.search(hashed, MANY)]
            try:
                pages.check(hashed)
            except LostSlotsError:
                continue
            if list(file.offsets(hashed)) != wanted[::-1]:
                missed.append(hashed)
        assert missed == []


def test_lost_items_are_those_that_no_slot_leads_to(many: IndexFile, tmp_path: Path) -> None:
    log = messages(300)
    path = write_store(tmp_path / "store", log.files())
    (file,) = index_of(path, log.files())
    with StoreReader(path, hash_slots=SLOTS, index_items=ITEMS) as store:
        (index,) = store.index.current()
        last = index.next_item - 1
        assert lost_items(index, last) == []
        assert find_gaps(index, store.commit_log, 1, last) == []
    data = bytearray(file.read_bytes())
    at = ITEMS_AT + 20 * last + 16
    (previous,) = struct.unpack_from(">i", data, at)
    (before,) = struct.unpack_from(">i", data, ITEMS_AT + 20 * previous + 16)
    struct.pack_into(">i", data, at, before)
    file.write_bytes(data)
    with StoreReader(path, hash_slots=SLOTS, index_items=ITEMS) as store:
        assert lost_items(store.index.current()[0], last) == [previous]


def test_an_answer_says_what_its_index_is_believed_for(tmp_path: Path) -> None:
    log = messages(300)
    path = write_store(tmp_path / "store", log.files())
    index_of(path, log.files())
    with reput.open_store(path) as opened:
        coverage = opened.query("T", "k5").coverage
        assert {part.basis for part in coverage.indexed} == {Basis.SPOT_CHECKED}
        assert coverage.spot_checked_files == 1
        file = opened.index.current()[0]
        prove_and_keep(file, opened.commit_log)
    with reput.open_store(path) as opened:
        coverage = opened.query("T", "k5").coverage
        assert {part.basis for part in coverage.indexed} == {Basis.PROVEN}
        assert coverage.spot_checked_files == 0
