"""The reading paths of the command line, run in this process. Exit codes 0 and 1 claim a complete answer."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.cli.running import Ran, reput
from tests.truth.answers import Answer, Session, path
from tests.truth.messages import Question

_COMPLETE = (0, 1)
_OLDER = re.compile(r"older messages with this id, by offset: ([0-9, ]+)")
_WINDOW = {"begin": "--begin", "end": "--end"}


def _options(asked: Question, *, key: str = "--key", window: bool = True) -> list[object]:
    given: list[object] = [] if asked.topic is None else ["--topic", asked.topic]
    given += [key, asked.key] if asked.key else []
    for name, option in _WINDOW.items() if window else ():
        value = getattr(asked, name)
        given += [] if value is None else [option, value]
    return given


def _lines(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def _answer(ran: Ran) -> Answer:
    assert "unexpected" not in ran.err, ran.err
    offsets = [
        one["physical_offset"] for one in _lines(ran) if one.get("physical_offset") is not None
    ]
    return Answer(
        tuple(offsets), ran.code in _COMPLETE, f"exit code {ran.code}: {ran.err.strip()[-200:]}"
    )


@path("reput query", "key", "id", "window")
def query(session: Session, asked: Question) -> Answer:
    key = "--id" if asked.kind == "id" else "--key"
    limit = () if asked.kind == "id" else ("--limit", 100_000)
    return _answer(
        reput("query", session.path, "--format", "jsonl", *limit, *_options(asked, key=key))
    )


@path("reput find", "id", "place")
def find(session: Session, asked: Question) -> Answer:
    text = f"{asked.topic}/{asked.queue_id}/{asked.number}" if asked.kind == "place" else asked.key
    topic = [] if asked.topic is None else ["--topic", asked.topic]
    return _answer(reput("find", session.path, "--format", "jsonl", *topic, text))


@path("reput show", "id", "offset", "place")
def show(session: Session, asked: Question) -> Answer:
    what: object = asked.number if asked.kind == "offset" else asked.key
    if asked.kind == "place":
        what = f"{asked.topic}/{asked.queue_id}/{asked.number}"
    topic = _options(asked) if asked.kind == "id" else []
    topic = [one for one in topic if one not in ("--key", asked.key)]
    ran = reput("show", session.path, what, "--format", "json", *topic)
    assert "unexpected" not in ran.err, ran.err
    found = [json.loads(ran.out)["physical_offset"]] if ran.out.strip() else []
    if older := _OLDER.search(ran.err):
        found += map(int, older[1].split(", "))
    return Answer(
        tuple(found),
        ran.code in _COMPLETE,
        f"exit code {ran.code}: {ran.err.strip()}",
    )


@path("reput tail", "key", "window", has_index=False, is_of_records=True)
def tail(session: Session, asked: Question) -> Answer:
    return _answer(reput("tail", session.path, "-n", "all", "--format", "jsonl", *_options(asked)))


@path("reput trace", "key", "id")
def trace(session: Session, asked: Question) -> Answer | None:
    if asked.begin is not None or (asked.kind == "id" and asked.topic is not None):
        return None
    key = "--id" if asked.kind == "id" else "--key"
    ran = reput("trace", session.path, "--format", "jsonl", *_options(asked, key=key))
    assert "unexpected" not in ran.err, ran.err
    found = [one["message"]["physical_offset"] for one in _lines(ran) if "event" in one]
    return Answer(
        session.asked_for(found, asked),
        ran.code in _COMPLETE,
        f"exit code {ran.code}: {ran.err.strip()[-200:]}",
    )


@path("reput lookup", "key")
def lookup(session: Session, asked: Question) -> Answer | None:
    if asked.topic is None:
        return None
    keys = session.new_path(".csv")
    begin, end = ("" if time is None else time for time in (asked.begin, asked.end))
    keys.write_text(f"topic,key,begin,end\n{asked.topic},{asked.key},{begin},{end}\n")
    ran = reput(
        "lookup",
        session.path,
        "--keys",
        keys,
        "--output",
        "-",
        "--format",
        "jsonl",
        "--runner",
        "serial",
    )
    answer = _answer(ran)
    is_complete = all(one["is_complete"] for one in _lines(ran)) if ran.out else False
    assert answer.is_complete == is_complete or ran.code not in _COMPLETE, (
        "the exit code differs from is_complete"
    )
    return answer


@path("reput export", "window", is_of_log=True)
def export(session: Session, asked: Question) -> Answer:
    return _answer(
        reput(
            "export", session.path, "-", "--to", "jsonl", "--on-corrupt", "skip", *_options(asked)
        )
    )
