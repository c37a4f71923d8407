"""The first differences of each kind, in words; only these are read one by one."""

from __future__ import annotations

from reput.errors import StoreError
from reput.examine.comparing.difference import Difference, Example, Part, What
from reput.examine.comparing.log_rows import LogRows
from reput.format.commit_log import MessageExt
from reput.query.message_store import MessageStore

_FIELDS = (
    "topic", "queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "born_host", "store_timestamp",
    "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc", "body", "properties_bytes", "magic",
)  # fmt: skip


def add_different(
    found: Difference, stores: tuple[MessageStore, MessageStore], left: LogRows, right: LogRows
) -> None:
    """Examples of messages that both stores have with different content; the rows are paired."""
    room = found.room(Part.MESSAGE, What.DIFFERENT)
    offsets = zip(left.offset[:room].tolist(), right.offset[:room].tolist(), strict=True)
    for a, b in offsets:
        pair = _read(stores[0], a), _read(stores[1], b)
        known = next((message for message in pair if message is not None), None)
        found.examples.append(
            Example(
                Part.MESSAGE, What.DIFFERENT, _place(known), a, b, _differing_fields(*pair)
            )
        )  # fmt: skip


def add_only_in(found: Difference, store: MessageStore, side: int, rows: LogRows) -> None:
    """Examples of messages that one store has."""
    what = What.ONLY_IN_B if side else What.ONLY_IN_A
    for offset in rows.offset[: found.room(Part.MESSAGE, what)].tolist():
        places = (None, offset) if side else (offset, None)
        found.examples.append(Example(Part.MESSAGE, what, _place(_read(store, offset)), *places))


def _read(store: MessageStore, offset: int) -> MessageExt | None:
    try:
        return store.get(offset)
    except StoreError:  # what a scan with salvage reads, a reader may not
        return None


def _place(message: MessageExt | None) -> str:
    if message is None:
        return ""
    return f"{message.topic}, queue {message.queue_id}, queue offset {message.queue_offset}"


def _differing_fields(left: MessageExt | None, right: MessageExt | None) -> str:
    """`body, properties`."""
    if left is None or right is None:
        return ""
    names = [name for name in _FIELDS if getattr(left, name) != getattr(right, name)]
    return ", ".join(name.removesuffix("_bytes") for name in names)
