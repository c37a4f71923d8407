"""Answer questions that name a place in the log, with the evidence of the place that was read."""

from __future__ import annotations

from reput.core.log.offset_range import OffsetRange
from reput.core.query.answers import QueryResult
from reput.core.query.evidence import Coverage, Evidence, Question
from reput.core.queues.queue_index import finding_of
from reput.core.store.store_reader import StoreReader
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.message_id import decode_offset_id


def answer_of(store: StoreReader, message: MessageExt) -> QueryResult:
    """Return the answer to a question that names the place of a message, which was read there."""
    place = OffsetRange(message.physical_offset, message.physical_offset + message.size_bytes)
    evidence = Evidence(store.commit_log.source.name)
    evidence.scanned(*place)
    question = Question(topics=frozenset({message.topic}))
    return QueryResult((message,), None, evidence.coverage(place, question=question))


def answer_at(store: StoreReader, physical_offset: int) -> QueryResult:
    """Return the message that begins at a physical offset, or an empty answer if no message begins there.

    Raises CorruptMessageError, StoreAccessError, StoreChangedError.
    """
    try:
        return answer_of(store, store.get(physical_offset))
    except MessageNotFoundError:
        log = store.commit_log
        start = min(max(physical_offset, log.min_offset), log.files_end)
        place = OffsetRange(start, min(max(physical_offset + 1, start), log.files_end))
        evidence = Evidence(log.source.name)
        evidence.scanned(*place)
        return QueryResult((), None, evidence.coverage(place))


def coverage_of_id(store: StoreReader, message_id: str) -> Coverage | None:
    """Return the coverage of the place that an offset id without a message names; None if it names no place in the log.

    Raises StoreAccessError, StoreChangedError.
    """
    log = store.commit_log
    try:
        offset = decode_offset_id(message_id).physical_offset
        if not log.min_offset <= offset < log.files_end:
            return None
        return answer_at(store, offset).coverage
    except CorruptMessageError as error:
        evidence = Evidence(log.source.name)
        evidence.damage.append(finding_of(error))
        return evidence.coverage(OffsetRange(error.physical_offset, error.physical_offset + 1))
    except ValueError:
        return None
