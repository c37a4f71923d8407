"""Build audit records of the requests of RocketMQ's clients.

A record has the user, the messages or state that the request concerns, and the outcome.
"""

from __future__ import annotations

from reput.base import format_time, now_ms
from reput.format.host import Host
from reput.wings.serve.remoting.codes import PULLS, RequestCode, ResponseCode
from reput.wings.serve.remoting.commands import Command

_MOST_CHARACTERS = 1_000
_QUIET = frozenset(
    {
        RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET, RequestCode.QUERY_ASSIGNMENT,
    }
)  # fmt: skip
"""Frequent requests that read no message. No audit records are written for these requests."""
_AUDITED_OUTCOMES = (
    ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR,
)  # fmt: skip
_FIELDS = {
    "topic": ("topic", "b"), "key": ("key",), "message": ("offset", "msgId"),
    "group": ("consumerGroup", "group", "producerGroup", "groupName", "a"),
    "queue": ("queueId", "e"), "queue_offset": ("queueOffset",),
}  # fmt: skip
"""For each field of an audit record, the fields of a request's header that can contain its value.

SEND_MESSAGE_V2 uses names of one letter.
"""


_REQUESTS = {int(code): code.name for code in RequestCode}
_OUTCOMES = {int(code): code.name for code in ResponseCode}


def request_name(code: int) -> str:
    """Return the name of a request code. All unknown codes share one name, so clients cannot invent names."""
    return _REQUESTS.get(code, "other")


def response_name(code: int) -> str:
    """Return the name of a response code. All unknown codes share one name."""
    return _OUTCOMES.get(code, "other")


def is_audited(request: Command, answer: Command | None) -> bool:
    """Return whether a request gets an audit record: it read or changed something, or tried to."""
    if request.code in _QUIET:
        return False
    if request.code not in PULLS:
        return True
    # Consumers pull all the time. A pull gets an audit record only if it read messages, was forbidden or failed.
    outcome = ResponseCode.SUCCESS if answer is None else answer.code
    return outcome in _AUDITED_OUTCOMES


def audit_fields(
    request: Command, answer: Command | None, client: Host, seconds: float | None
) -> dict[str, object]:
    """Return the audit record of a request. `seconds` is None if the request waited for messages."""
    asked: dict[str, object] = {}
    for name, places in _FIELDS.items():
        for place in places:
            if (value := request.fields.get(place)) is not None:
                asked[name] = str(value)[:_MOST_CHARACTERS]
                break
    account = request.fields.get("AccessKey")
    return {
        "time": format_time(now_ms()),
        "client": client.address,
        **({} if account is None else {"account": str(account)[:_MOST_CHARACTERS]}),
        "request": request_name(request.code),
        **asked,
        "outcome": "none" if answer is None else response_name(answer.code),
        "bytes": 0 if answer is None else len(answer.body),
        **({} if seconds is None else {"seconds": round(seconds, 3)}),
    }
