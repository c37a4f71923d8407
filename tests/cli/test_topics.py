"""The output of commands for a topic that a store does not have."""

from collections.abc import Callable

import pytest

from reput.base.words import nearest_first
from reput.cli.main import FOUND, NOT_FOUND
from tests.cli.running import one_line, reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize(
    "command",
    [
        ("query", "--topic", "Order", "--key", "k"),
        ("query", "--topic", "Order", "--key", "k", "--format", "jsonl"),
        ("query", "--topic", "Order", "--key", "k", "--compat"),
        ("tail", "--topic", "Order"),
    ],
)
def test_topics_are_listed_nearest_first(golden: Golden, command: tuple[str, ...]) -> None:
    store = golden("orders").path
    ran = reput(command[0], store, *command[1:])
    assert ran.code == NOT_FOUND
    line = next(line for line in ran.err.splitlines() if line.startswith("reput: "))
    topics = line.removeprefix(f"reput: {store}: no topic Order; it has ").split(", ")
    assert topics[0] == "orders"
    assert sorted(topics) == sorted({row.topic for row in golden("orders").messages})


def test_a_topic_that_exists_is_not_remarked_on(golden: Golden) -> None:
    ran = reput("query", golden("orders").path, "--topic", "orders", "--key", "no such key")
    assert ran.code == NOT_FOUND
    assert "no topic" not in ran.err


def test_many_topics_are_counted(golden: Golden) -> None:
    store = golden("lmq").path
    count = len(list((store / "consumequeue").iterdir()))
    ran = reput("tail", store, "--topic", "nothing")
    named, _, more = one_line(ran).partition("; it has ")[2].partition(" and ")
    assert len(named.split(", ")) + int(more.split()[0] if more else 0) == count


def test_case_and_one_letter_do_not_put_a_name_last() -> None:
    topics = ["a", "billing", "orders", "zeta"]
    assert nearest_first("ORDER", topics)[0] == "orders"
    assert nearest_first("biling", topics)[0] == "billing"
    assert sorted(nearest_first("x", topics)) == topics


def test_found_messages_need_no_remark(golden: Golden) -> None:
    ran = reput("tail", golden("orders").path, "--topic", "orders", "--lines", 1)
    assert (ran.code, ran.err) == (FOUND, "")
