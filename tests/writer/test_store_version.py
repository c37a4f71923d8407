"""Stores of RocketMQ 5.x that are written: records, queues, checkpoint, marks; and the version of a store."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.base.config import StoreConfig
from reput.cli.main import WRONG_USE
from reput.core.query.inner_batch import unwrap
from reput.core.store.facts import facts_of
from reput.core.store.parts import parts_of
from reput.engine.check.run import check_store
from reput.engine.writer.put.message import Message
from reput.errors import MessageRefusedError, StoreError, UsageError
from reput.format.commit_log import (
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    decode,
    record_crc_ok,
    stated_record_crc,
)
from reput.io.storage import LOCAL
from tests.cli.running import reput as run
from tests.five import CONFIG, batch_entries, inner_batch, write_topics
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

FOUR = replace(CONFIG, store_version=None, append_record_crc=False)


def opened(store: Path, config: StoreConfig | None = CONFIG, **settings: Any) -> Any:
    return reput.open_store(store, mode="rw", config=config, **settings)


def test_records_of_5(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        places = [
            store.put(Message("T", b"body", ["k"])),
            store.put(Message("%RETRY%" + "g" * 130, b"body")),
            store.put(Message("T", b"body", properties="KEYS\x01k")),
            *store.put_many([Message("T", b"body", ["k"]), Message("t" * 255, b"")]),
        ]
        raw = [store.get_record(place.physical_offset) for place in places]
    magics = [decode(record).magic for record in raw]
    assert magics == [
        MESSAGE_MAGIC, MESSAGE_MAGIC_V2, MESSAGE_MAGIC, MESSAGE_MAGIC, MESSAGE_MAGIC_V2,
    ]  # fmt: skip
    for record in raw:
        assert stated_record_crc(record) is not None
        assert record_crc_ok(record)
        assert record[-21:-20] == b"\x02"
    assert list(check_store(tmp_path / "s", config=CONFIG)) == []


def test_a_crc_of_another_record_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(Message("T", b"first"))
        found = store.get(store.put(Message("T", b"body", ["k"])).physical_offset)
        again = store.put(Message.of(found))
        as_map = store.put(Message("T", properties=found.properties))
        for place in (again, as_map):
            record = store.get_record(place.physical_offset)
            assert record.count(b"__CRC32#") == 1
            assert record_crc_ok(record)
    with opened(tmp_path / "four", FOUR) as store:
        place = store.put(Message.of(found))
        assert b"__CRC32#" not in store.get_record(place.physical_offset)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("\u4e2d" * 60), "topic of 180 bytes"),
        (Message("t" * 256), "folder"),
        (Message("T", properties={"INNER_NUM": "2"}), "only inner batches"),
        (Message("T", sys_flag=192, properties={"INNER_NUM": "2"}), "not batch queues"),
        (Message("B", sys_flag=192), "INNER_NUM must be .* not None"),
        (Message("B", sys_flag=192, properties={"INNER_NUM": "0"}), "INNER_NUM must be .* not '0'"),
        (
            Message("B", sys_flag=192, properties={"INNER_NUM": "9" * 5000}),
            "INNER_NUM must be .* not '9",
        ),
        (
            Message("B", sys_flag=196, properties={"INNER_NUM": "2"}),
            "part of an uncommitted transaction",
        ),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "x,%LMQ%a"}), "light queues"),
        (Message("T", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%a"}), "light queues"),
        (Message("T", properties="A\x01" + "b" * 32_745), "at most 32747 bytes fit"),
    ],
)
def test_refused(tmp_path: Path, message: Message, reason: str) -> None:
    write_topics(tmp_path / "s", "B")
    with opened(tmp_path / "s", replace(CONFIG, enable_lmq=True)) as store:
        for put in (store.put, lambda one: store.put_many([one])):
            with pytest.raises(MessageRefusedError, match=reason):
                put(message)
        assert store.end_offset() == 0


def test_light_queues(tmp_path: Path) -> None:
    config = replace(CONFIG, enable_lmq=True, enable_multi_dispatch=True)

    def dispatched(names: str, **more: Any) -> Message:
        given = {"INNER_MULTI_DISPATCH": names, "WAIT": "true"}
        return Message("T", b"x", properties=given, **more)

    with opened(tmp_path / "s", config) as store:
        texts: list[str | None] = []
        places: list[int] = []
        for message in (
            dispatched("%LMQ%a"), dispatched("%LMQ%a,%LMQ%b"), dispatched("%LMQ%a", sys_flag=4),
            dispatched("%LMQ%a"), dispatched("other"), dispatched("x,y"),
        ):  # fmt: skip
            places.append(store.put(message).physical_offset)
            found = store.get(places[-1])
            texts.append(found.properties.get("INNER_MULTI_QUEUE_OFFSET"))
            assert found.properties["WAIT"] == "true"
        assert texts == ["0", "1,0", "2", "3", None, ","]
        store.wait_dispatched()
        light = store.pull("%LMQ%a", 0, 0).messages
        assert [one.physical_offset for one in light] == [places[0], places[1], places[3]]


def test_batch_queues(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write_topics(path, "B")
    with opened(path) as store:
        bodies = [[b"%d-%d" % (n, i) for i in range(n % 4 + 1)] for n in range(40)]
        bases = []
        for number, inner in enumerate(bodies):
            if number % 3 == 2:
                bases += [one.queue_offset for one in store.put_many([Message("B", b"x")] * 2)]
            bases.append(store.put(inner_batch("B", inner)).queue_offset)
        store.wait_dispatched()
        assert batch_entries(path, "B", 0) == bases
        found = store.get(store.pull("B", 0, bases[5]).messages[0].physical_offset)
        assert [one.queue_offset for one in unwrap(found)] == list(
            range(bases[5], bases[5] + len(unwrap(found)))
        )
        assert found.properties["INNER_BASE"] == str(bases[5])
    assert list(check_store(path)) == []
    assert len(list((path / "batchconsumequeue" / "B" / "0").iterdir())) > 3
    with opened(path) as store:  # the old version
        assert store.recovery.is_clean
        assert store.put(Message("B", b"y")).queue_offset == bases[-1] + len(bodies[-1])
    assert not (path / "consumequeue" / "B").exists()


def test_files_of_batch_queues_expire(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write_topics(path, "B")
    with opened(path) as store:
        for _ in range(80):
            last = store.put(inner_batch("B", [b"x" * 300] * 2))
        report = store.expire(last.store_timestamp + 1)
        gone = [name for name in report.queue_files if "batchconsumequeue" in name]
        assert gone
        assert not any(map(os.path.exists, gone))
        assert store.max_queue_offset("B", 0) == 160
    with opened(path) as store:
        assert store.put(Message("B", b"y")).queue_offset == 160


def test_a_new_store_is_of_4_unless_asked(tmp_path: Path) -> None:
    for config, version in (
        (None, "4.9 or 5.x"), (FOUR, "4.9 or 5.x"), (CONFIG, "5.x"),
        (replace(FOUR, append_record_crc=True), "5.x"),
    ):  # fmt: skip
        store = tmp_path / version / str(hash(config))
        opened(store, config or FOUR).close()
        assert parts_of(str(store), LOCAL).version == version


def test_the_version_is_that_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "five"
    with opened(path) as store:
        store.put(Message("T", b"x"))
        assert (path / "abort").read_text() == str(os.getpid())
    assert not (path / "abort").exists()
    with opened(path, None) as store:  # without a setting, the store's files determine the version
        record = store.get_record(store.put(Message("T", b"x")).physical_offset)
        assert stated_record_crc(record) is not None
    with pytest.raises(UsageError, match=r"store of RocketMQ 5\.x"):
        opened(path, replace(FOUR, store_version="4.9"))
    four = tmp_path / "four"
    with opened(four, FOUR) as store:
        store.put(Message("T", b"x"))
        assert (four / "abort").read_bytes() == b""
    with opened(four, None) as store:
        found = store.get(store.put(Message("T", b"x", ["k"])).physical_offset)
        assert not found.properties_bytes.endswith(b"\x02")
    with opened(four, replace(CONFIG, append_record_crc=False)) as store:  # an upgrade
        found = store.get(store.put(Message("T", b"x", ["k"])).physical_offset)
        assert found.properties_bytes.endswith(b"\x02")
    with pytest.raises(UsageError, match="store_version must be one of"):
        StoreConfig(store_version="6")


def test_a_brokers_store_is_continued(golden: Any, tmp_path: Path) -> None:
    golden_store: GoldenStore = golden("five_batch")
    path = copy_store(golden_store.path, tmp_path / "s")
    before = facts_of(path).checkpoint
    with opened(path, None) as store:
        assert store.recovery.is_clean
        assert store.recovery.truncated_bytes == 0
        ends = {(row.topic, row.queue_id): row.max_offset for row in golden_store.queues}
        for (topic, queue_id), end in ends.items():
            assert store.put(Message(topic, b"new", queue_id=queue_id)).queue_offset == end
    after = facts_of(path).checkpoint
    assert before.confirmed_offset == after.confirmed_offset > 0
    assert list(check_store(path)) == []


def test_batch_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write_topics(tmp_path / "s", "B")
    with pytest.raises(StoreError, match="not a whole number of entries"):
        opened(tmp_path / "s", replace(CONFIG, batch_queue_file_bytes=100))
    with opened(tmp_path / "s") as store:
        store.put(Message("B", b""))
    with pytest.raises(StoreError, match="have 460 bytes, not the 92 of the settings"):
        opened(tmp_path / "s", replace(CONFIG, batch_queue_file_bytes=92))


def test_a_topic_with_queues_of_both_kinds_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(Message("B", b""))
    write_topics(tmp_path / "s", "B", "../up")
    with pytest.raises(StoreError, match="no broker starts with both"):
        opened(tmp_path / "s")


def test_put_a_new_store_of_5(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sizes = (
        "--log-file-size",
        "64k",
        "--queue-entries",
        100,
        "--hash-slots",
        99,
        "--index-items",
        99,
    )
    put = ("put", path, "--topic", "T", "--body", "x", "--format", "json")
    made = run(*put, "--store-version", "5.3", *sizes)
    assert (made.code, json.loads(made.out)["queue_offset"]) == (0, 0)
    assert parts_of(str(path), LOCAL).version == "5.x"
    assert run(*put).code == 0
    refused = run(*put, "--store-version", "4.9")
    assert refused.code == WRONG_USE
    assert "is a store of RocketMQ 5.x" in refused.err
