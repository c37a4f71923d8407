"""Read the keys of a look-up from files, and write its answer to files, with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from reput.engine.lookup import PLAIN, AnswerFormat, LineStyle, Lookup
from reput.errors import SparkJobError, UsageError
from reput.spark.bulk_lookup import answer_frame, answer_text
from reput.spark.errors import reason_of

_TIMES = "spark.sql.parquet.outputTimestampType"


def read_keys(spark: SparkSession, keys: str) -> DataFrame:
    """Read keys from a .csv file with a header, or from Parquet. Raises UsageError.

    All columns of a .csv file are text. If a line has a wrong number of values, the job that reads the file fails. By
    default, Spark would add nulls or drop values, and wrong keys would be looked up.
    """
    place = keys if "://" in keys else str(Path(keys).absolute())
    try:
        if Path(keys).suffix == ".csv":
            return spark.read.csv(place, header=True, quote='"', escape='"', mode="FAILFAST")
        return spark.read.parquet(place)
    except (PySparkException, Py4JError) as error:
        reason = reason_of(error)
        raise UsageError(f"keys {keys}: cannot be read: {reason}", arguments=["keys"]) from error


def write_answer(
    spark: SparkSession, lookup: Lookup, output: str, layout: AnswerFormat, style: LineStyle = PLAIN
) -> None:
    """Write the answer as a directory of files, and its coverage beside them if the rows do not have it.

    Args:
        spark: The session that writes.
        lookup: The look-up.
        output: The URL of a new directory.
        layout: Format of the files. Lines of JSON and CSV are those of `reput.engine.lookup.lines`, in files
            named part-*.txt, which Spark gives to files of lines.
        style: How values in lines are written.

    Raises:
        SparkJobError.
    """
    # The coverage is written first, so that a complete answer always has its coverage.
    if lookup.answer.is_flat:
        write_coverage(spark, lookup, output)
    try:
        if layout == "parquet":
            frame = answer_frame(spark, lookup)
            with _times_as_everywhere(spark):
                frame.write.parquet(output)
        else:
            answer_text(spark, lookup, layout, style).write.text(output)
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkJobError(f"{output}: cannot be written: {reason_of(error)}") from error


def write_coverage(spark: SparkSession, lookup: Lookup, output: str) -> None:
    """Write the coverage (the searched ranges) of an answer to a file, with Spark's own file systems.

    output  URL of the answer; .coverage.json is appended to it

    Raises SparkJobError.
    """
    try:
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{output.rstrip('/')}.coverage.json")
        settings = spark.sparkContext._jsc.hadoopConfiguration()
        file = path.getFileSystem(settings).create(path, True)
        file.write(bytearray(lookup.coverage_text()))
        file.close()
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkJobError(f"{output}: cannot be written: {reason_of(error)}") from error


@contextmanager
def _times_as_everywhere(spark: SparkSession) -> Iterator[None]:
    """Make Spark write times to Parquet as Arrow and exports do: UTC in microseconds, not Spark's default, INT96."""
    before = spark.conf.get(_TIMES)
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMES, before or "INT96")
