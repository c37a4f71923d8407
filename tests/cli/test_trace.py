"""`reput trace`: a line per record, sentences, JSON lines, exit codes."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND, WRONG_USE
from reput.engine.messages.codec import message_fields
from reput.engine.stores import open_store
from tests.cli.running import one_line, reput
from tests.golden.stores import GoldenStore, TornCase
from tests.inspect.stories import Story

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def test_a_payment_that_was_given_up(golden: Golden) -> None:
    ran = reput("trace", golden("orders").path, "--key", "pay-a4f912f0")
    assert (ran.code, ran.err) == (FOUND, "")
    assert ran.lines[0].split() == [
        "stored",
        "(UTC)",
        "after",
        "record",
        "topic",
        "queue",
        "offset",
    ]
    assert ran.lines[1].endswith("message      payments        3/801  3734718")
    assert ran.lines[2].split() == [
        *("2026-10-16", "21:20:12.760", "43.9", "s", "retry", "1", "%RETRY%billing"),
        *("3/68", "3736600"),
    ]
    assert "  dead letter  %DLQ%billing " in ran.lines[5]
    assert ran.lines[7].startswith(
        "  - Consumer group billing got it again: it sent it back 16 times"
    )
    assert ran.lines[8].startswith("  - Retries 4 to 15 of group billing are not in the store")
    assert ran.lines[9].startswith("  - Consumer group billing gave it up after sending it back 16")
    assert "5 records." in ran.lines
    assert ran.lines[-1].startswith("Searched the CommitLog from 0 to 6,549,067, through 15 IndexF")


def test_json_lines(golden: Golden) -> None:
    store = golden("tricky").path
    ran = reput("trace", store, "--key", "half0", "--format", "jsonl")
    head, half, op, *reasons, end = map(json.loads, ran.lines)
    assert head == {
        "schema": "reput-trace/1",
        "stores": [str(store)],
        "key": "half0",
        "message": None,
        "topic": None,
    }
    assert (half["event"], half["gap_ms"], half["found_by"]) == ("half", None, "key")
    assert (op["event"], op["gap_ms"], op["found_by"]) == ("op", 0, "op_queue")
    with open_store(store) as opened:
        assert half["message"] == message_fields(opened.get(787674))
    assert [reason["reason"] for reason in reasons] == ["stored_late", "rolled_back"]
    assert reasons[1]["events"] == [0, 1]
    assert (end["complete"], end["events"]) == (True, 2)
    (searched,) = end["searched"]
    assert (searched["begin"], searched["end"], searched["unreadable"]) == (0, 1835174, [])


def test_nothing_found(golden: Golden) -> None:
    ran = reput("trace", golden("orders").path, "--topic", "order", "--key", "no-such-key")
    assert ran.code == NOT_FOUND
    assert ran.lines[0] == "No message."
    assert "no topic order; it has orders" in one_line(ran)


def test_damage_and_limits_are_said(torn: Torn, tmp_path: Path) -> None:
    ran = reput("trace", torn("tail_noabort").before, "--key", "no such key")
    assert ran.code == DAMAGED
    assert "could not be read: messages in it are missing" in ran.out
    assert ran.err.startswith("reput: ")
    story = Story()
    for number in range(3):
        story.put("orders", unique_key=f"U{number}")
        story.put("%RETRY%g", unique_key=f"R{number}", key="", ORIGIN_MESSAGE_ID=f"U{number}")
    store = story.store(tmp_path / "s")
    ran = reput("trace", store, "--key", "order-1", "--limit", "2", "--queue-messages", "1")
    assert ran.code == FOUND
    assert "There are more messages than --limit; only the newest were followed." in ran.lines
    assert any(line.endswith("raise --queue-messages to read them.") for line in ran.lines)
    ran = reput("trace", store, "--key", "order-1", "--limit", "2", "--format", "jsonl")
    assert json.loads(ran.lines[-1])["complete"] is False


def test_two_stores_have_a_column_and_their_own_lines(golden: Golden) -> None:
    stores = [golden(name).path for name in ("tricky", "orders")]
    ran = reput("trace", *stores, "--key", "pay-a4f912f0")
    assert ran.code == FOUND
    assert ran.lines[0].endswith("offset   store")
    assert ran.lines[-2].startswith(f"{stores[1]}: Searched the CommitLog from 0 to ")
    assert re.fullmatch(r"1 store without a record; [0-9,]+ bytes of log\.", ran.lines[-1])
    ran = reput("trace", *stores, "--id", "7F00000100002A9F0000000000000000")
    assert ran.lines[1].endswith(str(stores[0]))


def test_text_of_a_store_does_not_steer_a_terminal(tmp_path: Path) -> None:
    story = Story()
    story.put("%RETRY%\x1b[31m", times=1)
    ran = reput("trace", story.store(tmp_path / "s"), "--key", "order-1")
    assert "\x1b" not in ran.out
    assert "%RETRY%\\x1b[31m" in ran.out


def test_wrong_use(golden: Golden) -> None:
    store = golden("orders").path
    for arguments, says in (
        ([store], "pass one of --key and --id"),
        ([store, "--key", "k", "--message", "m"], "pass one of --key and --id"),
        ([store, "--message", "m", "--topic", "t"], "--topic can be combined with --key only"),
        ([store, "--key", "k", "--limit", "0"], "--limit must be at least 1, not 0"),
        ([store, "--key", "k", "--queue-messages", "0"], "--queue-messages must be at least 1"),
        (
            [store, golden("tricky").path, "--key", "k", "--index", store],
            "--index: works with one store only, not with 2",
        ),
    ):
        ran = reput("trace", *arguments)
        assert (ran.code, ran.out) == (WRONG_USE, "")
        assert says in one_line(ran)
