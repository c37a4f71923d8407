"""How much of the log queries find through the IndexFiles, and by what each part is found."""

from __future__ import annotations

from collections.abc import Iterable

from reput.examine.measuring.figures import CoveredRange, IndexCoverage
from reput.index.key_index import Basis
from reput.index.plan import Segment
from reput.query.message_store import MessageStore


def index_coverage(store: MessageStore) -> IndexCoverage:
    """How much of the log queries find through the IndexFiles. Raises StoreAccessError."""
    segments = store.key_planner().segments()
    indexed = [(segment, segment.part) for segment in segments if segment.part is not None]
    bases = {part.name: part.basis for _, part in indexed}
    end = store.end_offset()
    return IndexCoverage(
        end - store.begin_offset(),
        sum(segment.stop - segment.start for segment, _ in indexed),
        sum(basis is Basis.SPOT_CHECKED for basis in bases.values()),
        len(bases),
        covered_log(segments, end),
    )


def covered_log(segments: Iterable[Segment], log_end: int) -> list[CoveredRange]:
    """Ascending, to the end of the log; a look-up takes the newest first, and what follows in the last file."""
    found: list[CoveredRange] = []
    for segment in sorted(segments, key=lambda one: one.start):
        basis = "scanned" if segment.part is None else str(segment.part.basis)
        begin, stop = segment.start, min(segment.stop, log_end)
        if begin >= stop:
            continue
        if found and (found[-1].basis, found[-1].end) == (basis, begin):
            begin = found.pop().begin
        found.append(CoveredRange(begin, stop, basis))
    return found
