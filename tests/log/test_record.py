"""Further queues of a message, compared with the oracle's dispatch."""

import pytest

from reput.core.log.record import further_queues
from tests.oracle.consume_queue import multi_dispatch
from tests.oracle.forge import RecordFields, encode_record
from tests.oracle.records import Record, decode


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("names", "offsets"),
    [
        ("%LMQ%a,b", "3,4"),
        ("%LMQ%a,b", "3"),
        ("%LMQ%a", "3,4"),
        ("%LMQ%a,b,", "3,4"),
        ("%LMQ%a,b,c", "3,x,5"),
        ("a,b", "+3,00004"),
        ("a", "9223372036854775808"),
    ],
)
def test_further_queues_are_the_oracles(names: str, offsets: str) -> None:
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    data = encode_record(RecordFields(topic="T", queue_id=7, properties=properties))
    record = decode(data, 0, len(data))
    assert isinstance(record, Record)
    assert list(further_queues(properties, 7)) == multi_dispatch(record, enable_lmq=True)
