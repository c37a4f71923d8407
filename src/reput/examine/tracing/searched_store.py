"""A store that is searched, and what all look-ups in it covered."""

from __future__ import annotations

from collections.abc import Sequence

from reput.examine.tracing.life import StoreCoverage
from reput.examine.tracing.unindexed import UnindexedQueues
from reput.format.commit_log import MessageExt
from reput.log.offset_range import OffsetRange, newest_first
from reput.query.message_store import MessageStore
from reput.store.answers import Coverage, QueryResult


class SearchedStore:
    """A store, and what all look-ups in it covered."""

    def __init__(self, store: MessageStore, most_entries: int) -> None:
        self.store = store
        self.unindexed = UnindexedQueues(store, most_entries)
        self._answers: list[Coverage] = []
        self._is_shortened = False

    def add(self, answer: QueryResult) -> None:
        self._answers.append(answer.coverage)
        self._is_shortened |= answer.cursor is not None

    def add_place(self, message: MessageExt) -> None:
        """A message that was read by its offset."""
        place = OffsetRange(message.physical_offset, message.physical_offset + message.size_bytes)
        if not self._answers:
            self._answers.append(Coverage(place, (), (place,), (), ()))

    def coverage(self) -> StoreCoverage:
        return StoreCoverage(
            self.store.path,
            joined_coverage(self._answers),
            tuple(self.unindexed.problems),
            self.unindexed.unread,
            self._is_shortened,
        )


def joined_coverage(answers: Sequence[Coverage]) -> Coverage:
    """What several answers of one store cover: the longest stretch, and what any of them used or could not read."""
    if not answers:
        return Coverage(OffsetRange(0, 0), (), (), (), ())
    return Coverage(
        log=max((one.log for one in answers), key=lambda log: log.stop - log.start),
        indexed=tuple(dict.fromkeys(part for one in answers for part in one.indexed)),
        scanned=newest_first(part for one in answers for part in one.scanned),
        unreadable=tuple(dict.fromkeys(part for one in answers for part in one.unreadable)),
        problems=tuple(dict.fromkeys(part for one in answers for part in one.problems)),
        inner_messages=max(
            (one.inner_messages for one in answers if one.inner_messages is not None), default=None
        ),
    )
