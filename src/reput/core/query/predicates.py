"""Predicates of queries by key: which index entries to follow, and which records to take."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reput.core.index.key_index import KeyHashes
from reput.core.log.record import KeyedRecord
from reput.format.index_file import tag_key
from reput.format.java_string import joined_surrogates


class KeyPredicate:
    """Messages with a given key in a given topic. Topic and key are compared as Java strings.

    As in the broker's index, the keys of a message are its unique key and the parts of KEYS between spaces. A
    rolled-back message has no keys. In 5.x, a record may have several unique keys. A message matches by any of its
    unique keys, although the index has only the last one.
    """

    def __init__(self, topic: str, key: str) -> None:
        self._topic, self._key = joined_surrogates(topic), joined_surrogates(key)
        self.topics: frozenset[str] | None = frozenset({self._topic})
        self.keys = frozenset({self._key})
        self.hashes: Collection[int] = KeyHashes([topic], [key])

    def matches(self, record: KeyedRecord) -> bool:
        return _has_key(record, self._key) and record.topic == self._topic


class KeyAnywherePredicate:
    """Messages with a given key, in any topic.

    The index combines topic and key, so the key is looked up with each of `topics`.
    """

    def __init__(self, topics: Sequence[str], key: str) -> None:
        self._key = joined_surrogates(key)
        self.topics: frozenset[str] | None = None
        self.keys = frozenset({self._key})
        self.hashes: Collection[int] = KeyHashes(topics, [key])

    def matches(self, record: KeyedRecord) -> bool:
        return _has_key(record, self._key)


def _has_key(record: KeyedRecord, key: str) -> bool:
    return key in record.keys or key in record.own_ids


class TagsPredicate:
    """Messages of a given topic with given tags. Both are compared as Java strings, the tags as a whole."""

    keys: frozenset[str] = frozenset()

    def __init__(self, topic: str, tags: str) -> None:
        self._topic, self._tags = joined_surrogates(topic), joined_surrogates(tags)
        self.topics: frozenset[str] | None = frozenset({self._topic})
        self.hashes: Collection[int] = KeyHashes([topic], [tag_key(tags)])

    def matches(self, record: KeyedRecord) -> bool:
        return record.tags == self._tags and record.topic == self._topic


class UniqueKeyPredicate:
    """Messages with a given unique key, in any of the given topics."""

    def __init__(self, topics: Sequence[str], unique_key: str) -> None:
        self._unique_key = joined_surrogates(unique_key)
        self.keys = frozenset({self._unique_key})
        self.topics: frozenset[str] | None = frozenset(map(joined_surrogates, topics))
        self.hashes: Collection[int] = KeyHashes(topics, [unique_key])

    def matches(self, record: KeyedRecord) -> bool:
        is_own = self._unique_key == record.unique_key or self._unique_key in record.own_ids
        return is_own and (self.topics is None or record.topic in self.topics)


class UniqueKeysPredicate:
    """Messages with any of the given unique keys, in any topic.

    The index combines topic and key, so the keys are looked up with each of `topics`.
    """

    def __init__(self, topics: Sequence[str], unique_keys: Collection[str]) -> None:
        self.topics: frozenset[str] | None = None
        self.keys = frozenset(map(joined_surrogates, unique_keys))
        self.hashes: Collection[int] = KeyHashes(topics, self.keys)

    def matches(self, record: KeyedRecord) -> bool:
        return record.unique_key in self.keys or not self.keys.isdisjoint(record.own_ids)
