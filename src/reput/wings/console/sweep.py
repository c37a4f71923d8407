"""Search messages by time and content, newest first, by reading the log backwards in pieces.

`reput.core.log.known_ranges` divides the log into pieces that begin at a record, and remembers their store times, so
pieces outside the time window are skipped. The search does not use ConsumeQueues or IndexFiles.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import Finding, Kind
from reput.core import MessageStore, OffsetRange, ScanBuffers, TimedPiece, unwrap
from reput.engine.messages import TailFilter
from reput.engine.tables import Condition, LogRange, RangeBatches
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.format.bodies import sent_body
from reput.format.commit_log import SYS_FLAG_COMPRESSED, SYS_FLAG_INNER_BATCH, MessageExt
from reput.format.properties import LMQ_PREFIX
from reput.wings.console.content import MOST_JSON_BYTES, Content, How

_EVER = 2**63 - 1
# Times that conditions can express: the years 1970 to 9999.
_FIRST_MS, _LAST_MS = 0, 253_402_300_799_999
_BATCH_BYTES = 1 << 20
_CHECKED_AT_ONCE = 16
# Messages with these flags are decoded one by one.
_ASIDE = SYS_FLAG_COMPRESSED | SYS_FLAG_INNER_BATCH
Offsets = npt.NDArray[np.int64]
# Unused buffers. A search takes buffers from this list to read one piece of the log, and then puts them back.
_SPARE = list[ScanBuffers]()


class SweptTo(NamedTuple):
    """The progress of a sweep.

    Attributes:
        offset: A physical offset: the log has been searched from there to its end.
        left_bytes: Bytes of the log before this offset, which are not searched yet.
        swept_bytes: Bytes of the log that were read.
    """

    offset: int
    left_bytes: int
    swept_bytes: int


class Sweep:
    """One search of the log.

    Attributes:
        damage: Unreadable parts of the log. Complete only after the sweep.
        unsearched: Number of messages whose body is too long to search, or cannot be decompressed.
        read: Ranges of the log that were read so far.
    """

    def __init__(
        self,
        store: MessageStore,
        wanted: TailFilter,
        content: Content | None = None,
        *,
        after: int | None = None,
        most_body_bytes: int | None = None,
    ) -> None:
        """Prepare a search.

        Args:
            store: An open store.
            wanted: Conditions on messages. Key and tags must not be set.
            content: A condition on bodies or properties; None without a condition.
            after: Physical offset at which an earlier search stopped. A search goes from the newest message to the
                oldest, so this search continues with the messages before this offset.
            most_body_bytes: Maximum decompressed size of a body that is searched.
        """
        self._store, self._log, self._wanted = store, store.commit_log, wanted
        self._content, self._stop = content, _EVER if after is None else after
        self._most_body_bytes = most_body_bytes
        self._damage: dict[Finding, None] = {}
        self.unsearched = 0
        self.read: list[OffsetRange] = []

    @property
    def damage(self) -> tuple[Finding, ...]:
        return tuple(self._damage)

    def searched(self) -> list[OffsetRange]:
        """Return the ranges that were read, or have no message of the time window according to their store times."""
        return [*self.read, *self._store.known_ranges.outside(*self._window)]

    @property
    def _window(self) -> tuple[int, int]:
        begin = -_EVER if self._wanted.begin is None else self._wanted.begin
        return begin, _EVER if self._wanted.end is None else self._wanted.end

    def steps(self) -> Generator[MessageExt | SweptTo, None, None]:
        """Search, and yield the found messages, newest first, and the progress after each piece.

        Raises:
            StoreAccessError, StoreChangedError: A file cannot be read, or became shorter.
        """
        self._log.refresh()
        self._damage |= dict.fromkeys(self._log.holes())
        if self._stop >= self._log.files_end:
            end = self._store.known_ranges.end()
            topics = None if self._wanted.topic is None else {self._wanted.topic}
            lost = self._store.lost_end(end) or self._store.lost_end_of_queues(end, topics)
            self._damage |= {} if lost is None else {lost: None}
        swept = 0
        for piece in self._store.known_ranges.pieces(*self._window, newest_first=True):
            if piece.start >= self._stop:
                continue
            try:
                offsets = self._candidates(piece)
            except StoreNotFoundError:  # The file has expired, and so have all older ones.
                return
            self.read.append(OffsetRange(piece.stop, piece.stop))
            for number, offset in enumerate(reversed(offsets)):
                # Messages before this one are not searched yet.
                self.read[-1] = OffsetRange(offset, piece.stop)
                yield from self._messages(offset)
                # Bodies may take long to decompress and search, so report progress within the piece.
                if self._content is not None and number % _CHECKED_AT_ONCE == _CHECKED_AT_ONCE - 1:
                    yield SweptTo(offset, max(offset - self._log.min_offset, 0), swept)
            swept += piece.stop - piece.start
            self.read[-1] = OffsetRange(piece.start, piece.stop)
            yield SweptTo(piece.start, max(piece.start - self._log.min_offset, 0), swept)

    def _candidates(self, piece: TimedPiece) -> list[int]:
        """Return the physical offsets of messages that may match in a piece of the log, ascending."""
        file = self._log.file_at(piece.start)
        if file is None:
            return []
        is_last = file == self._log.files[-1]
        part = LogRange(file, piece.start, piece.stop, at_record=True, ends_log=is_last)
        columns = ["physical_offset", "sys_flag"]
        if self._content is not None:
            columns += ["body"] * self._content.reads_bodies
            columns += ["properties"] * self._content.reads_properties
        buffers = _SPARE.pop() if _SPARE else ScanBuffers()
        try:
            batches = RangeBatches(
                part, columns, self._conditions(piece), on_corrupt="skip", decompressed=False,
                batch_bytes=_BATCH_BYTES, open_file=self._log.source.open, buffers=buffers,
            )  # fmt: skip
            found: list[int] = []
            for batch in batches:
                offsets: Offsets = batch.column("physical_offset").to_numpy()
                found += offsets[self._may_match(batch) & (offsets < self._stop)].tolist()
            self._damage |= dict.fromkeys(batches.report.damage)
            return found
        finally:
            _SPARE.append(buffers)

    def _conditions(self, piece: TimedPiece) -> list[Condition]:
        wanted, found = self._wanted, list[Condition]()
        # Messages of a light queue (LMQ) have another topic, and name the queue in a property. `takes` checks this
        # property later.
        if wanted.topic is not None and not wanted.topic.startswith(LMQ_PREFIX):
            found.append(Condition("topic", "=", wanted.topic))
        for sign, bound, is_met in (
            (">=", wanted.begin, wanted.begin is None or wanted.begin <= piece.least),
            ("<=", wanted.end, wanted.end is None or piece.most <= wanted.end),
        ):
            if bound is not None and not is_met and _FIRST_MS <= bound <= _LAST_MS:
                moment = datetime.fromtimestamp(bound / 1000, UTC)
                exact = moment.replace(microsecond=bound % 1000 * 1000)
                found.append(Condition("store_timestamp", sign, exact))
        return found

    def _may_match(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        if self._content is None:
            return np.ones(len(batch), np.bool_)
        # The stored body of a compressed message or inner batch does not show whether the message matches. So select it
        # in any case here. `_messages` decodes the body later.
        found: npt.NDArray[np.bool_] = batch.column("sys_flag").to_numpy() & _ASIDE != 0
        if self._content.reads_bodies:
            bodies = batch.column("body")
            found |= self._content.of_bodies(bodies)
            if self._content.how is How.JSON:
                found |= pc.binary_length(bodies).to_numpy() > MOST_JSON_BYTES
        if self._content.reads_properties:
            found |= self._content.of_properties(batch.column("properties"))
        return found

    def _messages(self, offset: int) -> Iterator[MessageExt]:
        """Yield the message at an offset if it matches, or the matching messages of an inner batch, newest first."""
        try:
            record = self._log.locate(offset)
        except (MessageNotFoundError, CorruptMessageError):
            # The reader of the piece has already reported the damage.
            return
        if not self._wanted.takes(record):
            return
        message = record.message()
        try:
            inner = unwrap(message)
        except CorruptMessageError as error:
            file = self._log.file_at(offset)
            if file is not None:
                lost = file.lost(offset, offset, error.reason, Kind.UNDECODABLE_MESSAGE)
                self._damage[lost] = None
            inner = (message,)
        yield from filter(self._contains, reversed(inner))

    def _contains(self, message: MessageExt) -> bool:
        content = self._content
        if content is None:
            return True
        sent = sent_body(message, self._most_body_bytes) if content.reads_bodies else None
        body = b"" if sent is None or sent.error else sent.data
        found = content.takes(body, message.properties if content.reads_properties else {})
        is_left_out = sent is not None and (
            sent.error is not None or (content.how is How.JSON and len(body) > MOST_JSON_BYTES)
        )
        self.unsearched += is_left_out and not found
        return found
