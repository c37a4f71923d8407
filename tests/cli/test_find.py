"""`reput find`: one field for a key, an id in any case, an offset or a place in a queue."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND, WRONG_USE
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import one_line, reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
UNIQUE_KEY = "C29D7DF7AC9FCF1B47E573A82B41892C"
OFFSET_ID = "0A08090100002A9F000000000000D23D"


@pytest.mark.parametrize(
    "text",
    [
        "53821", "53,821", "orders/1/11", "orders 1/11 · reput", UNIQUE_KEY, UNIQUE_KEY.lower(),
        OFFSET_ID, OFFSET_ID.lower(), f"msgId: {UNIQUE_KEY}",
    ],
)  # fmt: skip
def test_any_name_of_a_message_finds_it(golden: Golden, text: str) -> None:
    ran = reput("find", golden("orders").path, text)
    assert ran.code == FOUND
    assert "orders  1/11   53821" in ran.lines[1]
    assert ran.lines[-2] == "1 message."


def test_a_key_finds_what_a_query_finds(golden: Golden) -> None:
    store = golden("orders").path
    found, queried = (
        reput("find", store, "order-100377"),
        reput("query", store, "--key", "order-100377"),
    )
    assert found.lines[:-2] == queried.lines[:-2]


def test_a_window_a_topic_and_a_limit_bound_what_is_found(golden: Golden) -> None:
    store = golden("orders").path
    assert reput("find", store, "53821", "--topic", "payments").code == NOT_FOUND
    assert reput("find", store, "53821", "--end", "2026-10-11").code == NOT_FOUND
    ran = reput("find", store, "order-100377 customer-65", "--limit", 2)
    assert ran.lines[-2] == "2 messages, and there are older ones."


def test_several_stores_are_searched(golden: Golden) -> None:
    ran = reput(
        "find", golden("orders").path, golden("basic").path, UNIQUE_KEY.lower(), "--format", "jsonl"
    )
    assert ran.code == FOUND
    assert len(ran.lines) == 1


def test_an_unreadable_message_at_the_offset_makes_the_answer_incomplete(tmp_path: Path) -> None:
    write_log(tmp_path, [MESSAGE, MESSAGE])
    log = next((tmp_path / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[4:8] = b"\1\2\3\4"
    log.write_bytes(data)
    assert reput("find", tmp_path, "0").code == DAMAGED


@pytest.mark.parametrize("command", ["query", "trace"])
@pytest.mark.parametrize("option", ["--id", "--key"])
def test_ids_in_lower_case_are_found(golden: Golden, command: str, option: str) -> None:
    store = golden("orders").path
    lower = reput(command, store, option, UNIQUE_KEY.lower(), "--format", "jsonl")
    upper = reput(command, store, option, UNIQUE_KEY, "--format", "jsonl")
    assert lower.code == FOUND
    assert lower.lines[1:] == upper.lines[1:]


def test_show_finds_a_unique_key_in_lower_case(golden: Golden) -> None:
    store = golden("orders").path
    assert reput("show", store, UNIQUE_KEY.lower()).out == reput("show", store, UNIQUE_KEY).out


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (("show", "{}"), "reput show STORE 53821"),
        (("find", "{}"), "reput find STORE TEXT"),
        (("query", "{}", "53821"), "reput find {} 53821"),
        (("query", "{}", "--id", "53821"), "reput show STORE 53821"),
        (("trace", "{}", UNIQUE_KEY), "reput trace {} --id " + UNIQUE_KEY),
        (("tail", "{}", "orders"), "reput tail {} --key orders, or --topic orders"),
    ],
)
def test_a_message_in_the_wrong_place_is_answered_with_the_right_command(
    golden: Golden, args: tuple[str, ...], advice: str
) -> None:
    store = str(golden("orders").path)
    ran = reput(*(arg.replace("{}", store) for arg in args))
    assert ran.code == WRONG_USE
    assert advice.replace("{}", store) in one_line(ran)
