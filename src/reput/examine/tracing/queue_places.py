"""What the ConsumeQueue says of one record: whether it leads to it, and when a scheduled one is due."""

from __future__ import annotations

import time

from reput.clock import now_ms
from reput.errors import MessageNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.properties import TIMER_OUT_MS, TIMER_TOPIC, tags_code
from reput.query.message_store import MessageStore
from reput.queues.queue_index import LostEntriesError

_NEW_MS = 10_000
_MOST_DIGITS = 19
_ROUNDS, _PATIENCE_S = 20, 0.05


def is_queued(store: MessageStore, message: MessageExt) -> bool:
    """Whether the entry at its queue offset leads to it; a message that was just stored may wait for dispatch.

    Raises StoreAccessError, StoreChangedError.
    """
    for _ in range(_ROUNDS):
        entry = _entry(store, message)
        if entry is not None and entry.physical_offset == message.physical_offset:
            return True
        if not 0 <= now_ms() - message.store_timestamp < _NEW_MS:
            return False
        time.sleep(_PATIENCE_S)
    return False


def due_ms(store: MessageStore, message: MessageExt) -> int | None:
    """When a broker delivers a scheduled message: the tags code of its entry, else as the store's levels have it.

    None where it has no delay level, so that nothing is computed for it. A message in the timer (5.x) states it.
    """
    if message.topic == TIMER_TOPIC:
        return _stated_ms(message.properties.get(TIMER_OUT_MS, ""))
    delays = store.config.delay_table_ms()
    try:
        code = tags_code(message.topic, message.properties, message.store_timestamp, delays)
        has_level = code != tags_code(
            message.topic, message.properties, message.store_timestamp, []
        )
    except ValueError:
        return None
    if not has_level:
        return None
    entry = _entry(store, message)
    is_own = entry is not None and entry.physical_offset == message.physical_offset
    return entry.tags_code if entry is not None and is_own else code


def _stated_ms(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else None


def _entry(store: MessageStore, message: MessageExt) -> ConsumeQueueEntry | None:
    try:
        queue = store.queues.queue(message.topic, message.queue_id)
        return queue.entry(message.queue_offset)
    except (MessageNotFoundError, LostEntriesError):
        return None
