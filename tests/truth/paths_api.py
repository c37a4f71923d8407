"""The reading paths of the Python API."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa

import reput
from reput.core.query.answers import PullStatus, QueryResult
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.messages.topic_messages import messages_of_topic
from reput.errors import MessageNotFoundError
from reput.format.commit_log import MessageExt, decode
from reput.wings.lakes.request import ExportRequest
from tests.truth.answers import Answer, Session, path
from tests.truth.messages import Question
from tests.truth.stores import GROUP

_MOST = 100_000
_MOST_PULLS = 500


def _answer(result: QueryResult) -> Answer:
    return Answer.of(result.messages, result.is_complete)


@path("MessageStore.query", "key")
def query(session: Session, asked: Question) -> Answer:
    return _answer(session.store.query(asked.topic, asked.key, asked.begin, asked.end))


@path("MessageStore.query limited", "key")
def query_limited(session: Session, asked: Question) -> Answer:
    """Ask for two messages at a time, and continue with the cursor."""
    found: list[MessageExt] = []
    is_complete, cursor = True, None
    while True:
        result = session.store.query(asked.topic, asked.key, asked.begin, asked.end, 2, cursor)
        found += result.messages
        is_complete, cursor = is_complete and result.is_complete, result.cursor
        if cursor is None:
            return Answer.of(found, is_complete)


@path("MessageStore.query_steps", "key")
def query_steps(session: Session, asked: Question) -> Answer:
    *_, last = session.store.query_steps(asked.topic, asked.key, asked.begin, asked.end)
    assert isinstance(last, QueryResult)
    return _answer(last)


@path("SharedStore.query", "key")
def shared_query(session: Session, asked: Question) -> Answer:
    return _answer(session.shared.query(asked.topic, asked.key, asked.begin, asked.end))


@path("MessageStore.query_message", "key", is_brokers=True)
def query_message(session: Session, asked: Question) -> Answer | None:
    if asked.topic is None:
        return None
    begin, end = asked.begin or 0, asked.end or 1 << 62
    found = session.store.query_message(asked.topic, asked.key, 64, begin, end)
    # Hash collisions are included, as in a broker's answer.
    messages = [session.store.get(offset) for offset in found.physical_offsets]
    return Answer.of(
        one
        for one in messages
        if asked.key in (one.unique_key, *one.keys) and one.topic == asked.topic
    )


@path("MessageStore.find_by_tags", "tags")
def find_by_tags(session: Session, asked: Question) -> Answer:
    """Ask for two messages at a time, and continue with the cursor."""
    assert asked.topic is not None
    found: list[MessageExt] = []
    is_complete, cursor = True, None
    while True:
        part = session.store.find_by_tags(asked.topic, asked.key, asked.begin, asked.end, 2, cursor)
        result = part.decoded()
        found += result.messages
        is_complete, cursor = is_complete and result.is_complete, result.cursor
        if cursor is None:
            return Answer.of(found, is_complete)


@path("MessageStore.find_by_id", "id")
def find_by_id(session: Session, asked: Question) -> Answer:
    return _answer(session.store.find_by_id(asked.key, asked.topic))


@path("MessageStore.get", "offset")
def get(session: Session, asked: Question) -> Answer:
    try:
        return Answer.of([session.store.get(asked.number)])
    except MessageNotFoundError as error:
        return Answer((), True, str(error))


@path("MessageStore.get_record", "offset")
def get_record(session: Session, asked: Question) -> Answer:
    try:
        return Answer.of([decode(session.store.get_record(asked.number))])
    except MessageNotFoundError as error:
        return Answer((), True, str(error))


@path("MessageStore.get_by_queue", "place")
def get_by_queue(session: Session, asked: Question) -> Answer:
    assert asked.topic is not None
    try:
        return Answer.of([session.store.get_by_queue(asked.topic, asked.queue_id, asked.number)])
    except MessageNotFoundError as error:
        return Answer((), True, str(error))


@path("MessageStore.pull", "queue")
def pull(session: Session, asked: Question) -> Answer:
    assert asked.topic is not None
    place = asked.topic, asked.queue_id
    try:
        position = session.store.min_queue_offset(*place)
    except MessageNotFoundError as error:
        return Answer((), True, str(error))
    found: list[MessageExt] = []
    for _ in range(_MOST_PULLS):
        result = session.store.pull(*place, position, 7)
        found += result.messages
        position = result.next_begin_offset
        if result.status is not PullStatus.FOUND:
            break
    return Answer.of(found)


@path("MessageStore.pull_records", "queue")
def pull_records(session: Session, asked: Question) -> Answer:
    assert asked.topic is not None
    place = asked.topic, asked.queue_id
    try:
        position = session.store.min_queue_offset(*place)
    except MessageNotFoundError as error:
        return Answer((), True, str(error))
    found: list[MessageExt] = []
    for _ in range(_MOST_PULLS):
        result = session.store.pull_records(*place, position, 16)
        found += map(decode, result.records)
        position = result.next_begin_offset
        if result.status is not PullStatus.FOUND:
            break
    return Answer.of(found)


@path("MessageStore.offset_by_time", "window")
def offsets_by_time(session: Session, asked: Question) -> Answer | None:
    """Pull the messages between the offsets of a window, from every queue of a topic."""
    if asked.topic is None:
        return None
    assert asked.begin is not None
    assert asked.end is not None
    found: list[MessageExt] = []
    # A store lists no queues that are lost.
    for place in [each for each in session.truth.by_queue if each[0] == asked.topic]:
        low = session.store.offset_by_time(*place, asked.begin)
        high = session.store.end_offset_by_time(*place, asked.end)
        for number in range(low, high):
            message = session.store.get_by_queue(*place, number)
            if asked.begin <= message.store_timestamp <= asked.end:
                found.append(message)
    return Answer.of(found)


@path("messages_of_topic", "window")
def by_time(session: Session, asked: Question) -> Answer | None:
    if asked.topic is None:
        return None
    found = messages_of_topic(session.store, asked.topic, asked.begin, asked.end, _MOST)
    return Answer.of(found.messages, not found.problems)


@path("messages_of_topic newest", "newest")
def newest(session: Session, asked: Question) -> Answer:
    assert asked.topic is not None
    found = messages_of_topic(session.store, asked.topic, limit=asked.number)
    return Answer.of(found.messages, found.is_complete)


@path("LogTail newest", "newest")
def tail_newest(session: Session, asked: Question) -> Answer:
    tail = LogTail(session.store, TailFilter(asked.topic))
    found = tail.last(asked.number)
    cursor = found[0].physical_offset if len(found) == asked.number else None
    return Answer.of(found, tail.coverage(cursor).is_complete)


@path("LogTail", "window")
def log_tail(session: Session, asked: Question) -> Answer:
    tail = LogTail(session.store, TailFilter(asked.topic, begin=asked.begin, end=asked.end))
    return Answer.of(tail.last(_MOST), tail.coverage().is_complete)


@path("reput.find", "key", "id", "window")
def find(session: Session, asked: Question) -> Answer:
    if asked.kind == "id":
        report = reput.find(session.path, message_id=asked.key, topic=asked.topic)
    elif asked.kind == "key":
        report = reput.find(
            session.path, asked.key, topic=asked.topic, begin=asked.begin, end=asked.end
        )
    else:
        report = reput.find(
            session.path, topic=asked.topic, begin=asked.begin, end=asked.end, limit=_MOST
        )
    return Answer.of([one.message for one in report.messages], report.is_complete)


@path("reput.tail", "window", "key", has_index=False, is_of_records=True)
def tail(session: Session, asked: Question) -> Answer:
    report = reput.tail(session.path, _MOST, topic=asked.topic, key=asked.key or None)
    return Answer.of([one for one in report.messages if _is_inside(one, asked)], report.is_complete)


def _is_inside(message: MessageExt, asked: Question) -> bool:
    time = message.store_timestamp
    return (asked.begin is None or asked.begin <= time) and (asked.end is None or time <= asked.end)


@path("reput.trace", "key", "id")
def trace(session: Session, asked: Question) -> Answer | None:
    if asked.begin is not None or (asked.kind == "id" and asked.topic is not None):
        return None
    if asked.kind == "id":
        report = reput.trace(session.path, message_id=asked.key)
    else:
        report = reput.trace(session.path, key=asked.key, topic=asked.topic, most_messages=_MOST)
    places = [event.message.physical_offset for event in report.life.events]
    return Answer.of(session.asked_for(places, asked), report.is_complete)


@path("reput.look_up", "key")
def look_up(session: Session, asked: Question) -> Answer | None:
    if asked.topic is None:
        return None
    row = {"topic": asked.topic, "key": asked.key, "begin": asked.begin, "end": asked.end}
    reader = reput.look_up(
        session.path, pa.Table.from_pylist([row], KEYS_OF_LOOK_UP), runner="serial"
    )
    rows = reader.read_all().to_pylist()
    offsets = [one["physical_offset"] for one in rows if one["physical_offset"] is not None]
    return Answer.of(offsets, all(one["is_complete"] for one in rows))


KEYS_OF_LOOK_UP = pa.schema(
    [("topic", pa.string()), ("key", pa.string()), ("begin", pa.int64()), ("end", pa.int64())]
)


def _rows(table: pa.Table) -> list[int]:
    return [int(one) for one in table["physical_offset"].to_pylist()]


@path("reput.dataset", "key", "window", "id", is_of_log=True)
def dataset(session: Session, asked: Question) -> Answer | None:
    given: dict[str, Any] = {"topic": asked.topic, "begin": asked.begin, "end": asked.end}
    if asked.kind == "id":
        if len(asked.key) != len("7F0000010A2B18B4AAC2") + 12 or not asked.key.startswith(
            "7F0000010A2B18"
        ):
            return None
        given["unique_key"] = asked.key
    elif asked.kind == "key":
        # KEYS and unique keys are different conditions of a dataset.
        given["unique_key" if asked.key.startswith("7F") else "key"] = asked.key
    # A dataset returns inner batches or their messages, each with its own keys.
    found = [
        reput.dataset(session.path, ["physical_offset"], unwrap_batches=unwrap, **given).to_table()
        for unwrap in ((False,) if asked.kind == "window" else (False, True))
    ]
    if len(found) == 1:
        return Answer.of(_rows(found[0]))
    return Answer.of(sorted({place for table in found for place in _rows(table)}))


@path("reput.dataset rows", "window", is_of_log=True)
def dataset_rows(session: Session, asked: Question) -> Answer:
    found = reput.dataset(
        session.path, ["physical_offset", "corrupt_reason"], topic=asked.topic, begin=asked.begin,
        end=asked.end, on_corrupt="row",
    ).to_table().to_pylist()  # fmt: skip
    offsets = [one["physical_offset"] for one in found if one["corrupt_reason"] is None]
    return Answer.of(offsets, len(offsets) == len(found))


@path("reput.export", "window", is_of_log=True)
def export(session: Session, asked: Question) -> Answer:
    lines = io.BytesIO()
    topics = () if asked.topic is None else (asked.topic,)
    request = ExportRequest(
        topics=topics, begin_ms=asked.begin, end_ms=asked.end, on_corrupt="skip"
    )
    report = reput.export(session.path, lines, to="jsonl", request=request)
    rows = [json.loads(line) for line in lines.getvalue().splitlines()]
    return Answer.of([one["physical_offset"] for one in rows], report.is_complete)


@path("reput.stats", "count", is_of_log=True)
def stats(session: Session, asked: Question) -> Answer:
    report = reput.stats(session.path)
    counts = {(one.topic, one.queue_id): one.messages for one in report.figures.queues}
    count = counts.get((asked.topic or "", asked.queue_id), 0)
    return Answer((), report.is_complete, count=count)


@path("reput.lag", "behind")
def lag(session: Session, asked: Question) -> Answer | None:
    if session.has_archive:
        return None
    report = reput.lag(session.path, group=GROUP, topic=asked.topic)
    lags = [one.lag for one in report.queues if one.queue_id == asked.queue_id]
    if None in lags or not lags:
        return Answer((), False, f"unknown: {report.problems}")
    return Answer((), report.is_complete, str(report.problems), lags[0])
