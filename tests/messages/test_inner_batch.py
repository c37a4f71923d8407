"""Inner batches: the messages of one record."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.core.query.inner_batch import is_inner_batch
from reput.errors import CorruptMessageError
from reput.format.commit_log import MessageExt
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def batches(golden: Golden) -> list[tuple[MessageExt, int]]:
    """Return the inner batches of the store, and the number of messages that the broker counted in each."""
    store = golden("five_batch")
    with reput.open_store(store.path) as opened:
        found = [(opened.get(row.physical_offset), row.batch_size) for row in store.messages]
    assert [is_inner_batch(message) for message, _ in found] == [
        bool(row.sys_flag & 128) for row in store.messages
    ]
    return [(message, size) for message, size in found if is_inner_batch(message)]


def test_every_batch_has_as_many_messages_as_the_broker_counts(
    batches: list[tuple[MessageExt, int]],
) -> None:
    assert len(batches) == 560
    for message, size in batches:
        inner = reput.reports.unwrap(message)
        assert len(inner) == size
        first = message.queue_offset
        assert [one.queue_offset for one in inner] == [*range(first, first + size)]
        assert {(one.topic, one.queue_id, one.physical_offset) for one in inner} == {
            (message.topic, message.queue_id, message.physical_offset)
        }
        assert not any(is_inner_batch(one) for one in inner)
        assert all(one.body_crc_ok and reput.reports.unwrap(one) == (one,) for one in inner)
        assert sum(20 + len(one.body) + 2 + len(one.properties_bytes) for one in inner) == len(
            message.body
        )


def test_inner_messages_have_properties_of_their_own(
    batches: list[tuple[MessageExt, int]],
) -> None:
    properties = [one.properties for message, _ in batches for one in reput.reports.unwrap(message)]
    assert all("INNER_NUM" not in one for one in properties)
    assert len({one.get("UNIQ_KEY") for one in properties}) > 1000


@given(data=st.data())
def test_a_damaged_batch_is_one_error_or_some_messages(
    batches: list[tuple[MessageExt, int]], data: st.DataObject
) -> None:
    message, _ = batches[data.draw(st.integers(0, 20))]
    body = bytearray(message.body)
    at = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        del body[at:]
    else:
        body[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = replace(message, body=bytes(body))
    try:
        inner = reput.reports.unwrap(damaged)
    except CorruptMessageError as error:
        assert "an inner batch" in str(error)  # noqa: PT017
    else:
        assert sum(22 + len(one.body) + len(one.properties_bytes) for one in inner) == len(body)
