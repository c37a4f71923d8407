"""Count rows of lake tables that have the content of erased messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import first_line
from reput.errors import StoreAccessError, UsageError
from reput.wings.erase.choosing import ChosenMessages
from reput.wings.erase.report import TableRows
from reput.wings.lakes import ReadableDestination, open_export

_BY_ID, _BY_PLACE = ("unique_key", "message_id"), ("topic", "physical_offset")


def rows_in(table: str, selection: ChosenMessages) -> TableRows:
    """Count the rows of erased messages in the last commit of a table.

    Raises:
        UsageError: nothing was exported there, or the table lacks the columns to compare.
        StoreAccessError.
    """
    destination = open_export(table)
    if not isinstance(destination, ReadableDestination):
        raise UsageError(
            f"{table}: reput cannot read the format of this table; remove it from `tables`",
            arguments=["tables"],
        )
    try:
        return TableRows(
            table, sum(_count(dataset, table, selection) for dataset in destination.datasets())
        )
    except (OSError, pa.ArrowException) as error:
        raise StoreAccessError(f"{table}: cannot be read: {first_line(error)}") from None


def _count(dataset: Any, table: str, selection: ChosenMessages) -> int:
    names = set(dataset.schema.names)
    columns = [name for name in _BY_ID if name in names]
    if not columns:
        columns = [name for name in _BY_PLACE if name in names]
        if len(columns) < len(_BY_PLACE):
            raise UsageError(
                f"{table}: has none of the columns {', '.join(_BY_ID)}, nor {' and '.join(_BY_PLACE)}, "
                "so its rows cannot be compared",
                arguments=["tables"],
            )
    return sum(int(met.sum()) for met in _met(dataset, columns, selection))


def _met(dataset: Any, columns: list[str], selection: ChosenMessages) -> Iterator[Any]:
    ids = {
        "unique_key": pa.array(sorted(selection.ids), pa.string()),
        "message_id": pa.array(sorted(selection.message_ids), pa.string()),
        "topic": pa.array(sorted({topic for _, topic in selection.counts}), pa.string()),
        "physical_offset": pa.array(selection.offsets),
    }
    for batch in dataset.to_batches(columns=columns):
        conditions = [
            pc.is_in(batch.column(name).cast(ids[name].type), ids[name])
            .fill_null(False)
            .to_numpy(zero_copy_only=False)
            for name in columns
        ]
        # A row belongs to an erased message if one of its ids matches. Without ids, both topic and physical offset must
        # match.
        if columns[0] in _BY_ID:
            yield np.logical_or.reduce(conditions)
        else:
            yield np.logical_and.reduce(conditions)
