"""Queries by key over stores of RocketMQ 5.3.3: the answers of the broker's own classes, and every message."""

from collections.abc import Callable

import pytest

import reput
from reput.errors import UsageError
from tests.golden.stores import GoldenStore
from tests.query.stores import expected_offsets, keyed_messages, offsets
from tests.slow import IS_THOROUGH

Golden = Callable[[str], GoldenStore]
READ = ["five_batch", "five_ext", "five_multipath", "five_dledger", "five_rocksdb"]
OTHERS = ["five_default", "five_crc", "five_timer", "five_compaction", "five_tiered"]
STORES = READ + [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]


@pytest.mark.every_case
@pytest.mark.parametrize("name", STORES)
def test_queries_are_answered_as_recorded_and_completely(golden: Golden, name: str) -> None:
    store = golden(name)
    keyed = keyed_messages(store.messages)
    step = 1 if IS_THOROUGH else 40
    with reput.open_store(
        store.path, hash_slots=store.hash_slots, index_items=store.index_items
    ) as opened:
        for query, answer in list(zip(store.queries, store.answers, strict=True))[::step]:
            arguments = query.topic, query.key, query.max_num, query.begin, query.end
            if answer.error is not None:
                with pytest.raises(UsageError):
                    opened.query_offset(*arguments)
                continue
            assert opened.query_offset(*arguments).physical_offsets == answer.query_offset
            assert opened.query_message(*arguments).physical_offsets == answer.query_message
            exact = opened.query(query.topic, query.key, query.begin, query.end)
            assert exact.is_complete
            assert offsets(exact) == expected_offsets(
                keyed, query.topic, query.key, query.begin, query.end
            )
