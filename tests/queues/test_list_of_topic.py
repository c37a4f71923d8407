"""The list of a topic's queues equals the topic's part of the list of all queues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reput.core.query.message_store import MessageStore
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize("name", ["orders", "tricky", "five_batch", "five_rocksdb", "lmq"])
def test_the_queues_of_a_topic(golden: Golden, name: str) -> None:
    with MessageStore(golden(name).path) as store:
        every = store.list_queues()
        for topic in store.topics():
            assert store.list_queues(topic) == [one for one in every if one[0] == topic] != []
        for wrong in ("nothing", "", "..", "a/b", "\0", "/", "."):
            assert store.list_queues(wrong) == []
