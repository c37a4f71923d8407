"""`reput stats`: tables, JSON, exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

from reput.cli.main import DAMAGED
from tests.cli.running import reput
from tests.golden.stores import GoldenStore, TornCase
from tests.inspect.stories import Story

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def test_tables_of_a_shop(golden: Golden) -> None:
    ran = reput("stats", golden("orders").path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].endswith(": 19,622 messages, 6.2 MiB, 58,866 index entries")
    for title in (
        "Topics",
        "Queues",
        "Longest times without a message",
        "Frequent keys",
        "IndexFiles",
    ):
        assert title in ran.lines
    assert "  billing  415      3" in ran.lines
    assert "  orders  customer-10  306" in ran.lines
    assert "15 IndexFiles cover 99.8% of the log, 15 of them only spot-checked" in ran.out
    assert "for one a day: maxIndexNum 7400, maxHashSlotNum 1850." in ran.out


def test_json(golden: Golden) -> None:
    store = golden("orders").path
    found = json.loads(reput("stats", store, "--format", "json").out)
    assert (found["schema"], found["store"], found["messages"]) == (
        "reput-stats/1",
        str(store),
        19_622,
    )
    assert found["groups"] == [{"group": "billing", "retries": 415, "dead_letters": 3}]
    assert sum(found["topics"][0]["messages"]) == 8_934
    assert found["keys"][0] == {"topic": "orders", "text": "customer-10", "count": 306, "error": 1}


def test_damage_and_names_that_steer_a_terminal(torn: Torn, tmp_path: Path) -> None:
    ran = reput("stats", torn("magic_first_lastfile_abort").before)
    assert ran.code == DAMAGED
    assert "bytes lost" in ran.err
    story = Story()
    for number in range(2):
        story.put("t\x1b[31m", number, key="k\x1b[0m")
    ran = reput("stats", story.store(tmp_path / "s"))
    assert ran.code == 0
    assert "\x1b" not in ran.out
