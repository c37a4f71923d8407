"""The reasons that a trace gives for late, repeated and missing messages: each in stores with and without its cause."""

from pathlib import Path
from typing import Any

import pytest

from reput.wings.inspect.tracing.life import Life, ReasonKind, Role
from tests.inspect.stories import BEGIN_MS, KEY, Story, kinds, the_reason, traced

TIMER = "rmq_sys_wheel_timer"
SCHEDULE, HALF, OP = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # fmt: skip
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT = 8
LEVEL_3: dict[str, Any] = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}  # a delay of 10 s
OF_HALF: dict[str, Any] = {
    "REAL_TOPIC": "orders",
    "REAL_QID": "0",
    "TRAN_MSG": "true",
    "PGROUP": "pg",
}


@pytest.fixture
def story() -> Story:
    return Story()


def told(story: Story, path: Path) -> Life:
    return traced(story.store(path / "s"))


def test_nothing_to_say(story: Story, tmp_path: Path) -> None:
    story.put("orders", 999)
    story.put("orders", 999, unique_key="U2", body=b"another")
    assert kinds(told(story, tmp_path)) == []


def test_stored_late(story: Story, tmp_path: Path) -> None:
    story.put("orders", 4_200)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.STORED_LATE]
    assert "stored it 4.2 s after its sender created it" in found.reasons[0].text
    assert found.reasons[0].events == (0,)


def test_delayed_and_delivered(story: Story, tmp_path: Path) -> None:
    story.put(SCHEDULE, queue_id=2, **LEVEL_3)
    story.put("orders", 10_400, **LEVEL_3)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.DELAYED]
    assert "level 3: delivered to orders 10.4 s after" in found.reasons[0].text


def test_delivered_late_and_twice(story: Story, tmp_path: Path) -> None:
    story.put(SCHEDULE, queue_id=2, **LEVEL_3)
    story.put("orders", 15_000, **LEVEL_3)
    story.put("orders", 19_000, **LEVEL_3)
    found = told(story, tmp_path)
    assert kinds(found) == [
        ReasonKind.DELAYED,
        ReasonKind.DELIVERED_LATE,
        ReasonKind.DELIVERED_TWICE,
    ]
    assert "orders 5.0 s after it was due" in the_reason(found, ReasonKind.DELIVERED_LATE).text
    assert the_reason(found, ReasonKind.DELIVERED_TWICE).events == (0, 1, 2)


TIMED: dict[str, Any] = {
    "TIMER_OUT_MS": str(BEGIN_MS + 5_000), "REAL_TOPIC": "orders", "REAL_QID": "0",
}  # fmt: skip


def test_a_timer_delivers(story: Story, tmp_path: Path) -> None:
    story.put(TIMER, **TIMED)
    # The timer delivers a message when its slot of the timer wheel has passed, so somewhat late.
    story.put("orders", 6_900, **TIMED)
    found = told(story, tmp_path)
    assert [event.role for event in found.events] == [Role.TIMER, Role.MESSAGE]
    assert [event.due_ms for event in found.events] == [BEGIN_MS + 5_000, None]
    assert [event.is_queued for event in found.events] == [None, True]
    assert kinds(found) == [ReasonKind.DELAYED]
    assert "by the timer: delivered to orders 6.9 s after" in found.reasons[0].text


def test_a_timer_delivers_late_and_twice_after_it_was_rolled(story: Story, tmp_path: Path) -> None:
    story.put(TIMER, **TIMED)
    story.put(TIMER, 2_000, **TIMED, TIMER_ROLL_TIMES="1")
    story.put("orders", 15_000, **TIMED)
    story.put("orders", 19_000, **TIMED)
    found = told(story, tmp_path)
    assert kinds(found) == [
        ReasonKind.DELAYED,
        ReasonKind.DELIVERED_LATE,
        ReasonKind.DELIVERED_TWICE,
    ]
    assert the_reason(found, ReasonKind.DELIVERED_TWICE).events == (1, 2, 3)


RECALL: dict[str, Any] = {**TIMED, "TIMER_DEL_UNIQKEY": "orders+U1"}


def test_a_recalled_message_is_never_delivered(story: Story, tmp_path: Path) -> None:
    story.put(TIMER, **TIMED)
    story.put(TIMER, 1_000, **RECALL)
    found = told(story, tmp_path)
    assert [event.role for event in found.events] == [Role.TIMER, Role.RECALL]
    assert kinds(found) == [ReasonKind.RECALLED]
    assert "Never delivered to orders" in found.reasons[0].text
    assert "was recalled 1.0 s after" in found.reasons[0].text
    assert found.reasons[0].events == (0, 1)


def test_a_recall_that_came_too_late_or_of_another_message(story: Story, tmp_path: Path) -> None:
    story.put(TIMER, **TIMED)
    # A recall has no effect unless its time is in the same second as the message's delivery time.
    story.put(TIMER, 1_000, **{**RECALL, "TIMER_OUT_MS": "1"})
    story.put(TIMER, 1_000, **{**RECALL, "TIMER_DEL_UNIQKEY": "orders+U9"})
    story.put("orders", 6_900, **TIMED)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.DELAYED, ReasonKind.RECALLED, ReasonKind.RECALLED]
    assert "is a recall of orders+U9" in found.reasons[2].text


@pytest.mark.parametrize(
    ("topic", "times", "group", "why"),
    [
        ("%RETRY%g_pop_orders", {"1ST_POP_TIME": "1"}, "g_pop", "failed to acknowledge it 1 time"),
        ("%RETRY%g_pop+orders", {"1ST_POP_TIME": "1"}, "g_pop", "failed to acknowledge it 1 time"),
        ("%RETRY%g_orders", {}, "g_orders", "sent it back 1 time"),
    ],
)
def test_the_group_of_a_retry(
    story: Story, tmp_path: Path, topic: str, times: dict[str, Any], group: str, why: str
) -> None:
    story.put("orders")
    story.put(topic, 2_000, times=1, **times)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.RETRIED]
    assert f"Consumer group {group} got it again: it {why}" in found.reasons[0].text


@pytest.mark.parametrize(
    ("end_ms", "kind"), [(4_999, ReasonKind.NOT_DUE_YET), (70_000, ReasonKind.OVERDUE)]
)
def test_a_timer_has_not_delivered(
    story: Story, tmp_path: Path, end_ms: int, kind: ReasonKind
) -> None:
    story.put(TIMER, **TIMED)
    story.put(TIMER, unique_key="U2", key="x", **{**TIMED, "TIMER_OUT_MS": "soon"})
    story.put("other", end_ms, unique_key="X", key="x")
    assert kinds(told(story, tmp_path)) == [kind]
    # The trace gives no reason for a message without a valid delivery time.
    assert kinds(traced(tmp_path / "s", message_id="U2")) == []


def test_not_due_yet(story: Story, tmp_path: Path) -> None:
    story.put(SCHEDULE, queue_id=2, **LEVEL_3)
    story.put("other", 9_999, unique_key="X", key="x")
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.NOT_DUE_YET]
    assert "due at 2023-11-14T22:13:30Z" in found.reasons[0].text


def test_overdue(story: Story, tmp_path: Path) -> None:
    story.put(SCHEDULE, queue_id=2, **LEVEL_3)
    story.put("other", 70_000, unique_key="X", key="x")
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.OVERDUE]
    assert "1 min 0 s before the end of the store" in found.reasons[0].text


def test_a_blocked_level(story: Story, tmp_path: Path) -> None:
    story.put(SCHEDULE, queue_id=2, DELAY="3")
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.BLOCKED_LEVEL]
    assert "nor later messages at delay level 3" in found.reasons[0].text


def test_retries_with_their_delays(story: Story, tmp_path: Path) -> None:
    """A broker writes retries to the schedule topic, then to the retry topic, and keeps the unique key."""
    story.put("orders")
    for number, at_ms in ((1, 5_000), (2, 30_000)):
        of_retry: dict[str, Any] = {
            "DELAY": str(2 + number),
            "REAL_TOPIC": "%RETRY%g",
            "REAL_QID": "0",
        }
        story.put(SCHEDULE, at_ms, queue_id=1 + number, times=number, **of_retry)
        story.put("%RETRY%g", at_ms + 10_000 * number * number, times=number, **of_retry)
    found = told(story, tmp_path)
    assert ReasonKind.DELIVERED_TWICE not in kinds(found)
    retried = the_reason(found, ReasonKind.RETRIED)
    assert "group g got it again: it sent it back 2 times" in retried.text
    assert retried.events == (2, 4)
    assert [kind for kind in kinds(found) if kind is ReasonKind.DELAYED] == [ReasonKind.DELAYED] * 2
    assert "10.0 s after it was due" in the_reason(found, ReasonKind.DELIVERED_LATE).text


def test_missing_retries(story: Story, tmp_path: Path) -> None:
    story.put("orders")
    story.put("%RETRY%g", 5_000, times=4)
    story.put("%RETRY%h", 6_000, times=1)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.RETRIED, ReasonKind.RETRY_MISSING, ReasonKind.RETRIED]
    assert "Retries 1 to 3 of group g are not" in the_reason(found, ReasonKind.RETRY_MISSING).text


def test_retries_that_a_dead_letter_states_are_missing(story: Story, tmp_path: Path) -> None:
    """The dead letter after the last retry has the number of this retry + 1."""
    story.put("orders")
    for number in (1, 2, 4):
        story.put("%RETRY%g", 1_000 * number, times=number)
    story.put("%DLQ%g", 9_000, times=16)
    story.put("%RETRY%h", 9_500, times=1)
    story.put("%DLQ%h", 10_000, times=2)
    found = told(story, tmp_path)
    retried, missing, of_h, *ended = found.reasons
    assert "it sent it back 16 times. The last retry in the store is of 2023-11-14T22:13:24Z" in (
        retried.text
    )
    assert missing.text.startswith("Retries 3, 5 to 15 of group g are not in the store: ")
    assert missing.events == (1, 2, 3, 4)
    assert "group h got it again: it sent it back 2 times" in of_h.text
    assert [one.kind for one in ended] == [ReasonKind.DEAD_LETTER] * 2


def test_a_record_may_state_any_number_of_retries(story: Story, tmp_path: Path) -> None:
    story.put("orders")
    story.put("%RETRY%g", 1_000, times=-3)
    story.put("%RETRY%g", 2_000, times=(1 << 31) - 1)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.RETRIED, ReasonKind.RETRY_MISSING]
    assert "Retries 1 to 2147483646 of group g" in found.reasons[1].text


def test_a_dead_letter(story: Story, tmp_path: Path) -> None:
    story.put("orders")
    story.put("%DLQ%g", 5_000, times=16)
    story.put("%DLQ%h", 6_000, times=1)
    found = told(story, tmp_path)
    missing, ended, _ = found.reasons
    assert kinds(found) == [ReasonKind.RETRY_MISSING, *[ReasonKind.DEAD_LETTER] * 2]
    assert missing.text.startswith("Retries 1 to 15 of group g are not in the store")
    assert "gave it up after sending it back 16 times at 2023-11-14T22:13:25Z" in ended.text


def test_sent_twice(story: Story, tmp_path: Path) -> None:
    story.put("orders")
    story.put("orders", 3_000, queue_id=1)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.SENT_TWICE]
    assert "orders has it 2 times, 3.0 s apart" in found.reasons[0].text


def test_two_messages_with_one_body(story: Story, tmp_path: Path) -> None:
    story.put("orders")
    story.put("orders", unique_key="U2")
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.SAME_BODY]
    assert "2 different messages with the same keys and body" in found.reasons[0].text


def half(story: Story, at_ms: int = 0, **properties: Any) -> int:
    return story.put(HALF, at_ms, **OF_HALF, **properties)


def op(story: Story, at_ms: int, *numbers: int) -> int:
    body = ",".join(map(str, numbers)).encode()
    return story.put(OP, at_ms, unique_key="", key="", body=body, TAGS="d")


def test_committed(story: Story, tmp_path: Path) -> None:
    half(story)
    story.put("orders", 2_000, sys_flag=COMMIT, **OF_HALF)
    op(story, 2_001, 0)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.COMMITTED]
    assert "2.0 s after the half message" in found.reasons[0].text
    assert found.reasons[0].events == (0, 1, 2)


def test_committed_with_a_delay(story: Story, tmp_path: Path) -> None:
    half(story)
    story.put(SCHEDULE, 500, queue_id=2, sys_flag=COMMIT, **LEVEL_3)
    op(story, 501, 0)
    assert kinds(told(story, tmp_path)) == [ReasonKind.NOT_DUE_YET, ReasonKind.COMMITTED]


def test_rolled_back(story: Story, tmp_path: Path) -> None:
    half(story)
    op(story, 100, 0)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.ROLLED_BACK]
    assert found.reasons[0].text == "Never delivered to orders: the transaction was rolled back."


def test_undecided_and_checked(story: Story, tmp_path: Path) -> None:
    half(story)
    half(story, 60_000, TRANSACTION_CHECK_TIMES="1")
    half(story, 120_000, TRANSACTION_CHECK_TIMES="2")
    op(story, 120_001, 7)
    found = told(story, tmp_path)
    assert kinds(found) == [ReasonKind.CHECKED, ReasonKind.UNDECIDED]
    assert "asked the producer 2 times" in the_reason(found, ReasonKind.CHECKED).text


def test_discarded(story: Story, tmp_path: Path) -> None:
    half(story, TRANSACTION_CHECK_TIMES="15")
    story.put(DISCARDED, 100, **OF_HALF)
    op(story, 101, 0)
    assert kinds(told(story, tmp_path)) == [ReasonKind.CHECKED, ReasonKind.DISCARDED]


def test_not_queued(story: Story, tmp_path: Path) -> None:
    story.put("orders")
    lost = story.put("orders", 900, unique_key="U2", body=b"another")
    store = story.store(tmp_path / "s")
    queue = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = queue.read_bytes()
    queue.write_bytes(data[:20] + bytes(len(data) - 20))
    found = traced(store)
    assert kinds(found) == [ReasonKind.NOT_QUEUED]
    assert f"No consumer gets the message at {lost}" in found.reasons[0].text
    assert [event.is_queued for event in found.events] == [True, False]


def test_a_damaged_body(story: Story, tmp_path: Path) -> None:
    story.put("orders", body=b"a body that will be damaged")
    store = story.store(tmp_path / "s")
    log = store / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(b"will be damaged", b"has been damage"))
    found = traced(store)
    assert kinds(found) == [ReasonKind.DAMAGED_BODY]


def test_messages_are_told_apart(story: Story, tmp_path: Path) -> None:
    """Retries without an origin belong to the message with their keys; retries with an origin do not."""
    story.put("orders", key=f"{KEY} a")
    story.put("orders", unique_key="U2", key=f"{KEY} b", body=b"another")
    story.put("%RETRY%g", 5_000, unique_key="R1", key=f"{KEY} b", times=1)
    story.put("%RETRY%g", 6_000, unique_key="R2", key=f"{KEY} b", times=1, ORIGIN_MESSAGE_ID="U1")
    found = told(story, tmp_path)
    assert [event.life for event in found.events] == [1, 2, 2, 1]
    assert [reason.events for reason in found.reasons] == [(3,), (2,)]
    assert found.events[0].stored_ms == BEGIN_MS
