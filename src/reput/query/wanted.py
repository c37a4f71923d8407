"""What a query looks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Protocol

from reput.format.index_file import index_key, key_hash
from reput.format.java_string import joined_surrogates
from reput.store.index_file_reader import IndexFileReader
from reput.store.keyed_record import KeyedRecord


class Wanted(Protocol):
    """Which index entries to follow, and which records to take."""

    hashes: frozenset[int]

    def matches(self, record: KeyedRecord) -> bool: ...


class WantedKey:
    """Messages of one topic that have one key, compared as Java strings.

    As in the broker's index, the keys of a message are its unique key and the parts of KEYS
    between spaces; one that was rolled back has none.
    """

    def __init__(self, topic: str, key: str) -> None:
        self._topic, self._key = joined_surrogates(topic), joined_surrogates(key)
        self.hashes = frozenset((key_hash(index_key(topic, key)),))

    def matches(self, record: KeyedRecord) -> bool:
        return self._key in record.keys and record.topic == self._topic


class WantedKeyAnywhere:
    """Messages of any topic that have one key; an index is asked for those of `topics`."""

    def __init__(self, topics: Iterable[str], key: str) -> None:
        self._key = joined_surrogates(key)
        self.hashes = frozenset(key_hash(index_key(topic, key)) for topic in topics)

    def matches(self, record: KeyedRecord) -> bool:
        return self._key in record.keys


class WantedUniqueKey:
    """Messages of any of these topics that have this unique key."""

    def __init__(self, topics: Iterable[str], unique_key: str) -> None:
        self._unique_key = joined_surrogates(unique_key)
        self._topics = frozenset(joined_surrogates(topic) for topic in topics)
        self.hashes = frozenset(key_hash(index_key(topic, unique_key)) for topic in self._topics)

    def matches(self, record: KeyedRecord) -> bool:
        return record.unique_key == self._unique_key and record.topic in self._topics


class WantedNothing:
    """For a scan that is after the end of the log only."""

    hashes: frozenset[int] = frozenset()

    def matches(self, record: KeyedRecord) -> bool:
        return False


def indexed_offsets(file: IndexFileReader, wanted: Wanted) -> Iterator[int]:
    """Physical offsets of the entries to follow, newest first. Raises BrokenChainError."""
    if len(wanted.hashes) == 1:
        (only,) = wanted.hashes
        return file.offsets(only)
    return merge(*map(file.offsets, wanted.hashes), reverse=True)
