"""The group of a retry topic: from its name, its messages, or the existing topics."""

import pytest

from reput.format.real_queue import consumer_group

POPPED = {"1ST_POP_TIME": "1"}


@pytest.mark.parametrize(
    ("topic", "properties", "topics", "group"),
    [
        ("%RETRY%g", {}, ["T"], "g"),
        ("%DLQ%g_T", {}, ["T"], "g_T"),
        ("%RETRY%g_T", {}, ["T"], "g_T"),  # a message that was sent back
        ("%RETRY%g_T", POPPED, ["T"], "g"),
        ("%RETRY%a_b_T_1", POPPED, ["T_1", "x"], "a_b"),
        ("%RETRY%a_b_T", POPPED, ["T", "b_T"], "a_b_T"),  # ambiguous: the group may be a or a_b
        ("%RETRY%a_T", POPPED, [], "a_T"),
        ("%RETRY%_T", POPPED, ["T"], "_T"),
        ("%RETRY%a_b+T_1", {}, [], "a_b"),
    ],
)
def test_groups(topic: str, properties: dict[str, str], topics: list[str], group: str) -> None:
    assert consumer_group(topic, properties, topics) == group
