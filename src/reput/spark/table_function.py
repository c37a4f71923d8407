"""The table function `rocketmq` of Spark SQL: the rows of the data source, with its options as named arguments.

    SELECT topic, count(*) FROM rocketmq('/data/store', columns => 'topic', topic => array('orders', 'payments'))
    GROUP BY topic

One task reads everything, and the columns are fixed when the function is registered. For large stores, a view over the
data source is better.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from reput.engine.messages import COLUMNS
from reput.errors import UsageError
from reput.spark.errors import log, one_line
from reput.spark.options import NAME, read_options
from reput.spark.session import is_connect
from reput.spark.versions import arrow_columns


def register_function(spark: Any, folder: str) -> None:
    """Register the function in a session. Relative paths are relative to `folder`."""
    functions = (
        "pyspark.sql.connect.functions.builtin" if is_connect(spark) else "pyspark.sql.functions"
    )
    arrow_udtf = import_module(functions).arrow_udtf
    # Executors cannot import this class, so Spark sends the class itself, together with `folder`.
    handler = type(
        "RocketMQFunctionHere", (RocketMQFunction,), {"folder": folder, "__module__": __name__}
    )
    spark.udtf.register(NAME, arrow_udtf(handler, returnType=from_arrow_schema(COLUMNS)))


class RocketMQFunction:
    """The table function. Spark creates an instance for each call."""

    folder = ""
    """Relative paths in the arguments of a call start from this folder.

    If `folder` is empty, relative paths start from the working directory of Spark's process.
    """

    def eval(self, path: pa.Array | None = None, **options: pa.Array) -> Iterator[pa.RecordBatch]:
        """Read the messages of a store. Each argument is an array of one value.

        Raises UsageError, StoreError.
        """
        from reput.spark.reader import LogReader

        with one_line():
            texts = {name: _text(name, value) for name, value in options.items()}
            if path is not None:
                texts["path"] = _text("path", path)
            source_options = read_options(texts, self.folder)
            if source_options.on_corrupt == "row":
                raise UsageError(
                    "onCorrupt=row: the table function has no column for damage; use a temporary view over the data "
                    "source",
                    arguments=["onCorrupt"],
                )
            for line in source_options.unknown_topics(source_options.logs()):
                log(line)
            schema = arrow_columns(from_arrow_schema(COLUMNS))
            names = schema.names if source_options.columns is None else source_options.columns
            reader = LogReader(source_options, pa.schema([schema.field(name) for name in names]))
            for partition in reader.partitions():
                for batch in reader.read(partition):
                    yield _widened(batch, schema)


def _text(name: str, value: pa.Array) -> str:
    """Return an argument as the text of an option. Raises UsageError."""
    values = value.to_pylist()
    if len(values) != 1 or values[0] is None:
        raise UsageError(
            f"{name}: the function {NAME} needs one constant, not a column or NULL",
            arguments=[name],
        )
    if isinstance(values[0], bool):
        return str(values[0]).lower()
    if isinstance(values[0], date):  # A datetime is a date, too.
        return values[0].isoformat()
    try:
        return values[0] if isinstance(values[0], str) else json.dumps(values[0])
    except (TypeError, ValueError):
        raise UsageError(
            f"{name}: must be a text, a number, a time or an array, not {values[0]!r}",
            arguments=[name],
        ) from None


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with all columns, with nulls in columns that were not requested."""
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
