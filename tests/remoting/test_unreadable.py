"""Pulls over messages that cannot be read: consumers continue as with a broker, and the operator is informed."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.wings.serve.remoting.commands import ResponseCode, request
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.traffic import is_audited
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, messages, serving

Golden = Callable[[str], GoldenStore]
TOPIC = "TopicA"
LOST = range(140, 176)


@pytest.fixture(params=["missing", "zeros"])
def damaged(request: pytest.FixtureRequest, golden: Golden, tmp_path: Path) -> Path:
    """Return a store whose CommitLog file in the middle is missing, or has only zeros."""
    copy_store(golden("basic").path, tmp_path / "store")
    log = tmp_path / "store" / "commitlog" / f"{262_144:020}"
    if request.param == "missing":
        log.unlink()
    else:
        log.write_bytes(bytes(log.stat().st_size))
    return tmp_path / "store"


def pulled(client: Client, begin: int, group: str = "g") -> tuple[int, list[int], int]:
    """Pull once; return the code, the queue offsets of the messages, and the next queue offset."""
    answer = client.pull(TOPIC, 0, begin, consumerGroup=group)
    offsets = [each.queue_offset for each in messages(answer.body)] if answer.body else []
    return answer.code, offsets, int(answer.fields.get("nextBeginOffset", -1))


def test_without_exact_a_consumer_passes_the_range_and_the_operator_gets_one_line(
    damaged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "reput.serve")
    with serving(damaged) as running, Client(running.address) as client:
        for begin in LOST.start, LOST.start, LOST.start + 7:
            code, offsets, after = pulled(client, begin)
            assert (code, offsets[0]) == (ResponseCode.SUCCESS, LOST.stop)
            assert after == LOST.stop + len(offsets)
        (store,) = running.service.stores().values()
        (met,) = store.unreadable.ranges()
        assert (met.topic, met.queue_id, store.unreadable.count) == (TOPIC, 0, 1)
        assert (met.begin, met.end) == (LOST.start, LOST.stop)
    lines = [each.getMessage() for each in caplog.records if "cannot be read" in each.getMessage()]
    assert len(lines) == 1
    assert f"{TOPIC}/0: queue offsets 140 to 175 cannot be read" in lines[0]


def test_with_exact_each_group_gets_one_error_that_names_the_range(damaged: Path) -> None:
    with serving(damaged, most_exact=100) as running, Client(running.address) as client:
        code, offsets, after = pulled(client, LOST.start - 1)
        assert (code, offsets, after) == (ResponseCode.SUCCESS, [LOST.start - 1], LOST.start)
        for group in "one", "other":
            answer = client.pull(TOPIC, 0, LOST.start, consumerGroup=group)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "queue offsets 140 to 175 cannot be read" in (answer.remark or "")
            assert "the next pull continues at 176" in (answer.remark or "")
            code, offsets, _ = pulled(client, LOST.start, group)
            assert (code, offsets[0]) == (ResponseCode.SUCCESS, LOST.stop)


def test_a_failed_pull_gets_an_audit_record() -> None:
    pull = request(RequestCode.PULL_MESSAGE, {})
    for code, audited in (
        (ResponseCode.SYSTEM_ERROR, True), (ResponseCode.PULL_NOT_FOUND, False),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, False),
    ):  # fmt: skip
        assert is_audited(pull, pull.answer(code)) == audited


def test_a_queue_without_its_first_file_is_served_from_its_first_entry(
    golden: Golden, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy_store(golden("basic").path, tmp_path / "store")
    first = min((tmp_path / "store" / "consumequeue" / TOPIC / "0").iterdir())
    first.unlink()
    asked = {"topic": TOPIC, "queueId": 0}
    with serving(tmp_path / "store") as running, Client(running.address) as client:
        least = int(client.ask(RequestCode.GET_MIN_OFFSET, asked).fields["offset"])
        assert least > 0
        code, _, after = pulled(client, 0)
        assert (code, after) == (ResponseCode.PULL_OFFSET_MOVED, least)
        assert pulled(client, least)[1][0] == least
    with serving(tmp_path / "store", most_exact=9) as running, Client(running.address) as client:
        assert client.ask(RequestCode.GET_MIN_OFFSET, asked).code == ResponseCode.SYSTEM_ERROR
        assert pulled(client, 0)[0] == ResponseCode.SYSTEM_ERROR
        assert pulled(client, 0)[::2] == (ResponseCode.PULL_OFFSET_MOVED, least)
    assert len([each for each in caplog.records if "earlier message" in each.getMessage()]) == 2
