"""The keys of a look-up from files, and its answer into files, as Spark reads and writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from reput.errors import SparkJobError, StoreNotFoundError, UsageError
from reput.spark.bulk_lookup import Lookup
from reput.spark.runner import reason_of

Format = Literal["parquet", "jsonl", "csv"]
_CSV_KINDS = ("array", "map", "binary")


def check_paths(keys: str, output: str | None) -> None:
    """Raises StoreNotFoundError without keys, UsageError for an output that is there already."""
    if "://" not in keys and not Path(keys).exists():
        raise StoreNotFoundError(f"{keys}: not there; give a file of keys (--keys)")
    if Path(keys).suffix not in (".csv", ".parquet") and not Path(keys).is_dir():
        raise UsageError(f"{keys}: keys (--keys) come as .csv with a line of names, or as .parquet")
    if output is not None and Path(output).exists():
        raise UsageError(f"{output}: is there already; name a new directory (--output)")


def read_keys(spark: SparkSession, keys: str) -> DataFrame:
    """A .csv file with a line of names, all of its columns text, else Parquet. Raises UsageError.

    A line of another number of values is an error of the job that reads it: left alone it would be other keys.
    """
    place = keys if "://" in keys else str(Path(keys).absolute())
    try:
        if Path(keys).suffix == ".csv":
            return spark.read.csv(place, header=True, quote='"', escape='"', mode="FAILFAST")
        return spark.read.parquet(place)
    except (PySparkException, Py4JError) as error:
        raise UsageError(f"{keys}: keys (--keys) cannot be read: {reason_of(error)}") from error


def write_answer(found: Lookup, output: str, layout: Format) -> None:
    """Write the answer as a directory of files. Raises UsageError for columns that CSV cannot hold, SparkJobError."""
    frame = found.frame()
    place = output if "://" in output else str(Path(output).absolute())
    try:
        if layout == "csv":
            check_csv(found)
            flat = [name for name in frame.columns if name != "coverage"]
            rows = frame.select(*flat, "coverage.is_complete")
            rows.write.csv(
                place, header=True, quote='"', escape='"',
                ignoreLeadingWhiteSpace=False, ignoreTrailingWhiteSpace=False,
            )  # fmt: skip
        elif layout == "jsonl":
            frame.write.json(place)
        else:
            frame.write.parquet(place)
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkJobError(f"{output}: cannot be written: {reason_of(error)}") from error


def check_csv(found: Lookup) -> None:
    """Raises UsageError for a column that CSV cannot hold."""
    for name, kind in found.frame().dtypes:
        if name != "coverage" and kind.startswith(_CSV_KINDS):
            raise UsageError(
                f"--format csv: cannot hold the column {name}; leave it out (--columns)"
            )
