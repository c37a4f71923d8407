"""A message that a reader returned can be put, and its properties stay unchanged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.errors import MessageRefusedError
from reput.format.commit_log import MessageExt
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
CONFIG = StoreConfig(commit_log_file_bytes=1 << 22, hash_slots=64, index_items=30_000)


def readable(store: GoldenStore) -> list[MessageExt]:
    with reput.open_store(store.path) as opened:
        return [opened.get(row.physical_offset) for row in store.messages]


def without_place(message: MessageExt) -> MessageExt:
    """Return its fields without those that depend on its place. The store host takes 4 or 16 bytes of its size."""
    return replace(
        message, size_bytes=0, physical_offset=0, queue_offset=0, store_timestamp=0, store_host=message.born_host,
        sys_flag=message.sys_flag & ~32,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["basic", "tricky", "extremes"])
def test_every_record_of_a_broker_goes_back_in(golden: Golden, tmp_path: Path, name: str) -> None:
    given, taken = [], []
    with reput.open_store(tmp_path / "store", mode="rw", config=CONFIG) as store:
        for message in readable(golden(name)):
            try:
                offset = store.put(reput.Message.of(message)).physical_offset
            except MessageRefusedError:
                continue  # a broker stored it, but `put` refuses messages that it could not store unchanged
            given.append(without_place(message))
            taken.append(without_place(store.get(offset)))
        # Only messages with a DELAY differ: `put` stores them in the topic of delayed messages, as a broker does.
        changed = {at for at, (a, b) in enumerate(zip(given, taken, strict=True)) if a != b}
        assert all("DELAY" in given[at].properties for at in changed)
        assert len(given) - len(changed) > 0.8 * len(golden(name).messages)
        results = store.put_many([reput.Message.of(message) for message in given])
        again = [without_place(store.get(put.physical_offset)) for put in results]
        assert again == taken


def test_parts_of_a_message_may_be_missing_beside_others(tmp_path: Path) -> None:
    parts = [(None, None), (["k"], "tag"), (["k", "l"], None), (None, "tag"), ((), "")]
    messages = [
        reput.Message("T", b"x", keys=keys, tags=tags, properties={"UNIQ_KEY": str(n)})
        for n, (keys, tags) in enumerate(parts)
    ]
    with reput.open_store(tmp_path / "store", mode="rw", config=CONFIG) as store:
        one_by_one = [store.put(message) for message in messages]
        for puts in (one_by_one, store.put_many(messages), store.put_batch(messages)):
            stored = [store.get(put.physical_offset).properties for put in puts]
            assert [each.get("KEYS") for each in stored] == [None, "k", "k l", None, None]
            assert [each.get("TAGS") for each in stored] == [None, "tag", None, "tag", None]
