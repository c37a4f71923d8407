"""The reading paths of `reput serve` and of the HTTP API, asked in this process, without sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.testclient import TestClient

from reput.engine.writer.shared_store import SharedStore
from reput.format.commit_log import MessageExt
from reput.format.host import Host
from reput.wings.console.app import create_app
from reput.wings.serve.broker.broker import Cluster, ServedBroker
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.handling import InThread, Later
from reput.wings.serve.remoting.port import Port, PortOptions
from reput.wings.serve.remoting.requests import RequestCode
from tests.remoting.client import messages
from tests.truth.answers import Answer, Session, path
from tests.truth.messages import Question

_MOST, _FOREVER = 1000, 1 << 62
_MOST_PULLS = 300
_GONE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)


class _Peer:
    """A client in this process, to which nothing is pushed."""

    address, server_host = Host("127.0.0.1", 50_000), "127.0.0.1"

    def push(self, command: Command) -> None:
        """Ignore a push."""

    def ask(self, command: Command, then: Callable[[Command | None], object]) -> None:
        """Answer as a client that has left."""
        then(None)

    def run(
        self, work: Callable[[], Command], request: Command, then: Callable[[Command], object]
    ) -> None:
        """Run work at once."""
        then(work())


class Served:
    """A store at a port. It shares the readers of the session, so it sees damage to open files."""

    def __init__(self, store: SharedStore, most_exact: int | None) -> None:
        self._port = Port(Cluster(), PortOptions(most_exact=most_exact))
        broker = ServedBroker("broker", store)
        broker.is_exact = most_exact is not None
        self._port.open(broker)

    def ask(self, code: RequestCode, **fields: object) -> Command:
        """Return the answer to a request. Raises what the work of the request raises, as a failed request."""
        from reput.wings.serve.remoting.handling import failed

        request = Command(
            code, 1, 0, None, {name: str(value) for name, value in fields.items()}, b""
        )
        answer = self._port.answer(request, _Peer())
        while isinstance(answer, InThread):
            try:
                done = answer.work()
            except Exception as error:
                return failed(request, error)
            answer = done if answer.then is None else answer.then(done)
        assert not isinstance(answer, Later)
        assert answer is not None
        return answer


def _served(session: Session, is_exact: bool) -> Served:
    kept: dict[bool, Served] = session.__dict__.setdefault("served", {})
    if is_exact not in kept:
        kept[is_exact] = Served(session.shared, _MOST if is_exact else None)
    return kept[is_exact]


def _failed(answer: Command) -> Answer:
    return Answer((), False, f"{answer.code}: {answer.remark}")


def _query(session: Session, asked: Question, is_exact: bool) -> Answer | None:
    if asked.topic is None:
        return None
    answer = _served(session, is_exact).ask(
        RequestCode.QUERY_MESSAGE, topic=asked.topic, key=asked.key, maxNum=64,
        beginTimestamp=asked.begin or 0, endTimestamp=asked.end or _FOREVER,
    )  # fmt: skip
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return Answer((), True, answer.remark or "")
    if answer.code != ResponseCode.SUCCESS:
        return _failed(answer)
    found = messages(answer.body)
    if not is_exact:
        # Like a broker's, this answer may have hash collisions.
        found = [
            one
            for one in found
            if asked.key in (one.unique_key, *one.keys) and one.topic == asked.topic
        ]
    return Answer.of(found)


@path("serve --exact QUERY_MESSAGE", "key")
def query_exact(session: Session, asked: Question) -> Answer | None:
    return _query(session, asked, is_exact=True)


@path("serve QUERY_MESSAGE", "key", is_brokers=True)
def query_broker(session: Session, asked: Question) -> Answer | None:
    return _query(session, asked, is_exact=False)


@path("serve VIEW_MESSAGE_BY_ID", "offset")
def view(session: Session, asked: Question) -> Answer:
    answer = _served(session, True).ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=asked.number)
    return (
        Answer.of(messages(answer.body)) if answer.code == ResponseCode.SUCCESS else _failed(answer)
    )


def _pull(session: Session, asked: Question, is_exact: bool) -> Answer:
    """Pull a queue from its first message to its end, as a new consumer does. After an error, it asks once more."""
    served = _served(session, is_exact)
    place = {"topic": asked.topic, "queueId": asked.queue_id}
    least = served.ask(RequestCode.GET_MIN_OFFSET, **place)
    if least.code != ResponseCode.SUCCESS:
        return _failed(least)
    position, failed_at, found, errors = (
        int(least.fields["offset"]),
        -1,
        list[MessageExt](),
        list[str](),
    )
    group = session.new_path().name
    for _ in range(_MOST_PULLS):
        answer = served.ask(
            RequestCode.PULL_MESSAGE, **place, consumerGroup=group, queueOffset=position, maxMsgNums=9, sysFlag=4,
            commitOffset=0, suspendTimeoutMillis=0, subscription="*", subVersion=0,
        )  # fmt: skip
        if answer.code == ResponseCode.SUCCESS:
            found += messages(answer.body)
        elif answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST):
            break
        elif answer.code not in (
            ResponseCode.PULL_OFFSET_MOVED,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
        ):
            errors.append(f"{answer.code}: {answer.remark}")
            if failed_at == position:
                break
            failed_at = position
            continue
        moved = int(answer.fields["nextBeginOffset"])
        if moved == position:
            break
        position = moved
    return Answer(tuple(found), not errors, "; ".join(errors))


@path("serve --exact PULL_MESSAGE", "queue")
def pull_exact(session: Session, asked: Question) -> Answer:
    return _pull(session, asked, is_exact=True)


@path("serve PULL_MESSAGE", "queue", is_brokers=True)
def pull_broker(session: Session, asked: Question) -> Answer:
    return _pull(session, asked, is_exact=False)


@path("serve --exact SEARCH_OFFSET_BY_TIMESTAMP", "window")
def search_offset(session: Session, asked: Question) -> Answer | None:
    """Return the messages stored since the window's begin that are in the queues from the returned offsets on."""
    if asked.topic is None:
        return None
    assert asked.begin is not None
    assert asked.end is not None
    served, truth = _served(session, True), session.truth
    found: list[int] = []
    for topic, queue_id in [place for place in truth.by_queue if place[0] == asked.topic]:
        answer = served.ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            topic=topic,
            queueId=queue_id,
            timestamp=asked.begin,
        )
        if answer.code != ResponseCode.SUCCESS:
            return _failed(answer)
        low = int(answer.fields["offset"])
        found += [
            one.at
            for number, one in truth.by_queue[topic, queue_id].items()
            if number >= low and asked.begin <= one.time <= asked.end
        ]
    return Answer.of(found)


def client_of(session: Session) -> TestClient:
    if "client" not in session.__dict__:
        client = TestClient(
            create_app({"s": session.shared}), "http://localhost", raise_server_exceptions=False
        )
        client.__enter__()
        session.opened.append(lambda: client.__exit__(None, None, None))
        session.__dict__["client"] = client
    return session.__dict__["client"]  # type: ignore[no-any-return]


def url_segment(topic: str) -> str:
    return quote(topic, safe="")


def _get(session: Session, url: str, **query: object) -> tuple[int, Mapping[str, Any]]:
    given = {name: str(value) for name, value in query.items() if value is not None}
    answer = client_of(session).get(url, params=given)
    return answer.status_code, answer.json()


def _found(status: int, answer: Mapping[str, Any]) -> Answer:
    if status == 404:
        return Answer((), True, str(answer))
    if status != 200:
        return Answer((), False, f"{status}: {answer}")
    offsets = [one["physical_offset"] for one in answer["messages"]]
    return Answer.of(offsets, answer["complete"])


@path("/api/messages", "key", "window")
def api_messages(session: Session, asked: Question) -> Answer:
    return _found(
        *_get(
            session, "/api/messages", topic=asked.topic, key=asked.key or None, begin=asked.begin,
            end=asked.end, limit=1000,
        )
    )  # fmt: skip


@path("/api/messages/{id}", "id")
def api_message(session: Session, asked: Question) -> Answer:
    return _found(*_get(session, f"/api/messages/{asked.key}", topic=asked.topic))


@path("/api/queues/{topic}/{queue}", "queue")
def api_queue(session: Session, asked: Question) -> Answer:
    found: list[int] = []
    position, is_complete = None, True
    assert asked.topic is not None
    url = f"/api/queues/{url_segment(asked.topic)}/{asked.queue_id}"
    for _ in range(_MOST_PULLS):
        status, answer = _get(session, url, offset=position, limit=20)
        if status != 200:
            return Answer(tuple(found), status == 404, f"{status}: {answer}")
        found += [one["physical_offset"] for one in answer["messages"]]
        is_complete = is_complete and answer["complete"]
        # Only unreadable messages were examined if the position moved without a message.
        if answer["status"] != "found" and position in (None, answer["next_begin_offset"]):
            return Answer(tuple(found), is_complete, answer["status"])
        position = answer["next_begin_offset"]
    return Answer(tuple(found), False, "too many pulls")


@path("/api/trace", "key", "id")
def api_trace(session: Session, asked: Question) -> Answer | None:
    if asked.begin is not None or (asked.kind == "id" and asked.topic is not None):
        return None
    name = "message" if asked.kind == "id" else "key"
    status, answer = _get(session, "/api/trace", **{name: asked.key, "topic": asked.topic})
    if status != 200:
        return Answer((), False, f"{status}: {answer}")
    found = [one["message"]["physical_offset"] for one in answer["events"]]
    return Answer.of(session.asked_for(found, asked), answer["complete"])
