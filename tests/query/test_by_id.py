"""Messages by their ids: the offset id, the unique key, and texts that could be either."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import reput
from reput.errors import MessageNotFoundError
from reput.format.host import Host
from reput.format.message_id import encode_offset_id
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, forge_log
from tests.query.stores import build_store, offsets

Golden = Callable[[str], GoldenStore]


def test_every_kind_of_host_makes_an_offset_id(golden: Golden) -> None:
    store = golden("tricky")
    lengths = set()
    with reput.open_store(store.path) as opened:
        for row in store.messages[::5]:
            message = opened.get(row.physical_offset)
            message_id = encode_offset_id(message.store_host, message.physical_offset)
            lengths.add(len(message_id))
            assert opened.get_by_id(message_id) == message
            assert opened.get_by_id(message_id.lower()) == message
            assert opened.find_by_id(message_id).is_complete
    assert lengths == {32, 56}


def test_ids_that_the_broker_gave_are_found(golden: Golden) -> None:
    store = golden("tricky")
    with reput.open_store(store.path) as opened:
        for put in store.puts[::20]:
            if put.message_id and put.physical_offset is not None:
                for message_id in put.message_id.split(",")[:1]:
                    assert opened.get_by_id(message_id).physical_offset == put.physical_offset


@pytest.mark.parametrize("has_index", [True, False])
def test_unique_keys_are_found_in_any_topic(golden: Golden, has_index: bool) -> None:
    store = golden("orders")
    index = store.path if has_index else store.root
    rows = [row for row in store.messages if row.uniq_key]
    chosen = rows[:: 200 if has_index else 3000]
    with reput.open_store(store.path, index=index) as opened:
        for row in chosen:
            same = [r.physical_offset for r in rows if r.uniq_key == row.uniq_key]
            found = opened.find_by_id(row.uniq_key or "")
            assert offsets(found) == sorted(same, reverse=True)
            assert opened.get_by_id(row.uniq_key or "").physical_offset == max(same)
            mine = [
                r.physical_offset
                for r in rows
                if (r.uniq_key, r.topic) == (row.uniq_key, row.topic)
            ]
            assert offsets(opened.find_by_id(row.uniq_key or "", row.topic)) == mine[::-1]


def test_a_unique_key_that_reads_as_an_offset_id_of_another_message(tmp_path: Path) -> None:
    """An id is an offset id only if a record with this host begins at its offset. Otherwise it is a unique key."""
    other_host = encode_offset_id(Host("10.9.9.9", 10911), 0)
    inside_a_record = encode_offset_id(Host("127.0.0.1", 10911), 3)
    records = [
        RecordFields(),
        *(RecordFields(properties={"UNIQ_KEY": i}) for i in (other_host, inside_a_record)),
    ]
    log = forge_log(records, file_bytes=4096)
    path = build_store(tmp_path / "store", log.files(), hash_slots=5, index_items=10)
    with reput.open_store(path) as opened:
        assert opened.get_by_id(other_host).physical_offset == log.offsets[1]
        assert opened.get_by_id(inside_a_record).physical_offset == log.offsets[2]
        assert opened.get_by_id(encode_offset_id(Host("127.0.0.1", 10911), 0)).physical_offset == 0


def test_ids_of_no_message(golden: Golden, tmp_path: Path) -> None:
    random = Random(1)
    texts = ["", "x", "\ud800", "7F000001", "0" * 32, "f" * 32, "é" * 32, "g" * 56, "0" * 56]
    texts += ["".join(random.choices("0123456789ABCDEF", k=32)) for _ in range(50)]
    with reput.open_store(golden("lmq").path) as opened:
        for text in texts:
            assert opened.find_by_id(text).messages == ()
            with pytest.raises(MessageNotFoundError, match="no message with the id"):
                opened.get_by_id(text)


def test_without_queues_the_topics_of_the_log_are_searched(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("basic").path, tmp_path / "store")
    (path / "consumequeue").rename(tmp_path / "elsewhere")
    row = next(row for row in golden("basic").messages if row.uniq_key)
    with reput.open_store(path) as opened:
        for topic in (None, row.topic):
            found = opened.get_by_id(row.uniq_key or "", topic)
            assert found.physical_offset == row.physical_offset
