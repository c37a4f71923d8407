"""Puts write a broker's bytes, for all ways of putting messages."""

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from random import Random

import pytest

from reput.base.config import StoreConfig
from reput.engine.writer.put.commit_log_writer import CommitLogWriter
from reput.engine.writer.put.gather import from_messages
from reput.engine.writer.put.message import Message, PutResult
from reput.errors import MessageRefusedError
from reput.format.host import Host
from reput.format.message_id import UniqueKeys
from tests.golden.stores import GoldenStore
from tests.writer.golden_puts import STORE_HOST, golden_puts, new_writer, store_config

Golden = Callable[[str], GoldenStore]
KEYS = UniqueKeys("0A" * 10)
SMALL = StoreConfig(commit_log_file_bytes=4096)


def log_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def put_all(writer: CommitLogWriter, messages: list[Message]) -> None:
    columns = from_messages(messages, KEYS, 0, STORE_HOST, writer.delay_levels)
    writer.put_columns(columns)


def test_puts_at_extreme_times_one_by_one(golden: Golden, tmp_path: Path) -> None:
    store = golden("extremes")
    puts = list(golden_puts(store))
    times = iter([put.time_ms for put in puts])
    writer = new_writer(tmp_path / "log", store_config(store), lambda: next(times))
    results = [writer.put(put.messages[0]) for put in puts]
    assert log_bytes(tmp_path / "log") == log_bytes(store.path / "commitlog")
    assert [(one.physical_offset, one.queue_offset, one.store_timestamp) for one in results] == [
        (row.physical_offset, row.queue_offset, row.store_timestamp) for row in store.messages
    ]


def test_puts_at_extreme_times_many_at_once(golden: Golden, tmp_path: Path) -> None:
    store = golden("extremes")
    now = [0]
    writer = new_writer(tmp_path / "log", store_config(store), lambda: now[0])
    for now[0], group in groupby(golden_puts(store), lambda put: put.time_ms):
        put_all(writer, [put.messages[0] for put in group])
    assert log_bytes(tmp_path / "log") == log_bytes(store.path / "commitlog")


@pytest.mark.parametrize("store_host", [STORE_HOST, Host("2001:db8::7", 10911)])
def test_both_ways_write_the_same(tmp_path: Path, store_host: Host) -> None:
    messages = [
        Message("Topic", bytes([n]) * (n * 7), [f"k{n}"], "Tag" if n % 2 else "", n % 3)
        for n in range(60)
    ]
    messages.append(Message("T\u00f6pic", b"", properties={"UNIQ_KEY": "u"}, flag=-1, sys_flag=4))
    messages.append(Message("Topic", b"x", properties="", born_host=Host("2001:db8::1", 1)))
    messages.append(Message("Topic", b"y", sys_flag=12, born_timestamp=-5, reconsume_times=3))
    one_by_one = new_writer(tmp_path / "one", SMALL, lambda: 7_000, store_host)
    for each in messages:
        one_by_one.put(each)
    at_once = new_writer(tmp_path / "many", SMALL, lambda: 7_000, store_host)
    columns = from_messages(messages, UniqueKeys("0A" * 10), 7_000, store_host, 18)
    at_once.put_columns(columns)
    assert log_bytes(tmp_path / "one") == log_bytes(tmp_path / "many")
    assert one_by_one.position == at_once.position
    assert one_by_one.queue_offsets.items() >= {("Topic", 0): 21}.items()
    assert {k: v for k, v in at_once.queue_offsets.items() if v} == one_by_one.queue_offsets


def in_bytes(messages: list[Message]) -> list[Message]:
    """Return the messages with their properties as bytes, as a server puts them."""
    return [
        replace(
            each, keys=None, tags=None, properties=f"KEYS\x01k{n}\x02UNIQ_KEY\x01{n:032X}".encode()
        )
        for n, each in enumerate(messages)
    ]


@pytest.mark.parametrize("version", ["4.9.3", "5.3.3", "5.3.3 with CRC"])
@pytest.mark.parametrize("store_host", [STORE_HOST, Host("2001:db8::7", 10911)])
def test_a_run_is_what_single_puts_write(tmp_path: Path, store_host: Host, version: str) -> None:
    config = replace(
        SMALL,
        store_version="5.3" if version.startswith("5") else "4.9",
        append_record_crc=version.endswith("CRC"),
    )
    random = Random(3)
    messages = in_bytes(
        [
            Message(
                f"Topic{random.randrange(3)}", bytes([n]) * random.choice((0, 9, 300, 1500)),
                queue_id=random.randrange(2), flag=-n, sys_flag=random.choice((0, 0, 0, 4)),
                born_timestamp=n, born_host=random.choice((None, Host("2001:db8::1", 1))),
            )
            for n in range(90)
        ]
    )  # fmt: skip
    single = new_writer(tmp_path / "single", config, lambda: 7_000, store_host)
    expected = [single.put(each) for each in messages]
    runs = new_writer(tmp_path / "runs", config, lambda: 7_000, store_host)
    found: list[object] = []
    while len(found) < len(messages):
        found += runs.put_run(messages[len(found) :][: random.randrange(1, 12)])
    assert found == expected
    assert log_bytes(tmp_path / "runs") == log_bytes(tmp_path / "single")
    assert (runs.position, runs.queue_offsets) == (single.position, single.queue_offsets)


def test_a_refused_message_does_not_stop_the_others_of_its_run(tmp_path: Path) -> None:
    bad = [
        Message("T", bytes(5000)),
        Message("a/b"),
        Message("T", queue_id=-1),
        Message("T", flag=1 << 40),
    ]
    good = [Message("T", bytes([n]), queue_id=n % 2) for n in range(4)]
    mixed = [each for pair in zip(bad, good, strict=True) for each in pair]
    writer = new_writer(tmp_path / "log", SMALL, lambda: 7_000)
    results = writer.put_run(in_bytes(mixed))
    assert all(isinstance(each, MessageRefusedError) for each in results[::2])
    assert [each.queue_offset for each in results[1::2] if isinstance(each, PutResult)] == [
        0,
        0,
        1,
        1,
    ]
    alone = new_writer(tmp_path / "alone", SMALL, lambda: 7_000)
    alone.put_run(in_bytes(mixed)[1::2])
    assert log_bytes(tmp_path / "log") == log_bytes(tmp_path / "alone")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Message("\u4e2d" * 43), "topic of 129 bytes"),
        (Message(""), "name of a folder"),
        (Message("a/b"), "name of a folder"),
        (Message("T", queue_id=-1), "queue_id -1"),
        (Message("T", queue_id=1 << 31), "queue_id"),
        (Message("T", properties="x" * 32_768), "properties of 32768 bytes"),
        (Message("T", properties={"p": "x" * 32_767}), "properties of"),
        (Message("T", properties={"p": ""}), "without a name or a value"),
        (Message("T", properties={"": "p"}), "without a name or a value"),
        (Message("T", properties={"p": "a\x02b"}), "x02"),
        (Message("T", properties={"p\x01": "a"}), "x02"),
        (Message("T", keys=["a b"]), "spaces, which separate keys"),
        (Message("T", keys=["a", ""]), "spaces, which separate keys"),
        (Message("T", keys=["a"], properties="x"), "must be complete"),
        (Message("T", b"x" * 4000), "at most 4088 bytes"),
        (Message("T", flag=1 << 31), "does not fit its field"),
    ],
)
def test_what_a_broker_would_lose_is_refused(tmp_path: Path, bad: Message, reason: str) -> None:
    config = StoreConfig(commit_log_file_bytes=4096)
    writer = new_writer(tmp_path / "log", config, lambda: 7_000)
    writer.put(Message("T"))
    before = writer.position
    with pytest.raises(MessageRefusedError, match=reason):
        writer.put(bad)
    with pytest.raises(MessageRefusedError, match=reason):
        put_all(writer, [Message("T"), bad])
    assert writer.position == before
    assert writer.queue_offsets == {("T", 0): 1}


def test_a_record_that_leaves_room_for_a_blank_and_no_more(tmp_path: Path) -> None:
    writer = new_writer(tmp_path / "log", SMALL, lambda: 7_000)
    room = 4096 - 8 - writer.put(Message("T", properties="")).physical_offset
    least = writer.position
    writer.put(Message("T", b"x" * (room - 2 * least), properties=""))
    assert writer.position == 4096 - 8
    assert writer.put(Message("T", properties="")).physical_offset == 4096
    assert (tmp_path / "log" / f"{0:020d}").read_bytes()[-8:].hex() == "00000008cbd43194"
