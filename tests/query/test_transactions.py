"""Half messages that no op message decides."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.cli.main import FOUND, NOT_FOUND
from reput.query.transactions import decided_by, open_transactions
from tests.cli.running import reput as run
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, forge_log
from tests.query.stores import build_store

Golden = Callable[[str], GoldenStore]
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def test_undecided_half_messages_of_a_broker_are_those_that_no_body_lists(golden: Golden) -> None:
    store = golden("five_rocksdb")
    with reput.open_store(store.path) as opened:
        listed = {
            number
            for row in store.messages
            if row.topic == OP
            for number in opened.get(row.physical_offset).body.decode().split(",")
        }
        expected = [
            row.physical_offset
            for row in store.messages
            if row.topic == HALF and str(row.queue_offset) not in listed
        ]
        found = list(open_transactions(opened))
    assert [one.message.physical_offset for one in found] == sorted(expected)
    assert 0 < len(found) < 105
    ran = run("transactions", store.path, "--json")
    assert ran.code == FOUND
    assert [json.loads(line)["physical_offset"] for line in ran.lines] == sorted(expected)
    assert len(run("transactions", store.path).lines) == len(expected) + 1


def test_one_number_without_a_comma_decides_as_in_4_9(tmp_path: Path) -> None:
    records = [
        *(RecordFields(topic=HALF, queue_id=0, queue_offset=n, body=b"half") for n in range(4)),
        RecordFields(topic=OP, queue_id=0, queue_offset=0, body=b"1"),
        RecordFields(topic=OP, queue_id=0, queue_offset=1, body=b"3"),
    ]
    store = build_store(tmp_path / "store", forge_log(records, file_bytes=4096).files(), 50, 900)
    with reput.open_store(store) as opened:
        assert [one.message.queue_offset for one in open_transactions(opened)] == [0, 2]


def test_without_half_messages_nothing_is_found(golden: Golden) -> None:
    ran = run("transactions", golden("basic").path)
    assert (ran.code, ran.out) == (NOT_FOUND, "No open transaction.\n")


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"12", [12]), (b"1,2,", [1, 2]), (b"", []), (b"x,-1,3", [3]), (b"9" * 30, [])],
)
def test_bodies_of_op_messages(golden: Golden, body: bytes, offsets: list[int]) -> None:
    with reput.open_store(golden("basic").path) as opened:
        message = replace(opened.get(0), body=body)
    assert list(decided_by(message)) == offsets
