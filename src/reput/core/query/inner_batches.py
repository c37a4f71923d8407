"""Find messages inside inner batches (5.x). No IndexFile has them, so the records that contain them are scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import KeyedRecord, LocatedRecord
from reput.core.log.walk import WALKED_BYTES, LogWalk
from reput.core.query.inner_batch import OpenBatch, inner_records, open_batch
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.java_string import decode_utf8, joined_surrogates

_REPLACEMENT = "\ufffd"
IsWanted = Callable[[KeyedRecord], bool]
MayHold = Callable[[OpenBatch], bool]


def may_hold_any(texts: Iterable[str]) -> MayHold:
    """Return a function that tests whether a batch may contain one of these keys.

    The function searches for the bytes of the keys.
    """
    needles: list[bytes] = []
    for text in map(joined_surrogates, texts):
        if _REPLACEMENT in text or any(map(_is_surrogate, text)):
            # The key contains U+FFFD or a surrogate without its pair, so its stored bytes are unknown: Java decodes any
            # malformed bytes to U+FFFD, and such a surrogate has no bytes in UTF-8. So any batch may contain the key.
            return lambda batch: True
        needles.append(text.encode())
    return lambda batch: any(needle in batch.data for needle in needles)


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


class InnerMessage(NamedTuple):
    """A message of an inner batch: its number in the batch, from 1, and its record.

    The record has the physical offset of the batch.
    """

    number: int
    located: LocatedRecord


class InnerBatches:
    """The inner batches of some topics.

    searched    number of inner messages examined
    unreadable  unreadable records of any topic
    unopened    for each topic: batches that could not be unwrapped
    """

    def __init__(
        self,
        log: CommitLogReader,
        topics: frozenset[str],
        may_hold: MayHold,
        *,
        walks_first: bool = True,
    ) -> None:
        """Search the batches for which `may_hold` is true. Messages of all other batches are only counted.

        With `walks_first`, the first bytes of a search are read in plain Python. This takes less time than loading the
        kernels.
        """
        self._log, self._topics, self._may_hold = log, topics, may_hold
        self._left_bytes = WALKED_BYTES if walks_first else 0
        self.searched = 0
        self.unreadable: list[Finding] = []
        self.unopened: dict[str, list[Finding]] = {}

    @property
    def damage(self) -> list[Finding]:
        """Return the ranges that could not be read or unwrapped."""
        return [
            *self.unreadable,
            *(damage for of_topic in self.unopened.values() for damage in of_topic),
        ]

    def find(self, start: int, stop: int, matches: IsWanted) -> list[LocatedRecord]:
        """Return the wanted messages of a range. Raises as `messages` does."""
        messages = self.messages(start, stop)
        return [message.located for message in messages if matches(message.located.keyed())]

    def messages(self, start: int, stop: int) -> Iterator[InnerMessage]:
        """Yield the inner messages of records that begin in [start, stop). A record must begin at `start`.

        Raises StoreAccessError, StoreChangedError.
        """
        for file in self._log.files:
            begin, end = max(start, file.start), min(stop, file.end)
            for located in self._records(begin, end) if begin < end else ():
                if self._is_batch(located):
                    yield from self._inner(located)

    def _records(self, start: int, stop: int) -> Iterator[LocatedRecord]:
        """Yield records that may be inner batches.

        The first bytes are read in plain Python, because loading the compiled kernels takes time. At damage, the
        kernels take over: they also find the later records of a damaged file.
        """
        middle = min(stop, start + self._left_bytes)
        walk = LogWalk(self._log, start, middle)
        for record in walk:
            if walk.damage:
                break
            yield record
        position = walk.damage[0].start if walk.damage else walk.position
        self._left_bytes = max(self._left_bytes - (position - start), 0)
        if (walk.at_end and not walk.damage) or position >= stop:
            return
        from reput.core.log.kernel_scan import find_inner_batches

        places, damage = find_inner_batches(self._log, position, stop)
        self.unreadable += damage
        for offset, size in places:
            try:
                yield self._log.locate(offset, size)
            except (MessageNotFoundError, CorruptMessageError):
                # The file has expired meanwhile.
                continue

    def _is_batch(self, located: LocatedRecord) -> bool:
        layout = located.layout
        return bool(layout.sys_flag & SYS_FLAG_INNER_BATCH) and _topic(located) in self._topics

    def _inner(self, located: LocatedRecord) -> Iterator[InnerMessage]:
        offset, data, layout = located
        try:
            batch = open_batch(data, layout)
            if not self._may_hold(batch):
                self.searched += batch.message_count()
                return
            inner = inner_records(data, layout, batch)
        except CorruptMessageError as error:
            file = self._log.file_at(offset)
            if file is not None:
                end = offset + layout.total_bytes
                lost = file.lost(offset, end, error.reason, Kind.UNDECODABLE_MESSAGE)
                self.unopened.setdefault(_topic(located), []).append(lost)
            return
        self.searched += len(inner)
        for number, (inner_data, inner_layout) in enumerate(inner, 1):
            # The TOTALSIZE in an inner record may be wrong, but clients use it. Replace it by the actual size.
            size = inner_layout.total_bytes.to_bytes(4, "big")
            record = LocatedRecord(offset, size + inner_data[len(size) :], inner_layout)
            yield InnerMessage(number, record)


def _topic(located: LocatedRecord) -> str:
    start = located.layout.topic_position
    return decode_utf8(located.data[start : start + located.layout.topic_bytes])
