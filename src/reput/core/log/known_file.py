"""Define facts that a scan finds about the records of a log file: store times, queues, and ids without an index entry.

If a record has several UNIQ_KEYs, a broker indexes only the last one. A scan finds the others.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from reput.base import Finding
from reput.core.log.offset_range import OffsetRange

# Version of the stored form. Results of other versions are ignored.
_FORM = 5
_HASH_BYTES, _OFFSET_BYTES = 4, 8


class TimedPiece(NamedTuple):
    """Physical offsets [start, stop) of one file, and the least and the greatest store time (ms) in them.

    last      physical offset of the last record
    ascends   whether each store time is at least the previous one
    is_whole  whether every record could be read
    """

    start: int
    stop: int
    least: int
    most: int
    last: int
    ascends: bool = False
    is_whole: bool = True

    def is_outside(self, begin: int, end: int) -> bool:
        """Return whether no message of the piece was stored between two times, both inclusive."""
        return self.is_whole and (self.most < begin or end < self.least)

    @staticmethod
    def joined(pieces: Collection[TimedPiece]) -> TimedPiece | None:
        """Join adjacent pieces into one; return None without pieces."""
        if not pieces:
            return None
        every = list(pieces)
        return TimedPiece(
            every[0].start, every[-1].stop,
            min(one.least for one in every), max(one.most for one in every), every[-1].last,
            all(one.ascends for one in every) and all(a.most <= b.least for a, b in pairwise(every)),
            all(one.is_whole for one in every),
        )  # fmt: skip


class ReplacedIds(NamedTuple):
    """Message ids without an index entry: if a record has several UNIQ_KEYs, a broker indexes only the last one.

    hashes   ascending int32 hashes of topic#id, as bytes
    offsets  int64 physical offset of each id's record, as bytes
    """

    hashes: bytes = b""
    offsets: bytes = b""

    def places(self, hash_set: Collection[int], within: OffsetRange) -> list[int]:
        """Return physical offsets, ascending, of records in a range that have an id with one of the hashes `hash_set`.

        Different ids may have the same hash.
        """
        hashes, offsets = memoryview(self.hashes).cast("i"), memoryview(self.offsets).cast("q")
        if len(hashes) < len(hash_set):
            # With few stored hashes, an intersection is faster than a search for each wanted hash.
            hash_set = set(hash_set).intersection(hashes)
        places: set[int] = set()
        for key_hash in hash_set:
            row = bisect_left(hashes, key_hash)
            while row < len(hashes) and hashes[row] == key_hash:
                if within.start <= offsets[row] < within.stop:
                    places.add(offsets[row])
                row += 1
        return sorted(places)


class StatedOffsets(NamedTuple):
    """A queue with messages in a range, and the least and the greatest queue offset that its dispatched messages state.

    Further queues of messages (INNER_MULTI_DISPATCH) are not included. `first` and `last` are -1 if no message of the
    queue is dispatched.
    """

    topic: str
    queue_id: int
    first: int = -1
    last: int = -1

    def together(self, later: StatedOffsets) -> StatedOffsets:
        """Return the offsets of both for the same queue."""
        if self.first < 0 or later.first < 0:
            return later if self.first < 0 else self
        return later._replace(first=min(self.first, later.first), last=max(self.last, later.last))


@dataclass(frozen=True, slots=True)
class KnownFile:
    """Facts about the records in [start, stop) of a file.

    pieces   the least and the greatest store time in each part of this range
    ids      message ids without an index entry; None if they were not searched for
    queues   the queues with messages in this range; None if they were not collected
    rolled_back  physical offsets of rolled-back messages, which have no index entry; collected with `queues`, None if
                 there are too many
    damage   unreadable ranges
    stamp    stamp of the file before the scan (inode, size, ctime); empty if messages may still be appended to it
    kept_at  stamp of a growing file when its results were stored in the cache
    witness  CRC of the last record, which shows that the file still has these records
    """

    start: int
    stop: int
    pieces: tuple[TimedPiece, ...] = ()
    ids: ReplacedIds | None = None
    queues: tuple[StatedOffsets, ...] | None = None
    damage: tuple[Finding, ...] = ()
    stamp: tuple[int, ...] = ()
    kept_at: tuple[int, ...] = ()
    witness: int = 0
    rolled_back: tuple[int, ...] | None = ()

    def encoded(self) -> bytes:
        """Return the stored form of facts."""
        ids = self.ids or ReplacedIds()
        head = {
            "form": _FORM, "range": [self.start, self.stop], "stamp": self.stamp, "kept_at": self.kept_at,
            "pieces": self.pieces, "witness": self.witness,
            "queues": self.queues, "rolled_back": self.rolled_back,
            "ids": None if self.ids is None else len(ids.hashes) // _HASH_BYTES,
        }  # fmt: skip
        return json.dumps(head).encode() + b"\n" + ids.hashes + ids.offsets

    @classmethod
    def decoded(cls, data: bytes) -> KnownFile | None:
        """Decode the result of `encoded`. Raises ValueError, TypeError, LookupError, OverflowError, RecursionError."""
        text, _, rest = data.partition(b"\n")
        head: dict[str, Any] = json.loads(text)
        if head["form"] != _FORM:
            return None
        start, stop = map(int, head["range"])
        pieces = tuple(
            TimedPiece(start, stop, least, most, last, bool(ascends), bool(is_whole))
            for *numbers, ascends, is_whole in head["pieces"]
            for start, stop, least, most, last in [map(int, numbers)]
        )
        ids = None
        if head["ids"] is not None:
            middle = int(head["ids"]) * _HASH_BYTES
            ids = ReplacedIds(rest[:middle], rest[middle:])
            if len(ids.hashes) * _OFFSET_BYTES != len(ids.offsets) * _HASH_BYTES:
                return None
        queues = head["queues"]
        if queues is not None:
            queues = tuple(StatedOffsets(str(topic), *map(int, rest)) for topic, *rest in queues)
        stamp, kept_at = (tuple(map(int, head[name])) for name in ("stamp", "kept_at"))
        witness, rolled_back = int(head["witness"]), head["rolled_back"]
        if rolled_back is not None:
            rolled_back = tuple(map(int, rolled_back))
        return cls(
            start, stop, pieces, ids, queues, stamp=stamp, kept_at=kept_at, witness=witness,
            rolled_back=rolled_back,
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: Sequence[KnownFile]) -> KnownFile | None:
        """Join the facts about adjacent ranges of a file; None if a range is missing, or not all queues were collected.

        Scans of splits collect these facts, without ids.
        """
        if not parts or any(one.stop != other.start for one, other in pairwise(parts)):
            return None
        queues: dict[tuple[str, int], StatedOffsets] = {}
        for part in parts:
            if part.queues is None:
                return None
            for queue in part.queues:
                before = queues.get(queue[:2])
                queues[queue[:2]] = queue if before is None else before.together(queue)
        rolled_back: tuple[int, ...] | None = ()
        for part in parts:
            is_known = rolled_back is not None and part.rolled_back is not None
            rolled_back = (*(rolled_back or ()), *(part.rolled_back or ())) if is_known else None
        return cls(
            parts[0].start,
            parts[-1].stop,
            tuple(piece for part in parts for piece in part.pieces),
            queues=tuple(queues.values()),
            rolled_back=rolled_back,
        )
