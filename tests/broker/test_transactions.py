"""Decisions about half messages, in the forms in which brokers of 4.9 and 5.x write them."""

from pathlib import Path

import pytest

from reput import Message, open_store
from reput.base.clock import now_ms
from reput.format.properties import HALF_TOPIC, OP_TOPIC
from reput.wings.serve.broker.offsets import ConsumerOffsets
from reput.wings.serve.broker.transactions import Transactions
from tests.small import SMALL


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("bodies", "open_offsets"),
    [
        ([b"1"], [0, 2, 3]),
        ([b"0,2"], [1, 3]),
        ([b"9" * 5_000, b"3"], [0, 1, 2]),
    ],
    ids=["4.9", "5.x", "forged"],
)
def test_decided_messages_are_not_asked_about(
    tmp_path: Path, bodies: list[bytes], open_offsets: list[int]
) -> None:
    with open_store(tmp_path / "s", "rw", config=SMALL) as store:
        for number in range(4):
            store.put(Message(HALF_TOPIC, b"%d" % number, queue_id=0))
        for body in bodies:
            store.put(Message(OP_TOPIC, body, tags="d", queue_id=0))
    with open_store(tmp_path / "s", "rw", config=SMALL) as store:  # All of them are dispatched.
        later = now_ms() + 3_600_000
        offsets = ConsumerOffsets(tmp_path / "s", is_writable=False)
        found = Transactions(store, offsets, lambda: later).to_check()
        assert [message.queue_offset for message in found] == open_offsets
