"""The check of a store: valid ones have no findings, each golden damage has its kind, and nothing is ever written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from reput.base.findings import Finding, Kind
from reput.base.tasks import SerialRunner
from reput.base.tasks.processes import ProcessRunner
from reput.cli.main import main
from reput.engine.check.checking import full_check, tally
from reput.engine.check.run import check_store
from reput.engine.compare import stretch
from reput.engine.compare.log_file import FileComparison
from reput.errors import StoreNotFoundError
from tests.check.checking import checked, kinds, unchanged
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase
from tests.rebuild.rebuilding import golden_config

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]
PAGES = Path(__file__).parents[2] / "docs" / "findings"

# The golden cases of damage: the state of the store in which a check finds the damage, and the kind of its finding.
TORN = {
    "abort_clean": ("before", "unclean_shutdown"),
    "checkpoint_future_abort": ("before", "checkpoint_ahead"),
    "checkpoint_missing_abort": ("before", "checkpoint_missing"),
    "checkpoint_missing_noabort": ("before", "checkpoint_missing"),
    "cq_deleted_noabort": ("before", "queues_deleted"),
    "cq_last_entry_zeroed": ("before", "undispatched_tail"),
    "cq_one_topic_deleted": ("before", "missing_queue"),
    "crc_late_abort": ("before", "body_crc"),
    "crc_late_noabort": ("before", "body_crc"),
    "crc_old_abort": ("before", "body_crc"),
    "crc_old_noabort": ("before", "body_crc"),
    "index_count_zero_abort": ("before", "index_header"),
    "index_count_zero_noabort": ("before", "index_header"),
    "index_deleted_abort": ("before", "index_deleted"),
    "index_deleted_noabort": ("before", "index_deleted"),
    "index_header_zero_noabort": ("before", "index_header"),
    "index_junk_file": ("before", "foreign_file"),
    "index_last_entry_half": ("before", "stale_index_entry"),
    "index_short_file": ("before", "index_file_size"),
    "kill9": ("before", "unclean_shutdown"),
    "lmq_restart": ("after", "lmq_offsets_restarted"),
    "magic_first_lastfile_abort": ("before", "unreadable_record"),
    "name_collision": ("after", "index_file_lost"),
    "short_file": ("before", "log_file_size"),
    "size_bigger_noabort": ("before", "record_size_mismatch"),
    "tail_noabort": ("before", "lost_log_end"),
}
# The findings that remain after a broker was restarted on a damaged store: it may index the last messages twice.
AFTER = {
    "abort_clean": {"duplicate_index_entry"},
    "checkpoint_missing_abort": set(),
    "cq_last_entry_zeroed": {"duplicate_index_entry"},
    "kill9": {"duplicate_index_entry"},
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["basic", "extremes", "lmq", "orders", "timed", "tricky"])
def test_a_valid_store_has_no_findings(golden: Golden, name: str) -> None:
    store = golden(name)
    assert checked(store.path) == []
    assert checked(store.path, golden_config(store)) == []
    assert checked(store.path, quick=True) == []


@pytest.mark.parametrize("name", ["extremes", "timed"])
def test_no_entry_of_a_sound_file_is_looked_at_twice(
    golden: Golden, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*anything: object, **more: object) -> None:
        pytest.fail("a sound file is looked at again")

    monkeypatch.setattr(FileComparison, "stretches", look)
    assert checked(golden(name).path) == []


@pytest.mark.every_case
@pytest.mark.parametrize("name", sorted(TORN))
def test_each_golden_damage_is_found_by_its_name(torn: Torn, name: str) -> None:
    state, expected = TORN[name]
    found = checked(torn(name).root / state)
    assert expected in kinds(found)
    for finding in found:
        if finding.is_wrong and finding.kind is not Kind.BODY_TOO_LARGE:
            assert finding.at_next_start, finding


def test_every_golden_damage_is_among_them(torn: Torn) -> None:
    root = torn("kill9").root.parent
    assert {path.name for path in root.iterdir() if path.is_dir()} == set(TORN)


@pytest.mark.parametrize("name", sorted(AFTER))
def test_what_a_restarted_broker_leaves(torn: Torn, name: str) -> None:
    assert kinds(checked(torn(name).after)) == AFTER[name]


def test_the_store_before_a_name_collision_is_valid(torn: Torn) -> None:
    assert checked(torn("name_collision").before) == []


def test_a_finding_says_what_is_lost_and_what_a_broker_would_do(torn: Torn) -> None:
    (lost,) = (
        f for f in checked(torn("index_deleted_abort").before) if f.kind is Kind.INDEX_DELETED
    )
    assert lost.cost == "11,897 keys cannot be found"
    assert lost.at_next_start == "indexes again from 524288 only"
    (cut,) = checked(torn("crc_late_noabort").before)
    assert (cut.physical_offset, cut.count) == (1277647, 1)
    assert cut.at_next_start.startswith("cuts the log at 1277647 and loses the 89,525 bytes")
    (old,) = checked(torn("crc_old_noabort").before)
    assert old.at_next_start == "does not notice it, because it does not check this file"
    (zeroed,) = checked(torn("cq_last_entry_zeroed").before)
    assert (zeroed.physical_offset, zeroed.file_offset) == (1366890, 520)


def test_missing_keys_are_counted_with_their_times(torn: Torn) -> None:
    found = checked(torn("index_count_zero_noabort").before)
    (missing,) = (f for f in found if f.kind is Kind.MISSING_INDEX_ENTRY)
    assert missing.count == 326
    assert missing.cost.startswith("326 keys of messages stored between 2026-11-20T22:31:17Z and")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare 5,000 bytes of the log at a time, as if log files were far larger."""
    monkeypatch.setattr(stretch, "_STRETCH_BYTES", 5_000)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["cq_one_topic_deleted", "size_bigger_noabort", "kill9"])
def test_small_chunks_find_the_same(torn: Torn, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(torn(name).before)
    monkeypatch.undo()
    assert found == checked(torn(name).before)


@pytest.mark.usefixtures("small_chunks")
def test_a_valid_store_is_valid_in_small_chunks(golden: Golden) -> None:
    for name in ("tricky", "extremes", "lmq"):
        assert checked(golden(name).path) == []


@pytest.mark.slow
def test_processes_find_the_same_in_the_same_order(torn: Torn) -> None:
    with ProcessRunner(2) as runner:
        for name in ("name_collision", "index_deleted_abort"):
            store = torn(name).after
            assert checked(store, runner=runner) == checked(store, runner=SerialRunner())


def test_the_first_finding_comes_before_the_log_is_read(
    torn: Torn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_check, "check_log_file", lambda task: pytest.fail("read too early"))
    (first,) = islice(check_store(torn("index_short_file").before), 1)
    assert first.kind is Kind.INDEX_FILE_SIZE


def test_repeated_findings_are_counted(torn: Torn) -> None:
    found = checked(torn("name_collision").after)
    lost = [f for f in found if f.kind is Kind.INDEX_FILE_LOST]
    assert len(lost) <= tally.MOST_OF_A_KIND + 1
    damage = checked(torn("cq_one_topic_deleted").after)
    entries = [f for f in damage if f.kind is Kind.MISSING_QUEUE_ENTRY]
    assert len(entries) == tally.MOST_OF_A_KIND + 1
    # A rebuild creates 327 queue files. The broker deleted all of them but one.
    assert sum(f.count for f in entries) == 326


@pytest.mark.parametrize("offset", [10, 500])
def test_links_are_not_followed(golden: Golden, tmp_path: Path, offset: int) -> None:
    store = copy_store(golden("extremes").path, tmp_path / "store")
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(offset))
    (store / "index" / "20990101000000000").symlink_to(outside)
    (store / "commitlog" / "99999999999999999999").symlink_to(outside)
    (store / "consumequeue" / "linked").symlink_to(tmp_path)
    found = checked(store)
    assert kinds(found) == {"foreign_file", "foreign_log_file"}


def test_quick_finds_what_headers_and_ends_show(torn: Torn) -> None:
    assert "index_file_size" in kinds(checked(torn("index_short_file").before, quick=True))
    assert "log_file_size" in kinds(checked(torn("short_file").before, quick=True))
    assert "unreadable_record" in kinds(
        checked(torn("magic_first_lastfile_abort").before, quick=True)
    )


def test_no_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no commitlog folder"):
        list(check_store(tmp_path))


def test_index_files_of_uncertain_size_are_not_checked_and_not_called_deleted(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    second = sorted((store / "index").iterdir())[1]
    os.truncate(second, 2 * second.stat().st_size)
    (found,) = checked(store)
    assert (found.kind, found.file) == (Kind.UNCERTAIN_SIZE, str(second))
    assert found.cost == "the IndexFiles were not checked"


def test_the_command_prints_findings_and_exits_with_5_for_warnings_alone(
    torn: Torn, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(torn("cq_last_entry_zeroed").before)
    with unchanged(Path(store)):
        assert main(["check", store]) == 5
    text = capsys.readouterr().out
    assert "warning: undispatched_tail: " in text
    assert "    broker start: dispatches messages from 1366890 on; indexes those" in text
    assert f"    repair:       reput repair {store}\n" in text
    assert text.endswith("warnings, but no damage: 1 warning\n")


def test_the_command_exits_with_0_for_a_valid_store(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(golden("lmq").path)]) == 0
    assert capsys.readouterr().out == "valid\n"
    assert main(["check", str(golden("lmq").path), "--quick"]) == 0
    assert "only names, sizes, headers, ends and samples" in capsys.readouterr().out


def test_settings_that_are_not_given_are_the_store_s_own(golden: Golden) -> None:
    sizes = ["--hash-slots", "1000", "--index-items", "4000"]
    assert main(["check", str(golden("orders").path), *sizes]) == 0
    assert main(["check", str(golden("orders").path), "--queue-entries", "999"]) == 3


def test_a_checkpoint_with_an_impossible_time_is_found(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("extremes").path, tmp_path / "store")
    path = store / "checkpoint"
    content = path.read_bytes()
    path.write_bytes(content[:16] + b"\xff" * 8 + content[24:])
    assert kinds(checked(store)) == {"checkpoint"}
    path.write_bytes(content[:20])
    assert kinds(checked(store)) == {"checkpoint"}


def test_json_lines_are_as_documented(torn: Torn, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(torn("size_bigger_noabort").before)
    assert main(["check", store, "--format", "jsonl"]) == 3
    head, *findings, end = map(json.loads, capsys.readouterr().out.splitlines())
    assert head == {"schema": "reput-check/1", "store": store, "mode": "full"}
    assert end == {"valid": False, "findings": len(findings), "damage": 1, "warning": 0, "info": 0}
    page = (PAGES.parent / "check.md").read_text()
    for name in {*head, *end, *findings[0]}:
        assert f"| `{name}` |" in page
    assert findings[0]["command"] == f"reput repair --salvage {store}"


@pytest.mark.every_case
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.in_check])
def test_each_kind_has_a_page(kind: Kind) -> None:
    text = (PAGES / f"{kind}.md").read_text()
    assert text.startswith(f"# `{kind}`\n")
    for heading in ("## What you see", "## What it costs", "## What a broker does", "## Repair"):
        assert heading in text


def test_findings_are_equal_where_they_say_the_same() -> None:
    assert Finding(Kind.BODY_CRC, "f", "d", count=2) != Finding(Kind.BODY_CRC, "f", "d")


def test_after_a_crash_a_damaged_index_file_may_be_deleted_and_rebuilt(torn: Torn) -> None:
    crashed = checked(torn("index_count_zero_abort").before)
    (header,) = (f for f in crashed if f.kind is Kind.INDEX_HEADER)
    assert header.at_next_start.endswith("indexes again from 524288")
    (missing,) = (f for f in crashed if f.kind is Kind.MISSING_INDEX_ENTRY)
    assert missing.at_next_start == "indexes them"
    assert Kind.MISSING_INDEX_ENTRY not in kinds(checked(torn("index_count_zero_abort").after))
    clean = checked(torn("index_count_zero_noabort").before)
    assert all(f.at_next_start.startswith("does not notice it") for f in clean)


def test_a_start_that_keeps_no_index_file_indexes_nothing_twice(torn: Torn) -> None:
    (found,) = (
        f
        for f in checked(torn("checkpoint_missing_abort").before)
        if f.kind is Kind.UNCLEAN_SHUTDOWN
    )
    assert found.at_next_start == "deletes 30 IndexFiles and dispatches again from 0"


def test_entries_that_are_not_written_are_a_gap_and_lead_nowhere(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    path = max((store / "consumequeue").glob("*/*/00000000000000000000"), key=os.path.getsize)
    with path.open("r+b") as file:
        file.seek(3 * 20)
        file.write(bytes(4 * 20))
    found = {f.kind: f for f in checked(store)}
    assert set(found) == {"queue_gap", "missing_queue_entry"}
    assert found[Kind.MISSING_QUEUE_ENTRY].count == 4
    assert found[Kind.QUEUE_GAP].cost == "consumers do not get past it"


def test_a_quick_check_does_not_wait_for_numba(golden: Golden) -> None:
    program = (
        "import sys; from reput.cli.main import main; "
        f"assert main(['check', {str(golden('lmq').path)!r}, '--quick']) == 0; "
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
