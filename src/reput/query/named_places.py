"""Answer questions that name a place in the log, with the evidence of the place that was read."""

from __future__ import annotations

from reput.errors import MessageNotFoundError
from reput.format.commit_log import MessageExt
from reput.log.offset_range import OffsetRange
from reput.query.answers import QueryResult
from reput.query.evidence import Evidence, Question
from reput.store.store_reader import StoreReader


def answer_of(store: StoreReader, message: MessageExt) -> QueryResult:
    """Return the answer to a question that names the place of a message, which was read there."""
    place = OffsetRange(message.physical_offset, message.physical_offset + message.size_bytes)
    evidence = Evidence(store.commit_log.source.name)
    evidence.scanned(*place)
    question = Question(topics=frozenset({message.topic}))
    return QueryResult((message,), None, evidence.coverage(place, question=question))


def answer_at(store: StoreReader, physical_offset: int) -> QueryResult:
    """Return the message that begins at a physical offset, or an empty answer.

    An empty answer is complete if the log was read there and no message begins at this offset.

    Raises CorruptMessageError, StoreAccessError, StoreChangedError.
    """
    try:
        return answer_of(store, store.get(physical_offset))
    except MessageNotFoundError:
        log = store.commit_log
        start = min(max(physical_offset, log.min_offset), log.files_end)
        place = OffsetRange(start, min(max(physical_offset + 1, start), log.files_end))
        evidence = Evidence(log.source.name)
        if log.file_at(physical_offset) is not None:
            evidence.scanned(*place)
        evidence.damage += log.holes()
        return QueryResult((), None, evidence.coverage(place))
