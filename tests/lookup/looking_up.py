"""Bulk look-ups in tests: keys in, results out, compared with queries one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

import reput
from reput.base.tasks import Runner, SerialRunner
from reput.core.store.store_reader import StoreReader
from reput.engine.lookup.driver import look_up
from reput.engine.lookup.key_parts import stage_parts
from tests.query.stores import offsets

Asked = tuple[str, str, int | None, int | None]


@dataclass(frozen=True)
class Found:
    """Physical offsets in the order of the answer, and its coverage.

    A look-up proves IndexFiles, but a query only spot-checks them. So a query may scan another part of the log, and
    find another number of problems: `indexed_bytes` and `problems` are not compared.
    """

    offsets: list[int]
    coverage: dict[str, Any]
    indexed_bytes: int = field(compare=False)
    problems: int = field(compare=False)

    @classmethod
    def of(cls, coverage: dict[str, Any], problems: int) -> Self:
        indexed, scanned = coverage.pop("indexed_bytes"), coverage.pop("scanned_bytes")
        return cls([], {**coverage, "looked_at_bytes": indexed + scanned}, indexed, problems)


def batch_of(asked: Sequence[Asked]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*asked, strict=True)] or [[], [], [], []]
    kinds = (pa.string(), pa.string(), pa.int64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    arrays.append(pa.array(range(len(asked)), pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, names=["topic", "key", "begin", "end", "place"])


def bulk(
    folder: Path,
    stores: Sequence[Path | str],
    asked: Sequence[Asked],
    index: Path | None = None,
    storage_options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> list[Found]:
    """Return the result of a look-up for each row, in the order of the rows."""
    folder.mkdir(parents=True)
    parts = list(stage_parts([batch_of(asked)], folder / "keys"))
    opened = [StoreReader(path, index=index, storage_options=storage_options) for path in stores]
    answer = look_up(
        runner or SerialRunner(), opened, parts, str(folder), ("physical_offset", "store")
    )
    for store in opened:
        store.close()
    found: list[Found] = []
    flat = replace(answer, is_flat=True)
    for number in range(len(parts)):
        for batch, flat_batch in zip(answer.batches(number), flat.batches(number), strict=True):
            assert batch["coverage"].field("is_complete").equals(flat_batch["is_complete"])
            for row in batch.to_pylist():
                assert row["place"] in (len(found) - 1, len(found)), "rows keep their order"
                if row["place"] == len(found):
                    coverage = dict(row["coverage"])
                    problems = coverage.pop("problems")
                    found.append(Found.of(coverage, len(problems)))
                if row["physical_offset"] is not None:
                    found[-1].offsets.append(row["physical_offset"])
    assert len(found) == len(asked), "each key has an answer"
    counts = answer.counts()
    assert counts.rows == len(asked)
    assert counts.messages == sum(len(each.offsets) for each in found)
    return found


def one_by_one(path: Path, asked: Sequence[Asked], index: Path | None = None) -> list[Found]:
    """Return what a look-up of these keys should return: the results of one exact query per key."""
    found = []
    with reput.open_store(path, index=index) as opened:
        for question in asked:
            result = opened.query(*question)
            coverage = result.coverage
            told = {
                "is_complete": result.is_complete,
                "log_bytes": coverage.log.size_bytes,
                "indexed_bytes": coverage.indexed_bytes,
                "scanned_bytes": coverage.scanned_bytes,
                "unreadable_bytes": coverage.unreadable_bytes,
            }
            found.append(Found.of(told, len(coverage.problems)))
            found[-1].offsets.extend(offsets(result))
    return found
