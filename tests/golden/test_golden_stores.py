"""The golden fixtures: archives have the described content, holes are preserved, tables parse."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import stores
from tests.golden.sparse import allocated_bytes, copy_file, copy_store, data_ranges
from tests.golden.stores import (
    DATA,
    EVERY_FIVE,
    FIVE_LIFE,
    SHIPPED,
    TORN,
    GoldenStore,
    StoreNotHereError,
    TornCase,
)
from tests.golden.tables import unescape

Golden = Callable[[str], GoldenStore]


def test_archives_are_the_ones_that_the_provenance_page_describes() -> None:
    page = (DATA / "PROVENANCE.md").read_text(encoding="utf-8")
    described = {file: sha for sha, file in re.findall(r"`([0-9a-f]{64})` \| `([^`]+)`", page)}
    shipped = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in DATA.glob("*.tar.xz")
    }
    assert shipped == described
    names = (*SHIPPED, TORN, *EVERY_FIVE, FIVE_LIFE)
    assert set(shipped) == {f"{name}.tar.xz" for name in names}


@pytest.mark.parametrize(
    ("name", "is_beside", "outcome"),
    [("torn", False, "Failed"), ("git", False, "Skipped"), ("git", True, "Failed")],
)
def test_in_ci_a_store_that_should_be_here_is_missed(
    name: str, is_beside: bool, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "DATA", tmp_path)
    monkeypatch.setattr(stores, "OUTSIDE", tmp_path if is_beside else tmp_path / "none")
    for value, expected in (("true", outcome), ("", "Skipped")):
        monkeypatch.setenv("CI", value)
        with pytest.raises(StoreNotHereError) as missing:
            stores.tarball(name)
        with pytest.raises(BaseException, match=f"golden store '{name}'") as raised:
            stores.passed_over(missing.value)
        assert raised.typename == expected


@pytest.mark.parametrize(
    ("cell", "string"),
    [
        (r"\N", None),
        (r"\\N", r"\N"),
        (r"a\tb\nc\rd\\e", "a\tb\nc\rd\\e"),
        (r"\\u0041", r"\u0041"),
        (r"KEYS\u0001a\u0002", "KEYS\x01a\x02"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d-", "\ud83d-"),
        ("x\u2028y\x85z", "x\u2028y\x85z"),
    ],
)
def test_unescape(cell: str, string: str | None) -> None:
    assert unescape(cell) == string


@pytest.mark.parametrize(
    ("name", "messages", "blanks", "index_files", "queries"),
    [
        ("basic", 5000, 20, 30, 2066),
        ("extremes", 600, 2, 27, 1550),
        ("lmq", 900, 3, 7, 620),
        ("orders", 19622, 6, 15, 2066),
        ("timed", 5000, 20, 30, 2583),
        ("tricky", 1626, 28, 11, 2580),
        ("git", 9000, 2, 11, 4133),
        ("defaults", 50000, 0, 1, 4132),
    ],
)
def test_every_row_of_every_table_is_read(
    golden: Golden, name: str, messages: int, blanks: int, index_files: int, queries: int
) -> None:
    store = golden(name)
    assert len(store.messages) == messages
    assert len(store.blanks) == blanks
    assert len(store.index) == index_files == len(list((store.path / "index").iterdir()))
    assert len(store.queries) == len(store.answers) == queries
    assert [answer.number for answer in store.answers] == list(range(1, queries + 1))
    assert len(store.queues) == len(list((store.path / "consumequeue").glob("*/*")))


@pytest.mark.parametrize(
    ("name", "messages", "entries", "queues", "queries"),
    [
        ("five_batch", 925, 925, 12, 1550),
        ("five_crc", 982, 1069, 73, 1546),
        ("five_default", 4631, 4898, 80, 1545),
        ("five_dledger", 441, 432, 55, 1544),
        ("five_ext", 508, 546, 65, 1541),
        ("five_multipath", 508, 546, 65, 1542),
        ("five_rocksdb", 4631, 4895, 80, 1545),
    ],
)
def test_tables_of_newer_stores_have_more_columns(
    golden: Golden, name: str, messages: int, entries: int, queues: int, queries: int
) -> None:
    store = golden(name)
    assert len(store.messages) == messages
    assert {row.magic for row in store.messages} <= {0xDAA320A7, 0xDAA320AB}
    assert all(row.base_offset is not None for row in store.messages)
    assert len(store.queue_entries) == entries
    assert len(store.queues) == queues
    assert len(store.queries) == len(store.answers) == queries


def test_puts_tell_what_was_refused(golden: Golden) -> None:
    puts = golden("tricky").puts
    assert [put.number for put in puts] == list(range(1, 1581))
    refused = {put.number: put.status for put in puts if put.physical_offset is None}
    assert refused == {1576: "MESSAGE_ILLEGAL", 1578: "PROPERTIES_SIZE_EXCEEDED"}


def test_settings_fall_back_to_the_brokers_defaults(golden: Golden) -> None:
    store = golden("lmq")
    assert (store.hash_slots, store.index_items, store.enable_multi_dispatch) == (100, 400, True)
    assert not golden("basic").enable_multi_dispatch
    assert golden("defaults").hash_slots == 5_000_000


def test_sparse_files_stay_sparse_when_unpacked(golden: Golden) -> None:
    store = golden("defaults")
    assert allocated_bytes(store.path / "commitlog") < 100_000_000
    assert allocated_bytes(store.path / "index") < 100_000_000
    assert sum(path.stat().st_size for path in store.path.glob("*/*")) > 1_400_000_000


def test_copies_keep_holes_and_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source" / "index"
    source.mkdir(parents=True)
    with (source / "file").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"middle")
        file.truncate(64 << 20)
    (source / "empty").touch()

    copy = copy_store(tmp_path / "source", tmp_path / "copy") / "index"

    assert (copy / "file").read_bytes() == (source / "file").read_bytes()
    assert (copy / "empty").read_bytes() == b""
    assert allocated_bytes(copy) == allocated_bytes(source) < 1 << 20


def test_a_file_that_ends_in_data_is_copied_whole(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 8193)
    copy = copy_file(source, tmp_path / "copy")
    assert copy.read_bytes() == source.read_bytes()
    assert list(data_ranges(copy)) == [(0, 256 * 8193)]


def test_torn_cases_know_their_stores(torn: Callable[[str], TornCase]) -> None:
    case = torn("crc_late_noabort")
    assert (case.before / "commitlog").is_dir()
    assert (case.after / "commitlog").is_dir()
    assert (case.after_more / "commitlog").is_dir()
    assert case.hash_slots == 100
    assert len(case.queries) == len(case.answers)
    assert len(case.messages) == 4678
    assert torn("kill9").queries != case.queries


def test_an_answer_that_was_an_exception_says_so(golden: Golden) -> None:
    store = golden("basic")
    threw = [a.error for q, a in zip(store.queries, store.answers, strict=True) if q.max_num < 0]
    assert threw
    assert set(threw) == {"java.lang.IllegalArgumentException"}
    assert len(threw) == sum(answer.error is not None for answer in store.answers)
