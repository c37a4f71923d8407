"""What differs between the versions of Spark: types of columns, and limits of a stream's batches.

Spark 4.2 limits the batches of a stream. In Spark 4.1, a batch always has all available messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A replacement for a class that Spark 4.1 lacks."""

    class ReadAllAvailable(ReadLimit): ...

    @dataclass
    class ReadMaxBytes(ReadLimit):
        max_bytes: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        max_rows: int

    class SupportsTriggerAvailableNow: ...


__all__ = [
    "HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "SupportsTriggerAvailableNow",
    "arrow_columns",
]  # fmt: skip


def arrow_columns(schema: StructType, zone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema that Spark expects for columns. Spark 4.1 ignores `zone` and uses UTC."""
    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone=zone)
    return to_arrow_schema(schema)
