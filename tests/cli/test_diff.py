"""`reput diff`: counts, examples, exit codes, JSON."""

import json
from collections.abc import Callable
from pathlib import Path

from reput.cli.main import DAMAGED, WRONG_USE
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def test_the_same_store(golden: Golden) -> None:
    store = golden("basic").path
    ran = reput("diff", store, store)
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[2] == "Copies of one log, compared by physical offset."
    assert ran.lines[-1] == "The stores are the same."
    assert "messages                           0             0             0" in ran.lines


def test_an_older_backup(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    backup = copy_store(store, tmp_path / "backup")
    last = sorted((backup / "commitlog").iterdir())[-1]
    last.unlink()
    ran = reput("diff", store, backup)
    rows = [row for row in golden("basic").messages if row.physical_offset >= int(last.name)]
    assert ran.code == 1
    remark = f"{len(rows):,} messages of A follow the end of B: B is older, or was truncated."
    assert remark in ran.lines
    first = rows[0]
    place = f"{first.topic}, queue {first.queue_id}, queue offset {first.queue_offset}"
    assert f"message only in A: {place} (offset {first.physical_offset})" in ran.lines
    assert ran.lines[-1] == "The stores differ."
    ran = reput("diff", backup, store, "--format", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["schema"], found["same"], found["way"]) == (
        1,
        "reput-diff/1",
        False,
        "by_offset",
    )
    assert found["counts"]["message"] == {"only_in_a": 0, "only_in_b": len(rows), "different": 0}
    assert found["after_the_other"] == [0, len(rows)]
    assert len(found["examples"]) == 10
    assert found["examples"][0]["physical_offset_b"] == first.physical_offset


def test_damage_is_exit_code_3(torn: Torn) -> None:
    case = torn("magic_first_lastfile_abort")
    ran = reput("diff", case.base.path, case.before)
    assert ran.code == DAMAGED
    assert "bytes lost" in ran.err


def test_what_is_no_store(golden: Golden, tmp_path: Path) -> None:
    ran = reput("diff", golden("basic").path, tmp_path)
    assert (ran.code, ran.out) == (WRONG_USE, "")
    assert "not a RocketMQ store" in ran.err


def test_a_file_of_json_lines_is_refused_in_one_line(golden: Golden, tmp_path: Path) -> None:
    lines = tmp_path / "messages.jsonl"
    lines.write_text("{}\n")
    ran = reput("diff", golden("basic").path, lines)
    assert ran.code == WRONG_USE
    assert "a file; compare stores, or a store with a Parquet, Iceberg or Delta table" in ran.err
