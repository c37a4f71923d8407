"""Run reput on Spark: the data source `rocketmq`, and functions that rebuild, follow, export and look up.

    from reput.spark.session import create_session
    spark = create_session("local[2]")     # or a session of your own
    reput.spark.register(spark)
    spark.read.format("rocketmq").load("/data/store")                      # messages as rows, also as a stream
    found = reput.spark.lookup(spark, "/data/store", [("orders", "order-1")])  # messages of many keys
    reput.spark.coverage_of(found)                                         # how much of the stores was searched
    reput.spark.export(spark, "/data/store", "/lake/messages", "iceberg")  # into a lake table, exactly once
    reput.spark.rebuild(spark, "/data/store")                              # ConsumeQueue and IndexFile
    reput.spark.follow(spark, "/data/store", "/data/indexes")              # the same while a broker runs

`reput.spark.options` has the options of the data source, `reput.engine.messages.schema` its columns. Importing
reput.spark raises MissingExtraError if PySpark is not installed. No other package of reput imports pyspark. No function
has the name of a module of this package, because one would hide the other.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from reput.errors import MissingExtraError

if TYPE_CHECKING:
    from reput.spark.bulk_lookup import coverage_of, lookup
    from reput.spark.following import follow
    from reput.spark.source import register

__all__ = ["coverage_of", "export", "follow", "lookup", "rebuild", "register"]

if find_spec("pyspark") is None:
    raise MissingExtraError("reput.spark needs PySpark: pip install 'reput[spark]'")

# Import functions on first use: the kernels take time to load, and `reput.operations` imports this package.
_HOMES = {
    "coverage_of": "reput.spark.bulk_lookup",
    "export": "reput.spark.on_spark",
    "follow": "reput.spark.following",
    "lookup": "reput.spark.bulk_lookup",
    "rebuild": "reput.spark.on_spark",
    "register": "reput.spark.source",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
