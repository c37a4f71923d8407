"""Record the requests of RocketMQ's clients: count them by outcome, measure their durations, build audit records.

An audit record has the user, the messages or state that the request concerns, and the outcome.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from reput.base import format_time, now_ms
from reput.format.host import Host
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import REQUESTS, AuditRule, RequestCode

_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a latency's buckets, in seconds. The last bucket has no bound."""
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
_NAMES = {int(code): code.name for code in RequestCode}
_OUTCOMES = {int(code): code.name for code in ResponseCode}


def _request_name(code: int) -> str:
    """Return the name of a request code. All unknown codes share one name, so clients cannot fill the memory."""
    return _NAMES.get(code, "other")


def _outcome_name(code: int | None) -> str:
    """Return the name of a response code. All unknown codes share one name."""
    return "none" if code is None else _OUTCOMES.get(code, "other")


@dataclass(slots=True)
class Latency:
    """A histogram of durations in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """Return the upper bound of each bucket, and the number of durations up to this bound."""
        return list(zip([*map(str, _BOUNDS_S), "+Inf"], accumulate(self.counts), strict=True))


class Traffic:
    """The requests of all connections of a process.

    Attributes:
        requests: Number of requests, by the name of the request and the name of the outcome.
        seconds: Durations until the answer, by name of the request. Requests that waited for messages are not included.
        gauges: Figures that are computed on request: name, explanation, function that returns the value.
    """

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        self.requests: dict[tuple[str, str], int] = {}
        self.seconds: dict[str, Latency] = {}
        self.gauges = gauges

    def note(self, code: int, outcome: int | None, seconds: float | None) -> None:
        """Count a request.

        A request without an answer has no `outcome`. A request that waited for messages has no `seconds`.
        """
        name = _request_name(code)
        key = name, _outcome_name(outcome)
        self.requests[key] = self.requests.get(key, 0) + 1
        if seconds is not None:
            latency = self.seconds.get(name)
            if latency is None:
                latency = self.seconds[name] = Latency()
            latency.add(seconds)


def is_audited(request: Command, answer: Command | None) -> bool:
    """Return whether a request gets an audit record: it read or changed something, or tried to."""
    when = REQUESTS[request.code].audit if request.code in REQUESTS else AuditRule.ALWAYS
    if when is not AuditRule.IF_READ:
        return when is AuditRule.ALWAYS
    outcome = ResponseCode.SUCCESS if answer is None else answer.code
    return outcome in _AUDITED_OUTCOMES


def audit_fields(
    request: Command, answer: Command | None, client: Host, seconds: float | None
) -> dict[str, object]:
    """Return the audit record of a request. `seconds` is None if the request waited for messages."""
    header_fields: dict[str, object] = {}
    for name, places in _FIELDS.items():
        for place in places:
            if (value := request.fields.get(place)) is not None:
                header_fields[name] = str(value)[:_MOST_CHARACTERS]
                break
    account = request.fields.get("AccessKey")
    return {
        "time": format_time(now_ms()),
        "client": client.address,
        **({} if account is None else {"account": str(account)[:_MOST_CHARACTERS]}),
        "request": _request_name(request.code),
        **header_fields,
        "outcome": _outcome_name(None if answer is None else answer.code),
        "bytes": 0 if answer is None else len(answer.body),
        **({} if seconds is None else {"seconds": round(seconds, 3)}),
    }
