"""No request blocks the event loop: each callback takes at most 20 ms of its thread's processor time.

Processor time also grows on a busy machine, whose caches others use. So these tests are not part of `make test`.
"""

import asyncio
import gc
import json
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reput import Message, open_store
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.handling import Later
from reput.wings.serve.remoting.pulling import Pulling, _Pull, _Waiting
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session
from tests.remoting.client import Client, Serving, serving
from tests.small import SMALL
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
MOST_S = 0.020
LIMITS = Limits()
LONG_TOPIC = "t" * 127


class Measured:
    """Finds the callback in event loops of other threads that takes the most processor time."""

    def __init__(self) -> None:
        self.longest = (0.0, "nothing")
        self._main = threading.get_ident()

    def measure(self, run: Any) -> Any:
        def measured(handle: Any) -> None:
            begun = time.thread_time()
            run(handle)
            took = time.thread_time() - begun
            if took > self.longest[0] and threading.get_ident() != self._main:
                self.longest = took, repr(handle)

        return measured

    def take(self) -> tuple[float, str]:
        longest, self.longest = self.longest, (0.0, "nothing")
        return longest


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    found = Measured()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.events.Handle, "_run", found.measure(asyncio.events.Handle._run))
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, measured: Measured) -> Iterator[Serving]:
    """A store with many topics, groups and offsets."""
    path = tmp_path_factory.mktemp("loop") / "s"
    with open_store(path, mode="rw", config=SMALL) as store:
        store.put_many(
            Message("T", b"x" * 100, queue_id=n % 8, keys=["k"], tags="a") for n in range(8_000)
        )
    topics = {
        name: {"topicName": name, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
        for name in ("T", *(f"topic-{n}" for n in range(10_000)))
    }
    offsets = {
        f"topic-{n}@group-{m}": {str(q): q for q in range(8)}
        for n in range(2_000)
        for m in range(20)
    }
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    with serving(path, sends=True) as running:
        with Client(running.address) as client:
            for _ in range(3):  # compiling and opening happen once, and are not measured
                client.query("T", "k")
                client.pull("T", 0, 0)
                client.put("T", b"x", {"KEYS": "k"})
        gc.collect()
        gc.freeze()  # as `reput serve` does after its start
        yield running
    gc.unfreeze()


def batch(size: int) -> bytes:
    one = struct.pack(">iiiii", 22, 0, 0, 0, 0) + struct.pack(">h", 0)
    return one * (size // len(one))


def beat(groups: int, topics: int) -> bytes:
    wanted = [{"topic": f"{LONG_TOPIC[:100]}{n}", "subString": "*"} for n in range(topics)]
    consumers = [
        {"groupName": f"{'g' * 60}{n}", "subscriptionDataSet": wanted} for n in range(groups)
    ]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


def locks(count: int) -> bytes:
    queues = [{"topic": "T", "brokerName": "s", "queueId": n} for n in range(count)]
    return json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()


PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1 << 30, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
}  # fmt: skip
SEND = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0}
QUERY = {"topic": "T", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 60}
END = {"commitLogOffset": 0, "tranStateTableOffset": 0, "producerGroup": "p", "commitOrRollback": 8}
PLACE = {"topic": "T", "queueId": 0, "consumerGroup": "group-1", "group": "group-1"}
CASES: list[tuple[int, dict[str, Any], bytes]] = [
    (RequestCode.PULL_MESSAGE, PULL, b""),
    (RequestCode.PULL_MESSAGE, {**PULL, "subscription": "||".join(f"t{n}" for n in range(2_000))}, b""),
    (RequestCode.PULL_MESSAGE, {**PULL, "subscription": "x||" * 80_000}, b""),
    (RequestCode.PULL_MESSAGE, {**PULL, "queueOffset": 1_000}, b""),
    (RequestCode.QUERY_MESSAGE, QUERY, b""),
    (RequestCode.SEND_MESSAGE_V2, SEND, bytes(256 << 10)),
    (RequestCode.SEND_MESSAGE_V2, SEND, bytes(4 << 20)),
    (RequestCode.SEND_MESSAGE_V2, SEND, bytes(15 << 20)),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "b": "new"}, b"x"),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "\2".join(f"k{n}\1v" for n in range(4_000))}, b"x"),
    (RequestCode.SEND_BATCH_MESSAGE, SEND, batch(4 << 20)),
    (RequestCode.SEND_BATCH_MESSAGE, SEND, batch(200 << 10)),
    (RequestCode.SEND_BATCH_MESSAGE, SEND, batch(4 << 10)),
    (RequestCode.HEART_BEAT, {}, beat(250, 4)),
    (RequestCode.HEART_BEAT, {}, beat(1, 1_000)),
    (RequestCode.HEART_BEAT, {}, beat(5_000, 0)),
    (RequestCode.HEART_BEAT, {}, b'"' + b'\\"' * (100 << 10)),
    (RequestCode.HEART_BEAT, {}, b"[" + b"{}," * (80 << 10) + b"{}]"),
    (RequestCode.LOCK_BATCH_MQ, {}, locks(LIMITS.locked_queues)),
    (RequestCode.LOCK_BATCH_MQ, {}, locks(4_000)),
    (RequestCode.UNLOCK_BATCH_MQ, {}, locks(LIMITS.locked_queues)),
    (RequestCode.GET_ALL_TOPIC_CONFIG, {}, b""),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, {}, b""),
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, b""),
    (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "reput"}, b""),
    (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "group-1"}, b""),
    (RequestCode.GET_TOPIC_STATS_INFO, PLACE, b""),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, PLACE, b""),
    (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, PLACE, b""),
    (RequestCode.QUERY_CONSUME_QUEUE, {**PLACE, "index": 0, "count": 1 << 30}, b""),
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**PLACE, "timestamp": 1}, b""),
    (RequestCode.GET_MAX_OFFSET, PLACE, b""),
    (RequestCode.GET_EARLIEST_MSG_STORETIME, PLACE, b""),
    (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}, b""),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, PLACE, b""),
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, PLACE, b""),
    (RequestCode.UPDATE_CONSUMER_OFFSET, {**PLACE, "commitOffset": 1}, b""),
    (RequestCode.QUERY_CONSUMER_OFFSET, PLACE, b""),
    (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "g", "offset": 0, "delayLevel": 1}, b""),
    (RequestCode.END_TRANSACTION, END, b""),
    (RequestCode.GET_BROKER_RUNTIME_INFO, {}, b""),
    (RequestCode.UNREGISTER_CLIENT, PLACE, b""),
]  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("code", "fields", "body"), CASES, ids=[f"{n}-{code}" for n, (code, _, _) in enumerate(CASES)]
)
def test_no_request_holds_the_loop(
    server: Serving, measured: Measured, code: int, fields: dict[str, Any], body: bytes
) -> None:
    measured.take()
    with Client(server.address) as client:
        try:
            client.ask(code, fields, body)
        except ConnectionError:  # the server closes the connection if the header is too long
            assert len(str(fields)) > LIMITS.header_bytes
    took, what = measured.take()
    assert took < MOST_S, what


def test_the_measure_sees_what_holds_the_loop(server: Serving, measured: Measured) -> None:
    def hold() -> None:
        end = time.thread_time() + 2 * MOST_S
        while time.thread_time() < end:
            pass

    assert server._loop is not None
    server._loop.call_soon_threadsafe(hold)
    wait_for(lambda: measured.longest[0] >= 2 * MOST_S)


def test_many_requests_in_one_piece_hold_nobody_up(server: Serving, measured: Measured) -> None:
    texts = {name: str(value) for name, value in PLACE.items()}
    request = Session().send(Command(RequestCode.GET_MAX_OFFSET, 1, fields=texts))
    measured.take()
    with Client(server.address) as client:
        for _ in range(10):
            client.send_bytes(request * 1_000)
            for _ in range(1_000):
                assert client.receive().code == 0
    took, what = measured.take()
    assert took < MOST_S, what


def test_many_that_wait_are_woken_some_at_a_time(server: Serving, measured: Measured) -> None:
    with Client(server.address) as client:
        client.put("waited", b"x")
        wait_for(lambda: client.pull("waited", 0, 1).fields["maxOffset"] == "1")
        pull = {
            **PULL,
            "topic": "waited",
            "queueOffset": 1,
            "sysFlag": 6,
            "suspendTimeoutMillis": 60_000,
        }
        clients = [Client(server.address) for _ in range(3)]
        for each in clients:
            for _ in range(1_000):
                each.send(RequestCode.PULL_MESSAGE, pull)
        pulling = server.service.served[0].port._pulling
        assert pulling is not None
        wait_for(lambda: pulling._count == 3_000)
        measured.take()
        client.put("waited", b"y")
        for each in clients:
            assert {each.receive().code for _ in range(1_000)} == {0}
            each.__exit__()
    took, what = measured.take()
    assert took < MOST_S, what


def test_a_message_or_reset_for_the_most_pulls_that_may_wait_holds_nobody_up(
    server: Serving, measured: Measured
) -> None:
    broker = server.service.served[0].broker
    assert broker is not None
    pulling, answered = Pulling(broker), 0

    class Patient:
        def run(self, *_: object) -> None:
            nonlocal answered
            answered += 1

    async def wait() -> None:
        peers: list[Any] = [Patient() for _ in range(100)]
        for number in range(LIMITS.waiting):
            request = Command(RequestCode.PULL_MESSAGE, number)
            pull = _Pull(request, "patient", "T", 0, 0, None, None)
            peer = peers[number % len(peers)]
            pulling._remember(_Waiting(pull, peer, request, Later(), number))
            if number % 500 == 0:
                await asyncio.sleep(0)
        for queue_id in range(8):
            broker.offsets.reset("patient", "T", queue_id, 0)
        measured.take()

    async def reset() -> None:
        pulling.reset("patient", "T")

    async def wake_up() -> None:
        pulling.wake_up("T", 0, 1)

    assert server._loop is not None
    gc.collect()
    asyncio.run_coroutine_threadsafe(wait(), server._loop).result()
    asyncio.run_coroutine_threadsafe(reset(), server._loop).result()
    assert pulling._count == LIMITS.waiting - 1
    asyncio.run_coroutine_threadsafe(wake_up(), server._loop).result()
    wait_for(lambda: answered == LIMITS.waiting - 1)
    took, what = measured.take()
    broker.offsets.remove(lambda _, group: group == "patient")
    assert took < MOST_S, what
    assert pulling._count == 0


def test_a_group_of_many_members_is_told_some_at_a_time(
    server: Serving, measured: Measured
) -> None:
    clients = [Client(server.address) for _ in range(300)]
    measured.take()
    body = beat(1, 1)
    for each in clients:
        each.send(RequestCode.HEART_BEAT, {}, body)
    for each in clients:
        assert each.receive().code == 0
    for each in clients:
        each.__exit__()
    wait_for(lambda: not server.service.server.connections)
    took, what = measured.take()
    assert took < MOST_S, what
