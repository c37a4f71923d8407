"""Light queues of 5.3.3, whose queue offsets skip messages of open transactions: read without an error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.core.query.message_store import MessageStore
from reput.engine.messages.tail import LogTail, TailFilter
from reput.format.consume_queue import PRE_BLANK
from tests.check.checking import facts
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
STORES = ["five_multipath", pytest.param("five_default", marks=pytest.mark.slow)]


def opened(store: GoldenStore) -> MessageStore:
    return MessageStore(store.path, config=StoreConfig.from_broker_settings(store.config))


def offsets_of(store: GoldenStore, topic: str) -> list[int]:
    return sorted(
        row.physical_offset
        for row in store.queue_entries
        if row.topic == topic and row.size != PRE_BLANK.size
    )


@pytest.mark.parametrize("name", [*STORES, "five_ext"])
def test_the_tail_of_each_queue_is_whole(golden: Golden, name: str) -> None:
    store = golden(name)
    with opened(store) as opened_store:
        for topic in sorted({row.topic for row in store.queue_entries}):
            expected = offsets_of(store, topic)
            for count in (7, 10**6):
                tail = LogTail(opened_store, TailFilter(topic=topic))
                found = [message.physical_offset for message in tail.last(count)]
                assert (found, tail.damage) == (expected[-count:], [])


@pytest.mark.parametrize("name", STORES)
def test_each_number_leads_to_its_message(golden: Golden, name: str) -> None:
    store = golden(name)
    with opened(store) as opened_store:
        for row in store.queue_entries:
            if row.topic.startswith("%LMQ%") and row.size != PRE_BLANK.size:
                found = opened_store.get_by_queue(row.topic, row.queue_id, row.queue_offset)
                assert found.physical_offset == row.physical_offset


@pytest.mark.slow
def test_recovery_leaves_them_as_they_are(golden: Golden, tmp_path: Path) -> None:
    store = golden("five_default")
    copy = copy_store(store.path, tmp_path / "store")
    (copy / "abort").touch()
    before = {name: fact[3] for name, fact in facts(copy / "consumequeue").items()}
    ran = reput("recover", copy, "--broker-config", store.root / "config.properties")
    assert ran.code == 0
    assert {name: fact[3] for name, fact in facts(copy / "consumequeue").items()} == before
