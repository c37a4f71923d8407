"""Describe the coverage of a look-up's answer: which part of the log was searched for each key, and how.

A segment is a range of the log that one IndexFile covers. An index entry is stale if its record is missing, or does not
have the entry's key. Then the segment is scanned for this key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import Finding
from reput.core import Coverage
from reput.errors import UsageError

CoverageForm = Literal["summary", "rows"]
"""The form of an answer's coverage.

"summary": each row has `is_complete`, and the metadata of the answer has the whole coverage.
"rows": each row has the whole coverage.
"""

COVERAGE_COLUMN = "coverage"
IS_COMPLETE = "is_complete"
METADATA_KEY = "reput.coverage"
COVERAGE_TYPE = pa.struct(
    [
        ("is_complete", pa.bool_()),
        ("log_bytes", pa.int64()),
        ("indexed_bytes", pa.int64()),
        ("scanned_bytes", pa.int64()),
        ("unreadable_bytes", pa.int64()),
        ("problems", pa.list_(pa.field("element", pa.string()))),
    ]
)
"""Coverage over all stores: bytes of the log, bytes covered by IndexFiles, scanned bytes, and unreadable bytes.

`problems` has a line for each IndexFile or chain that could not be used. The coverage is complete if everything was
readable.
"""


@dataclass(frozen=True, slots=True)
class LostSegment:
    """A segment whose index entries are not trusted for some keys. Its range was scanned for these keys instead.

    numbers  int64, sorted: the numbers that identify these keys (`candidates.PART_SHIFT`)
    newest   for each key, the physical offset of its newest wrong entry, which leads to no message with the key. Older
             entries of the key are ignored. -1 if no entry is wrong, but the key's chain is broken
    """

    store: int
    segment: int
    numbers: npt.NDArray[np.int64]
    newest: npt.NDArray[np.int64]
    problem: Finding
    indexed_bytes: int = 0
    scanned_bytes: int = 0
    unreadable_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PartlyRead:
    """Unreadable ranges of a store that were needed only for some keys.

    numbers  int64, sorted: the numbers that identify these keys (`candidates.PART_SHIFT`)
    """

    store: int
    numbers: npt.NDArray[np.int64]
    unreadable: tuple[Finding, ...]

    @property
    def unreadable_bytes(self) -> int:
        return sum(lost.length for lost in self.unreadable)


@dataclass(frozen=True, slots=True)
class UnwrappedBatches:
    """Inner batches (5.x) of a store. Their messages are in no index, so all batches were unwrapped.

    keys      number of keys that may belong to an inner message, because their topic has batch queues
    messages  number of messages in batches; every message was compared with these keys
    unreadable_bytes  unreadable bytes in and between batches
    """

    store: int
    keys: int
    messages: int
    unreadable_bytes: int = 0

    def as_json(self) -> dict[str, int]:
        return {
            "keys": self.keys,
            "messages": self.messages,
            "unreadable_bytes": self.unreadable_bytes,
        }


class FailedStore(NamedTuple):
    """A store that could not be opened: its name, the error, and the replica that was searched instead."""

    name: str
    error: str
    answered_by: str | None

    def __str__(self) -> str:
        text = f"{self.name}: not searched: {self.error}"
        return (
            f"{text}; its replica {self.answered_by} was searched instead"
            if self.answered_by
            else text
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "store": self.name, "is_complete": False, "error": self.error,
            "answered_by": self.answered_by, "log_bytes": 0, "indexed_bytes": 0,
            "scanned_bytes": 0, "unreadable_bytes": 0, "problems": [], "lost": [],
            "inner_batches": None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class LookupCoverage:
    """The coverage of a look-up.

    stores   coverage of each store, in the given order, for keys whose entries can all be trusted
    lost     segments whose index entries are not trusted for some keys, and which were scanned for these keys instead
    batches  inner batches that were unwrapped for keys of topics with batch queues
    partly   ranges that were needed only for some keys, and were unreadable
    failed   stores that could not be opened
    """

    stores: list[Coverage]
    lost: list[LostSegment] = field(default_factory=list)
    batches: list[UnwrappedBatches] = field(default_factory=list)
    partly: list[PartlyRead] = field(default_factory=list)
    failed: tuple[FailedStore, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether the look-up could read everything that it had to search, for every key."""
        has_all = all(store.is_complete for store in self.stores) and not self._misses_store
        return has_all and not any(part.unreadable_bytes for part in self._of_some_keys())

    @property
    def _misses_store(self) -> bool:
        """Return whether a store could not be opened, and no replica of it was searched instead."""
        return any(store.answered_by is None for store in self.failed)

    def _of_some_keys(self) -> list[LostSegment | PartlyRead]:
        return [*self.lost, *self.partly]

    def as_json(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return a row for each store: how many bytes of its log an index covered, and how many were scanned.

        These numbers apply to keys whose index entries are trusted. `lost` lists the parts of the log that were scanned
        for some keys, because the index entries of these parts could not be used. `inner_batches` has the number of
        keys that were compared with messages of inner batches. This number is None if no key's topic has inner batches.
        """
        return [
            {
                "store": name,
                "is_complete": store.is_complete,
                "error": None,
                "answered_by": None,
                "log_bytes": store.log.size_bytes,
                "indexed_bytes": store.indexed_bytes,
                "scanned_bytes": store.scanned_bytes,
                "unreadable_bytes": store.unreadable_bytes,
                "problems": list(map(str, store.problems)),
                "lost": [
                    {
                        "keys": len(lost.numbers),
                        "problem": str(lost.problem),
                        "scanned_bytes": lost.scanned_bytes,
                        "unreadable_bytes": lost.unreadable_bytes,
                    }
                    for lost in self.lost
                    if lost.store == number
                ],
                "inner_batches": next(
                    (part.as_json() for part in self.batches if part.store == number), None
                ),
            }
            for number, (name, store) in enumerate(zip(names, self.stores, strict=True))
        ] + [store_failure.as_json() for store_failure in self.failed]

    def complete(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Return for each of these keys whether all ranges that were searched for it were readable."""
        # The coverage of `self.stores` applies to all keys. The unreadable ranges of `_of_some_keys` affect only some
        # keys.
        is_complete = np.full(len(numbers), all(store.is_complete for store in self.stores))
        for part in self._of_some_keys():
            if part.unreadable_bytes:
                is_complete[np.isin(numbers, part.numbers)] = False
        return pa.array(is_complete & (not self._misses_store))

    def column(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Return the coverage of each of these keys, as COVERAGE_TYPE."""
        indexed = np.full(len(numbers), sum(store.indexed_bytes for store in self.stores))
        scanned = np.full(len(numbers), sum(store.scanned_bytes for store in self.stores))
        unreadable = np.full(len(numbers), sum(store.unreadable_bytes for store in self.stores))
        common = [str(problem) for store in self.stores for problem in store.problems]
        common += map(str, self.failed)
        # Each key's row lists the numbers of the problems that affect the key. `line` is the concatenation of the lists
        # of all rows. For each element of `line`, `owner` has the row to which it belongs. A problem of a whole store
        # belongs to all rows.
        owner = [np.repeat(np.arange(len(numbers)), len(common))]
        line = [np.tile(np.arange(len(common)), len(numbers))]
        for place, segment in enumerate(self.lost):
            rows = np.flatnonzero(np.isin(numbers, segment.numbers))
            # For these keys, the segment was scanned instead of being covered by its index.
            indexed[rows] -= segment.indexed_bytes
            scanned[rows] += segment.scanned_bytes
            unreadable[rows] += segment.unreadable_bytes
            owner.append(rows)
            line.append(np.full(len(rows), len(common) + place))
        for part in self.partly:
            unreadable[np.isin(numbers, part.numbers)] += part.unreadable_bytes
        texts = common + [str(segment.problem) for segment in self.lost]
        lines = pa.array(texts, pa.string())
        owners = np.concatenate(owner)
        order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=len(numbers))
        bounds = np.zeros(len(numbers) + 1, np.int32)
        np.cumsum(counts, out=bounds[1:])
        problems = pa.ListArray.from_arrays(
            pa.array(bounds), lines.take(pa.array(np.concatenate(line)[order])),
            type=COVERAGE_TYPE.field("problems").type,
        )  # fmt: skip
        log = sum(store.log.size_bytes for store in self.stores)
        return pa.StructArray.from_arrays(
            [
                self.complete(numbers),
                pa.array(np.full(len(numbers), log)),
                *map(pa.array, (indexed, scanned, unreadable)),
                problems,
            ],
            fields=list(COVERAGE_TYPE),
        )


def coverage_of(answer: Any) -> list[dict[str, Any]]:
    """Return the coverage of a look-up's answer: for each store, how many bytes of its log an index covered.

    Args:
        answer: The result of `reput.look_up`, or an Arrow table made from it. pandas and Polars drop the metadata
            that holds the coverage.

    Raises:
        UsageError: The answer has no coverage.
    """
    schema = answer if isinstance(answer, pa.Schema) else getattr(answer, "schema", None)
    text = (getattr(schema, "metadata", None) or {}).get(METADATA_KEY.encode())
    if text is None:
        raise UsageError(
            "this table has no coverage: pass the result of look_up(..., coverage='summary')",
            arguments=["look_up"],
        )
    stores: list[dict[str, Any]] = json.loads(text)
    return stores
