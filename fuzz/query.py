"""Query a store with changed bytes. Every message in an answer must have the topic and the key."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path

from fuzz.allowed import allowed
from fuzz.patches import MAX_BYTES, PatchedStore, patch_seeds
from reput.core.query.answers import QueryResult
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import ReaderOptions
from reput.format.properties import index_keys
from reput.wings.inspect.inspection import inspect

_FOREVER = 2**63 - 1
_PAGE = 2
_SETTINGS: tuple[ReaderOptions, ...] = ({}, {"hash_slots": 31, "index_items": 60})


class Target:
    MAX_BYTES = MAX_BYTES
    seeds = staticmethod(patch_seeds)

    def __init__(self, folder: Path) -> None:
        self._store = PatchedStore(folder)

    def run(self, data: bytes) -> None:
        with self._store.patched(data) as path:
            with allowed():
                inspect(path)
            choice = sha1(data).digest()
            with allowed(), MessageStore(path, **_SETTINGS[choice[2] % 2]) as store:
                self._ask(store, data, choice)

    def _ask(self, store: MessageStore, data: bytes, choice: bytes) -> None:
        queries = self._store.queries
        near = self._store.keys_at[self._store.message_near(data)]
        for topic, key in [*near[:2], queries[int.from_bytes(choice[:2]) % len(queries)]]:
            with allowed():
                _check_pages(store, topic, key, _check(store.query(topic, key), topic, key))
            with allowed():
                _check_copied(store, topic, key)
            with allowed():
                for message in store.find_by_id(key, topic).messages:
                    assert key in index_keys(message.properties)
        with allowed():
            assert store.end_offset() <= store.commit_log.files_end
        for topic, queue_id in store.queues.list():
            for queue_offset in (0, choice[-1]):
                with allowed():
                    store.get_by_queue(topic, queue_id, queue_offset)


def _check(result: QueryResult, topic: str, key: str) -> set[int]:
    offsets = [message.physical_offset for message in result.messages]
    assert offsets == sorted(set(offsets), reverse=True)
    for message in result.messages:
        assert message.topic == topic
        assert key in index_keys(message.properties)
        assert message.transaction != "rollback"
    return set(offsets)


def _check_pages(store: MessageStore, topic: str, key: str, everything: set[int]) -> None:
    after: int | None = None
    for _ in range(len(everything) + 1):
        page = store.query(topic, key, limit=_PAGE, after=after)
        assert len(page.messages) <= _PAGE
        assert _check(page, topic, key) <= everything
        if page.cursor is None:
            return
        assert after is None or page.cursor < after
        after = page.cursor
    raise AssertionError("more pages than messages")


def _check_copied(store: MessageStore, topic: str, key: str) -> None:
    """Query as a broker does. A broker compares no keys, so the messages are not checked."""
    offsets = store.query_offset(topic, key, 64, 0, _FOREVER).physical_offsets
    assert len(offsets) <= store.config.max_query_messages
    store.query_message(topic, key, 64, 0, _FOREVER)
