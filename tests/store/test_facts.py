"""Sizes that follow from the files of a store, and contradictions between them."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput as api
from reput.base.findings import Kind
from reput.engine.check.run import check_store
from reput.engine.writer.survey import survey_of
from reput.errors import UsageError
from reput.format.checkpoint import Checkpoint
from reput.format.file_names import (
    ABORT_FILE,
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    INDEX_FOLDER,
)
from tests.cli.running import Ran, one_line
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenStore
from tests.slow import slow_from
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
WRITES: list[tuple[str, ...]] = [
    ("put", "--topic", "orders", "--body", "x"),
    ("recover",),
    ("rebuild", "--only", "consumequeue", "--runner", "processes"),
    ("rebuild", "--runner", "processes"),
    ("repair", "--runner", "processes"),
]


def queue_files(store: Path, folder: str = CONSUME_QUEUE_FOLDER) -> list[Path]:
    return sorted(path for path in (store / folder).glob("*/*/*") if path.name.isdigit())


def sizes(store: Path, folder: str = CONSUME_QUEUE_FOLDER) -> set[int]:
    return {path.stat().st_size for path in queue_files(store, folder)}


def command(store: Path, args: tuple[str, ...]) -> Ran:
    return run(args[0], store, *args[1:])


def refused(ran: Ran, path: Path, name: str) -> None:
    """A writer names the files and the missing setting, and changes nothing."""
    line = one_line(ran)
    assert ran.code == 2
    assert str(path) in line
    assert "--broker-config" in line
    assert name in line


@pytest.mark.every_case
@pytest.mark.parametrize("name", [*EVERY_STORE, *EVERY_FIVE])
def test_golden_stores_show_their_settings(golden: Golden, name: str) -> None:
    store = golden(name)
    facts = survey_of(store.path)
    assert (facts.doubts, facts.odd_files) == ((), ())
    assert facts.is_five == (name in EVERY_FIVE)
    config = facts.config
    assert config.commit_log_file_bytes == store.commit_log_file_bytes
    if queue_files(store.path):
        assert config.queue_file_bytes == store.consume_queue_file_bytes
    assert (config.hash_slots, config.index_items) == (store.hash_slots, store.index_items)
    assert config.enable_lmq == store.enable_lmq
    for folder, setting in ((BATCH_QUEUE_FOLDER, "batch_queue"), (EXTENSION_FOLDER, "extension")):
        if (store.path / folder).is_dir():
            assert sizes(store.path, folder) == {getattr(config, f"{setting}_file_bytes")}


@pytest.mark.parametrize("args", WRITES)
def test_a_short_queue_file_does_not_decide_the_size_of_all(
    golden: Golden, tmp_path: Path, args: tuple[str, ...]
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    cut = queue_files(store)[3]
    os.truncate(cut, 100)
    assert command(store, args).code in (0, 3)
    assert sizes(store) == {20_000}
    assert len(queue_files(store)) == 35


@pytest.mark.parametrize(
    "number", slow_from(3, [0, 8, 34, *(n for n in range(35) if n not in (0, 8, 34))])
)
def test_every_single_queue_file_may_be_short(golden: Golden, tmp_path: Path, number: int) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    before = {path: path.read_bytes() for path in queue_files(store)}
    cut = queue_files(store)[number]
    os.truncate(cut, 100)
    facts = survey_of(store)
    assert facts.doubts == ()
    assert facts.config.queue_file_bytes == 20_000
    assert [odd.path for odd in facts.odd_files] == [str(cut)]
    found = [finding for finding in check_store(store) if finding.kind is Kind.QUEUE_FILE_SIZE]
    assert [finding.file for finding in found] == [str(cut)]
    with api.open_store(store, mode="rw") as opened:
        assert opened.recovery.truncated_bytes == 0
        assert opened.recovery.notes == [f"{cut}: 100 bytes, not 20,000"]
    assert {path: path.read_bytes() for path in queue_files(store)} == before


def test_the_sizes_of_single_files_are_certain(tmp_path: Path) -> None:
    with api.open_store(tmp_path, mode="rw", config=SMALL_16K) as opened:
        opened.put(api.Message("T", b"x"))
    facts = survey_of(tmp_path)
    assert (facts.doubts, facts.config.queue_entries) == ((), SMALL_16K.queue_entries)


def test_the_sizes_of_log_files_are_odd_only_if_no_settings_are_given(tmp_path: Path) -> None:
    with api.open_store(tmp_path, mode="rw", config=SMALL_16K) as opened:
        opened.put_many([api.Message("T", b"x" * 500, queue_id=n % 3) for n in range(90)])
    cuts = [queue_files(tmp_path)[0], min((tmp_path / COMMIT_LOG_FOLDER).iterdir())]
    for path in cuts:
        os.truncate(path, 100)
    for config, odd in ((None, cuts), (SMALL_16K, cuts[:1])):
        facts = survey_of(tmp_path, config)
        assert {file.path for file in facts.odd_files} == {str(path) for path in odd}


@pytest.mark.parametrize(
    ("name", "folder", "setting"),
    [
        ("basic", CONSUME_QUEUE_FOLDER, "mappedFileSizeConsumeQueue"),
        ("five_default", CONSUME_QUEUE_FOLDER, "mappedFileSizeConsumeQueue"),
        ("five_timer", CONSUME_QUEUE_FOLDER, "mappedFileSizeConsumeQueue"),
        ("five_batch", BATCH_QUEUE_FOLDER, "mapperFileSizeBatchConsumeQueue"),
        ("five_ext", EXTENSION_FOLDER, "mappedFileSizeConsumeQueueExt"),
        ("basic", INDEX_FOLDER, "maxHashSlotNum"),
        ("five_batch", INDEX_FOLDER, "maxHashSlotNum"),
    ],
)
@pytest.mark.every_case
def test_a_longer_file_is_a_doubt(
    golden: Golden, tmp_path: Path, name: str, folder: str, setting: str
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    files = sorted((store / folder).glob("*" if folder == INDEX_FOLDER else "*/*/*"))
    os.truncate(files[1], 2 * files[1].stat().st_size)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.name != "lock"}
    (doubt,) = survey_of(store).doubts
    assert doubt.files == (str(files[1]),)
    for args in WRITES:
        if folder == EXTENSION_FOLDER and args[0] in ("put", "recover"):
            continue  # reput never writes to stores with extension files, whatever their sizes
        if folder == INDEX_FOLDER and "--only" in args:
            continue  # this rebuild does not use index/
        refused(command(store, args), files[1], setting)
    assert {
        path: path.stat().st_mtime_ns for path in store.rglob("*") if path.name != "lock"
    } == before
    assert any(finding.kind is Kind.UNCERTAIN_SIZE for finding in check_store(store))
    inspected = run("inspect", store)
    assert inspected.code == 3
    assert "uncertain" in inspected.out + inspected.err


def test_names_outvote_sizes_and_the_broker_configuration_both(
    golden: Golden, tmp_path: Path
) -> None:
    """Most files are short; their names still show their size."""
    store = copy_store(golden("orders").path, tmp_path / "store")
    for path in queue_files(store)[:30]:
        os.truncate(path, 100)
    facts = survey_of(store)
    assert facts.config.queue_file_bytes == 20_000
    assert len(facts.doubts) == 1
    refused(command(store, WRITES[1]), queue_files(store)[0], "mappedFileSizeConsumeQueue")
    broker = tmp_path / "broker.conf"
    broker.write_text(
        "\n".join(f"{name}={value}" for name, value in golden("orders").config.items())
    )
    assert run("recover", store, "--broker-config", broker).code == 0
    assert sizes(store) == {20_000}


def test_mixed_sizes_without_distances(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    for path in queue_files(store):
        if int(path.name):
            path.unlink()
    first, _, *others = queue_files(store)
    os.truncate(first, 100)
    assert survey_of(store).doubts == ()
    for path in others[: len(others) // 2 + 1]:
        os.truncate(path, 2_000)
    assert survey_of(store).config.queue_file_bytes == 20_000
    with pytest.raises(UsageError, match="uncertain"):
        api.open_store(store, mode="rw")


@pytest.mark.parametrize("cut", [None, 100, 110])
def test_the_only_queue_file(tmp_path: Path, cut: int | None) -> None:
    """Only the log shows that the file was cut."""
    store, config = tmp_path / "store", api.StoreConfig(1 << 16, 300, 64, 300)
    with api.open_store(store, mode="rw", config=config) as opened:
        opened.put_many([api.Message("T", b"x", ["k"]) for _ in range(20)])
    (file,) = queue_files(store)
    if cut is not None:
        os.truncate(file, cut)
        refused(command(store, WRITES[1]), file, "mappedFileSizeConsumeQueue")
    assert command(store, (*WRITES[1], "--queue-entries", "300")).code == 0
    assert command(store, WRITES[1]).code == 0
    assert sizes(store) == {6_000}


def test_the_only_queue_file_beside_empty_files(tmp_path: Path) -> None:
    """A killed broker may leave empty files of other queues, which sort before the queue."""
    store, config = tmp_path / "store", api.StoreConfig(1 << 16, 300, 64, 300)
    with api.open_store(store, mode="rw", config=config) as opened:
        opened.put_many([api.Message("T", b"x", ["k"]) for _ in range(20)])
    (file,) = queue_files(store)
    empty = store / "consumequeue" / "A" / "0" / file.name
    empty.parent.mkdir(parents=True)
    empty.touch()
    assert survey_of(store).doubts == ()
    os.truncate(file, 100)
    assert [doubt.files for doubt in survey_of(store).doubts] == [(str(file),)]


def test_settings_other_than_those_of_the_files_are_refused(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    for option, name in (("--queue-entries", "ConsumeQueue"), ("--hash-slots", "maxHashSlotNum")):
        line = one_line(run("recover", store, option, 77))
        assert name in line
        assert "of the settings" in line
    assert sizes(store) == {20_000}


def test_refresh_reads_every_fact_again(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    facts = survey_of(store)
    before = (facts.checkpoint, facts.has_abort, facts.ends, facts.config, facts.log.files)
    (store / CHECKPOINT_FILE).unlink()
    (store / ABORT_FILE).touch()
    for path in queue_files(store):
        os.truncate(path, 4_000)
    last = sorted((store / COMMIT_LOG_FOLDER).iterdir())[-1]
    last.unlink()
    assert (facts.checkpoint, facts.has_abort, facts.ends, facts.config, facts.log.files) == before
    now = facts.refresh()
    assert now.checkpoint == Checkpoint()
    assert now.has_abort
    assert now.ends.rebuild == int(last.name)
    assert now.doubts
    assert not facts.doubts
    assert len(now.log.files) == len(before[4]) - 1


def test_refresh_keeps_the_settings_that_were_given(golden: Golden) -> None:
    given = api.StoreConfig(queue_entries=77)
    assert survey_of(golden("orders").path, given).refresh().config.queue_entries == 77


def test_queue_files_are_compared_with_given_settings_but_log_files_are_not(
    golden: Golden,
) -> None:
    store = golden("orders").path
    shown = survey_of(store).config
    given = replace(shown, queue_entries=77, commit_log_file_bytes=1 << 21)
    assert shown.commit_log_file_bytes != given.commit_log_file_bytes
    odd_files = survey_of(store, given).odd_files
    assert [odd.path for odd in odd_files] == [str(path) for path in queue_files(store)]


@pytest.mark.parametrize("files", [1, 2])
def test_only_a_lone_index_file_that_is_too_short_contradicts_no_setting(
    tmp_path: Path, files: int
) -> None:
    count = SMALL_16K.index_items // 2 + (10 if files > 1 else -10)  # of two keys each
    with api.open_store(tmp_path, mode="rw", config=SMALL_16K) as opened:
        opened.put_many(api.Message("T", b"x", [str(number)]) for number in range(count))
    assert len(list((tmp_path / INDEX_FOLDER).iterdir())) == files
    for items, is_shown in ((SMALL_16K.index_items, True), (5000, files > 1), (100, True)):
        given = replace(SMALL_16K, index_items=items)
        assert ("index_items" in survey_of(tmp_path, given).shown) == is_shown
