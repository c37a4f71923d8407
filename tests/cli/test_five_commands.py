"""What commands print of stores of RocketMQ 5.3.3."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import NOT_FOUND
from tests.cli.running import reput as run
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def test_stats_of_a_dledger_log_begin_with_its_first_message(golden: Golden) -> None:
    store = golden("five_dledger")
    found = json.loads(run("stats", store.path, "--json").out)
    assert found["timeline"]["begin_ms"] == store.messages[0].store_timestamp


def test_a_rebuild_counts_batch_queues(golden: Golden, tmp_path: Path) -> None:
    store = golden("five_batch")
    found = run("rebuild", store.path, "--output", tmp_path / "out").out
    assert f"{len(store.queues)} queues, 16 files, {len(store.queue_entries)} entries" in found


def test_no_value_of_a_table_is_cut_in_a_pipe(golden: Golden) -> None:
    store = golden("five_dledger").path
    whole = run("transactions", store).out
    assert "…" not in whole
    rows = [json.loads(line) for line in run("transactions", store, "--json").out.splitlines()]
    assert all(row["unique_key"] in whole for row in rows)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("transactions", "No open transaction."),
        ("lag", "No committed offset: config/ of the store has none."),
        ("popped", "No unacknowledged message."),
    ],
)
def test_nothing_found_is_said(golden: Golden, command: str, said: str) -> None:
    found = run(command, golden("five_batch").path)
    assert (found.code, found.out) == (NOT_FOUND, f"{said}\n")
    assert run(command, golden("five_batch").path, "--json").out == ""


def test_inspect_names_the_files_of_batch_queues(golden: Golden) -> None:
    found = run("inspect", golden("five_batch").path).out
    assert "batch queues   10 files" in found
    assert "compaction (no compaction logs)" in found
    assert "compaction (compaction logs)" in run("inspect", golden("five_compaction").path).out
    assert "CommitLog      offsets" in run("inspect", golden("five_multipath").path).out


def test_tiered_says_that_the_index_alone_was_searched(golden: Golden) -> None:
    path = golden("five_tiered").path
    asked = ("tiered", path, "--topic", "TopicA", "--key", "no such key")
    assert "only the index was searched" in run(*asked).err
    assert run(*asked, "--scan").err == ""
