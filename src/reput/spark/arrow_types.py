"""Convert Spark's column types to Arrow's."""

from __future__ import annotations

from inspect import signature

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_TIMEZONE = "timezone"


def arrow_columns(schema: StructType, zone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema that Spark expects for columns. Spark 4.1 ignores `zone` and uses UTC."""
    if _TIMEZONE in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone=zone)
    return to_arrow_schema(schema)
