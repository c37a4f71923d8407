"""Build audit records of the requests of RocketMQ's clients.

A record has the user, the messages or state that the request concerns, and the outcome.
"""

from __future__ import annotations

from reput.base import format_time, now_ms
from reput.format.host import Host
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import REQUESTS, Audit

_MOST_CHARACTERS = 1_000
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


_OUTCOMES = {int(code): code.name for code in ResponseCode}


def request_name(code: int) -> str:
    """Return the name of a request code. All unknown codes share one name, so clients cannot invent names."""
    return REQUESTS[code].name if code in REQUESTS else "other"


def response_name(code: int) -> str:
    """Return the name of a response code. All unknown codes share one name."""
    return _OUTCOMES.get(code, "other")


def is_audited(request: Command, answer: Command | None) -> bool:
    """Return whether a request gets an audit record: it read or changed something, or tried to."""
    when = REQUESTS[request.code].audit if request.code in REQUESTS else Audit.ALWAYS
    if when is not Audit.IF_READ:
        return when is Audit.ALWAYS
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
