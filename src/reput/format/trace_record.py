"""Records of message traces, which clients with `enableMsgTrace` send to RMQ_SYS_TRACE_TOPIC.

Mirrors `TraceDataEncoder` (tags rocketmq-all-4.9.3, rocketmq-all-5.3.3). A body has one entry per step of a message,
each ended by 0x02. The fields of an entry are separated by 0x01:

    Pub             type, time, region, group, topic, message id, tags, keys, host, body bytes, cost, kind,
                    offset id, success
    SubBefore       type, time, region, group, request id, message id, retries, keys
    SubAfter        type, request id, message id, cost, success, keys, code, time, group
    EndTransaction  type, time, region, group, topic, message id, tags, keys, host, kind, transaction id, state, checked

Times and costs are in milliseconds. Older clients leave out the last fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reput.format.java_string import decimal_number, decode_utf8

_ENTRY_END, _FIELD_END = "\x02", "\x01"
PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION = "Pub", "SubBefore", "SubAfter", "EndTransaction"
# The number of fields that every client writes.
_LEAST_FIELDS = {PUB: 12, SUB_BEFORE: 8, SUB_AFTER: 6, END_TRANSACTION: 13}


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One step of a message: it was sent, a consumer began or ended with it, or its transaction was decided.

    Attributes:
        kind: `Pub`, `SubBefore`, `SubAfter` or `EndTransaction`.
        message_id: The unique key of the message.
        group: The group of the producer or consumer; empty if the client did not state it.
        time_ms: Time of the step, ms since 1970; None if the client did not state it.
        cost_ms: Duration of the send or of the consumption; None if unknown.
        is_successful: Whether the send or the consumption succeeded; None if unknown.
        request_id: Joins the begin and the end of a consumption.
        state: The decision about a transaction, such as `COMMIT_MESSAGE`.
    """

    kind: str
    message_id: str
    group: str = ""
    time_ms: int | None = None
    cost_ms: int | None = None
    is_successful: bool | None = None
    request_id: str = ""
    state: str = ""


def trace_entries(body: bytes) -> Iterator[TraceEntry]:
    """Yield the entries of a trace record. Entries of unknown types, or with too few fields, are skipped."""
    for text in decode_utf8(body).split(_ENTRY_END):
        fields = text.split(_FIELD_END)
        if len(fields) >= _LEAST_FIELDS.get(fields[0], len(fields) + 1):
            yield _entry(fields)


def _entry(fields: list[str]) -> TraceEntry:
    kind = fields[0]
    if kind == PUB:
        # In 4.9.3, the offset id precedes the result. Very old clients write only the result.
        success = fields[13] if len(fields) > 13 else fields[12] if len(fields) > 12 else ""
        return TraceEntry(
            kind, fields[5], fields[3], _number(fields[1]), _number(fields[10]), _truth(success)
        )
    if kind == SUB_BEFORE:
        return TraceEntry(kind, fields[5], fields[3], _number(fields[1]), request_id=fields[4])
    if kind == SUB_AFTER:
        time_ms = _number(fields[7]) if len(fields) > 7 else None
        group = fields[8] if len(fields) > 8 else ""
        return TraceEntry(
            kind, fields[2], group, time_ms, _number(fields[3]), _truth(fields[4]), fields[1]
        )
    return TraceEntry(kind, fields[5], fields[3], _number(fields[1]), state=fields[11])


def _number(text: str) -> int | None:
    """Return a number; None for other texts, and for numbers beyond 64 bits."""
    return decimal_number(text, 18)


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)
