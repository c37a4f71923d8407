"""Run reput on Spark: the data source `rocketmq`, and functions that rebuild, follow, export and look up.

    from reput.spark.session import create_session
    spark = create_session("local[2]")     # or a session of your own
    reput.spark.register(spark)
    spark.read.format("rocketmq").load("/data/store")                      # messages as rows, also as a stream
    found = reput.spark.lookup(spark, "/data/store", [("orders", "order-1")])  # messages of many keys
    print(reput.spark.explain(table))                                      # what a query reads, and by which index
    reput.spark.coverage_of(found)                                         # how much of the stores was searched
    reput.spark.export(spark, "/data/store", "/lake/messages", "iceberg")  # into a lake table, exactly once
    reput.spark.rebuild(spark, "/data/store")                              # ConsumeQueue and IndexFile
    reput.spark.follow(spark, "/data/store", "/data/indexes")              # the same while a broker runs

`reput.spark.options` has the options of the data source, `reput.engine.messages.schema` its columns. Importing
reput.spark raises MissingExtraError if PySpark is not installed. No other package of reput imports pyspark. No function
has the name of a module of this package, because one would hide the other.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from reput.base import face
from reput.errors import MissingExtraError

if TYPE_CHECKING:
    from reput.spark.bulk_lookup import coverage_of as coverage_of

    # For other rooms of reput.
    from reput.spark.bulk_lookup import find_on_spark as find_on_spark
    from reput.spark.bulk_lookup import lookup as lookup
    from reput.spark.explanation import explain as explain
    from reput.spark.java import find_java_home as find_java_home
    from reput.spark.lookup_files import read_keys as read_keys
    from reput.spark.lookup_files import write_answer as write_answer
    from reput.spark.on_spark import export as export
    from reput.spark.on_spark import follow as follow
    from reput.spark.on_spark import rebuild as rebuild
    from reput.spark.runner import prepared_runner as prepared_runner
    from reput.spark.session import command_session as command_session
    from reput.spark.source import register as register
    from reput.spark.warm_up import archive_classes as archive_classes
else:
    __getattr__, __dir__ = face(__name__)

__all__ = ["coverage_of", "explain", "export", "follow", "lookup", "rebuild", "register"]

if find_spec("pyspark") is None:
    raise MissingExtraError("reput.spark needs PySpark: pip install 'reput[spark]'")
