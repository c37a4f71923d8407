"""The real topic and queue of a message that is stored in another topic until it is delivered."""

import pytest

from reput.format.real_queue import is_meant_for_another, real_queue

MEANT = [
    ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "orders", "REAL_QID": "3"}, ("orders", 3)),
    ("rmq_sys_wheel_timer", {"REAL_TOPIC": "orders", "REAL_QID": "0"}, ("orders", 0)),
    ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "orders", "REAL_QID": "1"}, ("orders", 1)),
    ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "orders", "REAL_QID": "1"}, ("orders", 1)),
    ("%RETRY%billing", {"RETRY_TOPIC": "orders", "REAL_TOPIC": "other"}, ("orders", None)),
    ("%DLQ%billing", {"RETRY_TOPIC": "orders"}, ("orders", None)),
    # A waiting retry: its next topic is the group's retry topic.
    (
        "SCHEDULE_TOPIC_XXXX",
        {"REAL_TOPIC": "%RETRY%billing", "REAL_QID": "0", "RETRY_TOPIC": "orders"},
        ("orders", None),
    ),
    ("%RETRY%billing+orders", {}, ("orders", None)),
    ("%RETRY%billing_orders", {"1ST_POP_TIME": "1"}, ("orders", None)),
    ("%RETRY%my_billing_orders", {"1ST_POP_TIME": "1"}, (None, None)),
    ("%DLQ%billing", {}, (None, None)),
    ("SCHEDULE_TOPIC_XXXX", {"REAL_QID": "3"}, (None, None)),
    ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "orders", "REAL_QID": "x"}, ("orders", None)),
    ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "orders", "REAL_QID": "9" * 30}, ("orders", None)),
    ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "orders", "REAL_QID": "9" * 5_000}, ("orders", None)),
]


@pytest.mark.parametrize(("topic", "properties", "expected"), MEANT)
def test_the_queue_that_a_message_is_meant_for(
    topic: str, properties: dict[str, str], expected: tuple[str | None, int | None]
) -> None:
    assert is_meant_for_another(topic)
    assert real_queue(topic, properties) == expected


def test_other_topics_hold_their_own_messages() -> None:
    for topic in ("orders", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RETRY", "rmq_sys_TRACE_DATA_1", ""):
        assert not is_meant_for_another(topic)
