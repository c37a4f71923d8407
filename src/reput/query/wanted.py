"""Conditions of a query."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from reput.format.java_string import joined_surrogates
from reput.index.key_index import KeyHashes
from reput.log.keyed_record import KeyedRecord


class WantedKey:
    """Messages of one topic that have one key, compared as Java strings.

    As in the broker's index, the keys of a message are its unique key and the parts of KEYS between spaces; a message
    that was rolled back has none. Its further unique keys (5.x) count as well.
    """

    def __init__(self, topic: str, key: str) -> None:
        self._topic, self._key = joined_surrogates(topic), joined_surrogates(key)
        self.keys = frozenset({self._key})
        self.hashes: frozenset[int] = KeyHashes.of([(topic, key)])

    def matches(self, record: KeyedRecord) -> bool:
        return _has_key(record, self._key) and record.topic == self._topic


@lru_cache(maxsize=4)
def _hashes_anywhere(topics: tuple[str, ...], key: str) -> KeyHashes:
    """Return the hashes of a key in each topic. A search over the stores of a cluster asks for the same ones again."""
    return KeyHashes.of([(topic, key) for topic in topics])


class WantedKeyAnywhere:
    """Messages of any topic that have one key; the index is searched for `topics`."""

    def __init__(self, topics: Iterable[str], key: str) -> None:
        self._key = joined_surrogates(key)
        self.keys = frozenset({self._key})
        self.hashes: frozenset[int] = _hashes_anywhere(tuple(topics), key)

    def matches(self, record: KeyedRecord) -> bool:
        return _has_key(record, self._key)


def _has_key(record: KeyedRecord, key: str) -> bool:
    return key in record.keys or key in record.own_ids


class WantedUniqueKey:
    """Messages of any of these topics that have this unique key."""

    def __init__(self, topics: Iterable[str], unique_key: str) -> None:
        self._unique_key = joined_surrogates(unique_key)
        self.keys = frozenset({self._unique_key})
        self._topics = frozenset(joined_surrogates(topic) for topic in topics)
        self.hashes: frozenset[int] = KeyHashes.of([(topic, unique_key) for topic in self._topics])

    def matches(self, record: KeyedRecord) -> bool:
        is_own = self._unique_key == record.unique_key or self._unique_key in record.own_ids
        return is_own and record.topic in self._topics


class WantedUniqueKeys:
    """Messages of any topic that have one of these unique keys; the index is searched for `topics`."""

    def __init__(self, topics: Iterable[str], unique_keys: Iterable[str]) -> None:
        self.keys = frozenset(map(joined_surrogates, unique_keys))
        self.hashes: frozenset[int] = KeyHashes.of(
            [(topic, key) for topic in topics for key in self.keys]
        )

    def matches(self, record: KeyedRecord) -> bool:
        return record.unique_key in self.keys or not self.keys.isdisjoint(record.own_ids)
