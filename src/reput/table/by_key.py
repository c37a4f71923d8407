"""Where messages with a key may lie, as the IndexFiles of a store tell."""

from __future__ import annotations

from collections.abc import Collection

from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.index_file import index_key, key_hash
from reput.query.plan import Planner, Segment
from reput.query.result import OffsetRange
from reput.store.index_file_reader import BrokenChainError
from reput.store.store_reader import StoreReader


def find_by_key(
    folder: str, topics: Collection[str] | None, keys: Collection[str]
) -> list[OffsetRange]:
    """Ranges of physical offsets, oldest first, that hold every message of these topics with one of these keys,
    unique ones or of KEYS.

    A range of one byte is a message that begins there; the others are what no IndexFile covers. Rolled-back
    messages have no index entries and are not found. `topics` None are all that have ConsumeQueues.

    Raises StoreError, UsageError.
    """
    with StoreReader(folder) as store:
        named = store.queues.topics() if topics is None else topics
        hashes = {key_hash(index_key(topic, key)) for topic in named for key in keys}
        planner = Planner(store.commit_log, store.index, store.checkpoint())
        found: list[OffsetRange] = []
        for segment in planner.segments():
            offsets = _offsets(store, segment, hashes)
            if offsets is None:
                found.append(OffsetRange(segment.start, segment.stop))
            else:
                found += [OffsetRange(offset, offset + 1) for offset in offsets]
        return sorted(found)


def _offsets(store: StoreReader, segment: Segment, hashes: Collection[int]) -> set[int] | None:
    """The messages of a segment with one of these hashes; None where it must be read."""
    if segment.file is None:
        return None
    found = set()
    try:
        for hashed in hashes:
            for offset in segment.file.offsets(hashed):
                if segment.start <= offset < segment.stop:
                    store.commit_log.locate(offset)
                    found.add(offset)
    except (BrokenChainError, CorruptMessageError, MessageNotFoundError):
        return None
    return found
