"""The checkpoint file."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.format.checkpoint import (
    CHECKPOINT_BYTES,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from reput.testing.strategies import int64
from tests.golden.stores import EVERY_FIVE, SHIPPED, GoldenStore

Golden = Callable[[str], GoldenStore]


@given(st.builds(Checkpoint, int64, int64, int64, int64, int64))
def test_checkpoints_come_back(checkpoint: Checkpoint) -> None:
    data = encode_checkpoint(checkpoint)
    assert len(data) == CHECKPOINT_BYTES
    assert decode_checkpoint(data) == checkpoint
    assert not any(data[40:])


@pytest.mark.parametrize("length", [0, 1, 23])
def test_three_longs_must_be_there(length: int) -> None:
    with pytest.raises(ValueError, match=f"4096 bytes, not {length}"):
        decode_checkpoint(bytes(length))


def test_a_checkpoint_of_three_longs_has_no_more() -> None:
    assert decode_checkpoint(encode_checkpoint(Checkpoint(1, 2, 3, 4, 5))[:24]) == (1, 2, 3, 0, 0)


@pytest.mark.parametrize("name", EVERY_FIVE)
def test_a_checkpoint_of_5_comes_back_to_the_byte(golden: Golden, name: str) -> None:
    data = (golden(name).path / "checkpoint").read_bytes()
    assert encode_checkpoint(decode_checkpoint(data)) == data


@pytest.mark.parametrize("name", SHIPPED)
def test_the_brokers_checkpoint_comes_back_to_the_byte(golden: Golden, name: str) -> None:
    store = golden(name)
    data = (store.path / "checkpoint").read_bytes()
    checkpoint = decode_checkpoint(data)
    assert encode_checkpoint(checkpoint) == data
    # The checkpoint has the time of the last message with a queue entry. Half and rolled-back messages have none.
    queued = [row for row in store.messages if row.sys_flag & 4 == 0]
    assert checkpoint.logics_msg_timestamp == queued[-1].store_timestamp
