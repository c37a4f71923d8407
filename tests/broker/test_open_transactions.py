"""Half messages that no op message decides."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.cli.main import FOUND, NOT_FOUND
from reput.format.transactions import decided_offsets
from reput.wings.serve.broker.open_transactions import open_transactions
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.golden.tables import read_named
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
    ran = run("state", "transactions", store.path, "--format", "jsonl")
    assert ran.code == FOUND
    assert [json.loads(line)["physical_offset"] for line in ran.lines] == sorted(expected)
    assert len(run("state", "transactions", store.path).lines) == len(expected) + 1


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
    ran = run("state", "transactions", golden("basic").path)
    assert (ran.code, ran.out) == (NOT_FOUND, "No open transaction.\n")


def test_the_open_transactions_of_a_broker_are_those_of_its_table(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("five_life")
    rows = [row for row in read_named(store.root / "transactions.tsv") if row["state"] == "open"]
    expected = [
        (row["msgId"], row["keys"], int(row["halfQueueOffsets"].split(",")[-1])) for row in rows
    ]
    assert len(expected) == 23
    alone = copy_store(store.path, tmp_path / "alone")
    shutil.rmtree(alone / "config")
    # `alone` has no committed offset. The newest copy of each half message shows the same without it.
    for path in (store.path, alone):
        with reput.open_store(path) as opened:
            found = [one.message for one in open_transactions(opened)]
        assert sorted(
            (str(one.unique_key), " ".join(one.keys), one.queue_offset) for one in found
        ) == sorted(expected)
    ran = run("state", "transactions", store.path, "--format", "jsonl")
    assert len(ran.lines) == 23


def halves(*times: int | None, key: str = "A") -> list[RecordFields]:
    """Half messages of one unique key, with the numbers of checks that their copies have."""
    return [
        RecordFields(
            topic=HALF, queue_id=0, queue_offset=number, body=b"half",
            properties=f"UNIQ_KEY\x01{key}\x02"
            + ("" if checks is None else f"TRANSACTION_CHECK_TIMES\x01{checks}\x02"),
        )
        for number, checks in enumerate(times)
    ]  # fmt: skip


def op(body: bytes) -> RecordFields:
    return RecordFields(topic=OP, queue_id=0, queue_offset=0, body=body)


@pytest.mark.parametrize(
    ("records", "committed", "expected"),
    [
        (halves(None, 1, 2), None, [2]),
        ([*halves(None, 1, 2), op(b"2")], None, []),
        ([*halves(None, 1, 2), op(b"0")], None, [2]),
        (halves(None, None), None, [0, 1]),  # sent twice with one id: both are open
        (halves(None, None, 1, 1), None, [2, 3]),
        (halves(None, None), 1, [1]),
        (halves(None, None), 2, []),
        (halves(None, None), 3, [0, 1]),  # the committed offset of this queue is unknown
    ],
)
def test_the_newest_copy_is_open(
    tmp_path: Path, records: list[RecordFields], committed: int | None, expected: list[int]
) -> None:
    store = build_store(tmp_path / "store", forge_log(records, file_bytes=4096).files(), 50, 900)
    if committed is not None:
        (store / "config").mkdir()
        (store / "config" / "consumerOffset.json").write_text(
            f'{{"offsetTable":{{"{HALF}@CID_RMQ_SYS_TRANS":{{0:{committed}}}}}}}'
        )
    with reput.open_store(store) as opened:
        assert [one.message.queue_offset for one in open_transactions(opened)] == expected


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"12", [12]), (b"1,2,", [1, 2]), (b"", []), (b"x,-1,3", [3]), (b"9" * 30, [])],
)
def test_bodies_of_op_messages(body: bytes, offsets: list[int]) -> None:
    assert list(decided_offsets(body)) == offsets
