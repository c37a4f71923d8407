"""The reading paths of the console's pages: rows of HTML, and the notices that say that something is missing."""

from __future__ import annotations

import json
import re
from html import unescape

from httpx import Response

from tests.truth.answers import Answer, Session, path
from tests.truth.messages import NEWEST, Question
from tests.truth.paths_served import client_of, url_segment

_MOST_PAGES = 100
_ROW = re.compile(r'class="row-link" href="/messages/(\d+)')
_NOTICE = re.compile(r'class="notice (?:warn|bad)".*?</div>', re.DOTALL)
_NEXT = re.compile(r'<a class="button" rel="next" href="([^"]*)"')
_FIRST = re.compile(r'<a class="button" href="([^"]*)">Oldest</a>')
_BODY = re.compile(r'href="/messages/(\d+)/body')


def _get(session: Session, url: str, **query: object) -> Response:
    given = {name: str(value) for name, value in query.items() if value is not None}
    # An empty dictionary would remove the query of a link.
    page: Response = client_of(session).get(url, params=given or None)
    return page


def _answer(session: Session, page: Response, rows: re.Pattern[str] = _ROW) -> Answer:
    if page.status_code == 404:
        return Answer((), True, "404")
    places = tuple(map(int, rows.findall(page.text)))
    notice = _NOTICE.search(page.text)
    if page.status_code != 200 or notice is not None:
        shown = page.text[-300:] if notice is None else re.sub(r"<[^>]*>", "", notice[0])
        return Answer(places, False, f"{page.status_code}: {' '.join(shown.split())}")
    return Answer(places, True, "a page without a notice")


def _pages(session: Session, page: Response) -> Answer:
    """Return the rows of a page and of the pages after it."""
    answers = [_answer(session, page)]
    while (link := _NEXT.search(page.text)) and len(answers) < _MOST_PAGES:
        page = _get(session, unescape(link[1]))
        answers.append(_answer(session, page))
    remark = "; ".join(dict.fromkeys(one.remark for one in answers))
    places = [place for one in answers for place in one.messages]
    return Answer(tuple(places), all(one.is_complete for one in answers), remark)


@path("GET /", "key", "id", "window")
def search(session: Session, asked: Question) -> Answer:
    return _pages(
        session,
        _get(
            session, "/", key=asked.key or None, topic=asked.topic, begin=asked.begin, end=asked.end,
            limit=50,
        ),
    )  # fmt: skip


@path("GET /download", "key", "window")
def download(session: Session, asked: Question) -> Answer:
    answer = _get(
        session, "/download", key=asked.key or None, topic=asked.topic, begin=asked.begin,
        end=asked.end, format="jsonl",
    )  # fmt: skip
    if answer.status_code != 200:
        return _answer(session, answer)
    name = answer.headers["content-disposition"]
    rows = [json.loads(line) for line in answer.text.splitlines()]
    return Answer(
        tuple(one["physical_offset"] for one in rows), 'filename="messages.jsonl"' in name, name
    )


@path("GET /messages/{offset}", "offset")
def message(session: Session, asked: Question) -> Answer:
    answer = _answer(session, _get(session, f"/messages/{asked.number}"), _BODY)
    return Answer(tuple({*answer.messages}), answer.is_complete, answer.remark)


@path("GET /messages/{offset}/record", "offset")
def record(session: Session, asked: Question) -> Answer:
    page = _get(session, f"/messages/{asked.number}/record")
    return Answer.of([asked.number]) if page.status_code == 200 else _answer(session, page)


@path("GET /queues/{topic}/{queue}", "queue")
def queue(session: Session, asked: Question) -> Answer:
    assert asked.topic is not None
    url = f"/queues/{url_segment(asked.topic)}/{asked.queue_id}"
    page = _get(session, url, offset=0)
    if not _ROW.search(page.text) and (first := _FIRST.search(page.text)):
        page = _get(session, unescape(first[1]))
    return _pages(session, page)


@path("GET /trace", "key", "id")
def trace(session: Session, asked: Question) -> Answer | None:
    if asked.begin is not None or (asked.kind == "id" and asked.topic is not None):
        return None
    name = "message" if asked.kind == "id" else "key"
    given = {name: asked.key, "topic": asked.topic}
    answer = _answer(session, _get(session, "/trace", **given))
    places = [place for place in answer.messages if isinstance(place, int)]
    return Answer(session.asked_for(places, asked), answer.is_complete, answer.remark)


@path("GET /topics/{topic}", "newest")
def topic(session: Session, asked: Question) -> Answer | None:
    if asked.number != NEWEST[0]:
        return None
    assert asked.topic is not None
    return _answer(session, _get(session, f"/topics/{url_segment(asked.topic)}"))


@path("GET /live", "newest")
def live(session: Session, asked: Question) -> Answer | None:
    if asked.number != NEWEST[1]:
        return None
    return _answer(session, _get(session, "/live", topic=asked.topic))
