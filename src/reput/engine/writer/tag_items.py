"""Find the message from which on a store's IndexFiles have an item for the tags of each message.

A broker of 5.4 or later puts this item after those of the message's keys (`IndexService.buildIndex`). No setting and no
name of a file shows it, so records are compared with their items. In a store of an older broker that was upgraded, only
later messages have such items.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reput.core import CommitLogReader, IndexFileReader, IndexFileSetReader
from reput.errors import ReputError, StoreError, raise_if_refused

# Records that are examined, one after the other, until one shows whether tags are indexed.
_MOST_RECORDS = 16
# A record with more items than this shows nothing.
_MOST_ITEMS = 64


class _Sample(NamedTuple):
    """What the items of one record show: items `first` to `last`, and whether one of them is for the record's tags.

    has_tags  None if the items do not show it
    """

    first: int
    last: int
    has_tags: bool | None


def index_tags_from(
    index: IndexFileSetReader, log: CommitLogReader, *, is_since_5_4: bool
) -> int | None:
    """Return the physical offset from which messages have an item for their tags; None if no message has one.

    If the IndexFiles show nothing, the version decides. If they have no such items although the version is 5.4 or
    later, the broker was upgraded, and will put them for messages after the last item. If only older messages have such
    items, the broker was rolled back: the result is None, and a check accepts these items.
    """
    otherwise = 0 if is_since_5_4 else None
    try:
        files = [file for file in index.current() if file.next_item > 1]
        samples = [_FileSamples(file, log, is_oldest=file is files[0]) for file in files]
        return _tags_from(samples, otherwise)
    except (ReputError, OSError) as error:  # Without a readable log or index, nothing shows it.
        raise_if_refused(error)
        return otherwise


def _tags_from(samples: Sequence[_FileSamples], otherwise: int | None) -> int | None:
    newest = next(filter(None, (file.newest() for file in reversed(samples))), None)
    if newest is None:
        return otherwise
    if not newest.has_tags:
        was_rolled_back = otherwise is None or any(file.has_tags() for file in reversed(samples))
        return None if was_rolled_back else samples[-1].last_offset + 1
    # Files before `number` begin with messages without items for tags.
    number = bisect_left(samples, True, key=_FileSamples.begins_with_tags)
    return 0 if number == 0 else samples[number - 1].first_with_tags(samples[number:])


class _FileSamples:
    """Compares records with their items in one IndexFile."""

    def __init__(self, file: IndexFileReader, log: CommitLogReader, *, is_oldest: bool) -> None:
        self._file, self._log, self._is_oldest = file, log, is_oldest
        self._last = file.next_item - 1

    @property
    def last_offset(self) -> int:
        return self._file.offset(self._last)

    def newest(self) -> _Sample | None:
        """Return the newest record whose items show whether tags are indexed; None if no recent one does."""
        last, sample = None, None
        for number, one in enumerate(self._backwards()):
            # The items of the last record may be incomplete, because a broker is writing them.
            if number == 0:
                last = one
            elif one.has_tags is not None:
                sample = one
                break
        return sample or (last if last is not None and last.has_tags is not None else None)

    def has_tags(self) -> bool:
        """Return whether the file's first or newest messages that show it have items for tags."""
        first, newest = next(self._samples_from(self._first_in_log()), None), self.newest()
        return any(sample is not None and bool(sample.has_tags) for sample in (first, newest))

    def begins_with_tags(self) -> bool:
        """Return whether the file's first messages have items for tags; True if they do not show it."""
        sample = next(self._samples_from(self._first_in_log()), None)
        return sample is None or bool(sample.has_tags)

    def first_with_tags(self, later: Sequence[_FileSamples]) -> int:
        """Return the physical offset of the first message with an item for its tags.

        The file begins with messages without such items. If it has none, the message is in a file of `later`.
        """
        without, with_tags = self._first_in_log(), self._last + 1
        while with_tags - without > 1:
            middle = (without + with_tags) // 2
            sample = next(self._samples_from(middle, with_tags), None)
            if sample is None or sample.has_tags:
                with_tags = middle
            else:
                without = sample.last
        if with_tags <= self._last:
            return self._file.offset(with_tags)
        return later[0]._file.offset(1) if later else self.last_offset + 1

    def _first_in_log(self) -> int:
        numbers = range(1, self._last + 1)
        return 1 + bisect_left(numbers, self._log.min_offset, key=self._file.offset)

    def _backwards(self) -> Iterator[_Sample]:
        number = self._last
        for _ in range(_MOST_RECORDS):
            if number < 1:
                return
            sample = self._sample_at(number)
            yield sample
            number = sample.first - 1

    def _samples_from(self, number: int, stop: int | None = None) -> Iterator[_Sample]:
        """Yield what records show, from the record of an item on, if their items show something."""
        for _ in range(_MOST_RECORDS):
            if number >= (self._last + 1 if stop is None else stop):
                return
            sample = self._sample_at(number)
            if sample.has_tags is not None:
                yield sample
            number = sample.last + 1

    def _sample_at(self, number: int) -> _Sample:
        file = self._file
        offset, first, last = file.offset(number), number, number
        while first > 1 and last - first < _MOST_ITEMS and file.offset(first - 1) == offset:
            first -= 1
        while last < self._last and last - first < _MOST_ITEMS and file.offset(last + 1) == offset:
            last += 1
        return _Sample(first, last, self._has_tags(offset, first, last))

    def _has_tags(self, offset: int, first: int, last: int) -> bool | None:
        try:
            record = self._log.locate(offset).keyed()
        except StoreError:
            return None
        if record.stated_offset != offset or not record.tags:
            return None
        count, keys = last - first + 1, len(record.keys)
        if count == keys + 1 and record.has_tags_hash(self._file.item(last).key_hash):
            return True
        # The record's items may begin in the previous file, or end in the next one.
        is_whole = (first > 1 or self._is_oldest) and last < self._file.index_items - 1
        return False if count == keys and is_whole else None
