"""Light queues whose queue offsets were counted again: their entries in RocksDB, and the rebuild's report."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.cli.main import FOUND
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.report import RebuildReport
from reput.format.rocksdb_queue import entry_key, queue_prefix
from tests.check.checking import checked, kinds
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, forge_log
from tests.rebuild.rebuilding import SMALL

rocksdict = pytest.importorskip("rocksdict")
Golden = Callable[[str], GoldenStore]
CONFIG = replace(SMALL, enable_lmq=True, enable_multi_dispatch=True)


def light_store(folder: Path, *numbers: int) -> Path:
    """A 5.x store with queues in files; `numbers` are the queue offsets of its messages in %LMQ%a."""
    records = [
        RecordFields(
            topic="T", queue_offset=place, body=b"x" * 600,
            properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(number)},
        )
        for place, number in enumerate(numbers)
    ]  # fmt: skip
    (folder / "commitlog").mkdir(parents=True)
    for start, data in forge_log(records, file_bytes=1 << 12).files():
        (folder / "commitlog" / f"{start:020d}").write_bytes(data)
    (folder / "abort.bak").touch()
    rebuild_store(SerialRunner(), folder, config=CONFIG)
    return folder


def converted(store: Path, config: StoreConfig = CONFIG) -> RebuildReport:
    return rebuild_store(SerialRunner(), store, config=config, queues="rocksdb")


@pytest.mark.parametrize(
    ("numbers", "replaced", "renumbered"),
    [
        ((0, 1, 2, 3, 4, 5, 6, 7), 0, 0),
        ((0, 1, 3, 4, 6), 0, 3),  # messages 2 and 5 are missing: they belong to open transactions
        # The first message 4 is replaced. Message 3 was at queue offset 2.
        ((0, 1, 3, 4, 4, 5, 6, 7, 8), 1, 1),
        ((5, 6, 7), 0, 0),  # messages 0 to 4 have expired
        ((0,), 0, 0),
    ],
)
def test_what_has_another_number_is_said(
    tmp_path: Path, numbers: tuple[int, ...], replaced: int, renumbered: int
) -> None:
    store = light_store(tmp_path / "s", *numbers)
    report = converted(store)
    found = report.queue_entries_dropped, report.queue_entries_renumbered
    assert found == (replaced, renumbered)
    assert report.queue_entries == 2 * len(numbers) - replaced
    notes = "\n".join(report.notes)
    assert ("1 entry has no place, in %LMQ%a/0: a later message" in notes) == bool(replaced)
    assert ("another number than in" in notes and f"{renumbered} entr" in notes) == bool(renumbered)
    assert report.damage == []
    assert checked(store, CONFIG) == []
    again = converted(store)  # a database already has the new numbers, so nothing is renumbered
    assert again.queue_entries_renumbered == 0


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        # The entry of queue offset 1 does not lead to a message with this queue offset.
        ((0, 1, 2, 2), "wrong_queue_entry"),
        ((0, 1, 1, 2), "wrong_queue_entry"),
    ],
)
def test_an_entry_of_another_number_is_damage(
    tmp_path: Path, numbers: tuple[int, ...], kind: str
) -> None:
    store = light_store(tmp_path / "s", *numbers)
    converted(store)
    assert checked(store, CONFIG) == []
    put_entry(store, 1, of=2)
    assert kinds(checked(store, CONFIG)) == {kind}


@pytest.mark.parametrize("numbers", [(0, 1, 1), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 10)])
def test_the_first_message_of_a_queue_offset_may_have_the_entry(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    """If a broker dispatches two messages of one queue offset in the same batch, it writes the first one last."""
    store = light_store(tmp_path / "s", *numbers)
    before = reput.open_store(store)
    first = before.get_by_queue("T", 0, 1)
    before.close()
    converted(store)
    put_entry(store, 1, place=first.physical_offset)
    assert checked(store, CONFIG) == []


def put_entry(store: Path, number: int, of: int | None = None, place: int | None = None) -> None:
    """Replace the entry at queue offset `number` of %LMQ%a: with the one at `of`, or with physical offset `place`."""
    folder, prefix = str(store / "consumequeue"), queue_prefix("%LMQ%a", 0)
    raw = rocksdict.Options(raw_mode=True)
    families = {"offset": rocksdict.Options(raw_mode=True)}
    database = rocksdict.Rdict(folder, raw, column_families=families)
    value = database[entry_key(prefix, number if of is None else of)]
    if place is not None:
        value = struct.pack(">q", place) + value[8:]
    database[entry_key(prefix, number)] = value
    database.close()
    # Opening the database wrote this file, which no broker's store has.
    (store / "consumequeue" / "rocksdict-config.json").unlink()


def test_a_store_of_a_broker(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_default")
    store = copy_store(source.path, tmp_path / "store")
    config = StoreConfig.from_broker_settings(source.config)
    expected = {
        (row.topic, row.queue_id, row.physical_offset): row.queue_offset
        for row in source.queue_entries
    }
    report = converted(store, config)
    with reput.open_store(store) as opened:
        moved = lost = 0
        for topic, queue_id in opened.list_queues():
            queue = opened.queues.queue(topic, queue_id)
            numbers = {
                entry.physical_offset: number
                for number, entry in queue.numbered(0, queue.max_queue_offset())
            }
            own = {at: n for (*name, at), n in expected.items() if name == [topic, queue_id]}
            lost += len(own.keys() - numbers.keys())
            moved += sum(own[at] != number for at, number in numbers.items())
    assert (lost, moved) == (3, 179)
    assert (report.queue_entries_dropped, report.queue_entries_renumbered) == (3, 179)
    ran = run("check", store)
    assert (ran.code, ran.out) == (FOUND, "valid\n")


def test_files_in_place_of_rocksdb_name_the_queues_whose_offsets_change(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_rocksdb").path, tmp_path / "store")
    report = reput.rebuild(store, queues="files", output=tmp_path / "out", only="consumequeue")
    assert report.queue_entries_renumbered == 231
    (note,) = (note for note in report.notes if "another number than in RocksDB" in note)
    for name in ("%LMQ%a/0", "%LMQ%b/0", "%LMQ%c/0", "%LMQ%d-e/0", "%LMQ%user_1/0"):
        assert name in note
    # Queues in files have the same numbers as before.
    files = copy_store(golden("five_default").path, tmp_path / "files")
    assert reput.rebuild(files, output=tmp_path / "again").queue_entries_renumbered == 0
