"""Find the records that a trace must have: compare all records with those found, until a pass finds no further ones."""

from collections.abc import Sequence

from tests.oracle.records import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, Record

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE, DISCARDED = "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC"
_QUEUED_BY_NAME = ("%RETRY%", "%DLQ%")


def offset_id(offset: int, record: Record) -> str:
    address, port = record.store_host
    return (address + port.to_bytes(4, "big") + offset.to_bytes(8, "big")).hex().upper()


def offsets_of_life(
    records: Sequence[tuple[int, Record]],
    key: str | None = None,
    message_id: str | None = None,
    topic: str | None = None,
) -> set[int]:
    """Return physical offsets of the records with this key or id, and of all directly or indirectly related records."""
    found = {
        offset
        for offset, record in records
        if key is not None and key in record.index_keys and topic in (None, record.topic)
    }
    names = set()  # ids that were searched
    if message_id is not None:
        found |= {offset for offset, record in records if offset_id(offset, record) == message_id}
        names = {message_id}
    while True:
        before = len(found)
        found |= _belonging(records, found, names)
        if len(found) == before:
            return found


def _belonging(records: Sequence[tuple[int, Record]], found: set[int], names: set[str]) -> set[int]:
    own = [(offset, record) for offset, record in records if offset in found]
    own = [(offset, record) for offset, record in own if record.topic != OP]
    offset_ids = {offset_id(offset, record) for offset, record in records}
    named = {record.properties.get("ORIGIN_MESSAGE_ID", "") for _, record in own} | names
    unique_keys = {record.properties.get("UNIQ_KEY", "") for _, record in own}
    unique_keys = (unique_keys | (named - offset_ids)) - {""}
    asked = names if names - offset_ids and not found else set()
    for offset, record in own:
        if _is_origin(record):
            asked |= {offset_id(offset, record), record.properties.get("UNIQ_KEY", "")} - {""}
    return {
        offset
        for offset, record in records
        if _has_unique_key(record, unique_keys)
        or offset_id(offset, record) in named
        or (_names_origin(record) and record.properties.get("ORIGIN_MESSAGE_ID") in asked)
        or _is_first_op(records, offset, record, [half for half in own if half[1].topic == HALF])
    }


def _has_unique_key(record: Record, unique_keys: set[str]) -> bool:
    return record.transaction_type != TRANSACTION_ROLLBACK and record.uniq_key in unique_keys


def _is_origin(record: Record) -> bool:
    if record.topic in (HALF, OP, SCHEDULE, DISCARDED) or record.topic.startswith(_QUEUED_BY_NAME):
        return False
    return record.transaction_type in (0, TRANSACTION_COMMIT)


def _names_origin(record: Record) -> bool:
    return record.topic == SCHEDULE or record.topic.startswith(_QUEUED_BY_NAME)


def _is_first_op(
    records: Sequence[tuple[int, Record]],
    offset: int,
    record: Record,
    halves: Sequence[tuple[int, Record]],
) -> bool:
    if record.topic != OP:
        return False
    for place, half in halves:
        number = str(half.queue_offset).encode()
        ops = [
            at
            for at, op in records
            if op.topic == OP
            and op.queue_id == half.queue_id
            and at > place
            and number in op.body.split(b",")
        ]
        if ops and min(ops) == offset:
            return True
    return False
