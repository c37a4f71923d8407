"""Define `reput.spark.explain`: how the scans of a DataFrame find their rows.

Spark's own EXPLAIN shows pushed filters and columns of a Python source, and asks it for nothing else. But the plan has
the partitions that the source made. The first one has the lines that describe all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from reput.base import checked, counted
from reput.engine.messages import column_name
from reput.engine.tables import ReadPlan, compile_for, estimated_seconds
from reput.errors import UsageError
from reput.spark.partitions import LogPartition, read_sample
from reput.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@checked
def explain(table: Any) -> str:
    """Return which index answers each scan of the data source in a DataFrame, and what is read.

    Args:
        table: A DataFrame of a session in this process; not of Spark Connect.

    Raises:
        UsageError: The DataFrame has no scan of the data source, or its plan is in another process.
    """
    if is_connect(table.sparkSession):
        raise UsageError(
            "explain: a session of Spark Connect plans in another process; use the option verbose, which prints the "
            "same lines there"
        )
    scans = list(_scans(table))
    if not scans:
        raise UsageError("explain: the DataFrame has no scan of a store")
    return "\n".join(line for names, partitions in scans for line in _lines(names, partitions))


def _scans(table: DataFrame) -> Iterator[tuple[list[str], list[LogPartition]]]:
    """Yield the columns and the partitions of each scan of the data source.

    A plan with pushed filters is for this explanation only. Spark would also use it for the next query of the loaded
    table that has no filters.
    """
    # A new query, so that the table's own plan stays usable.
    plan: Any = table.select("*")._jdf.queryExecution().optimizedPlan()
    leaves = plan.collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != "DataSourceV2ScanRelation":
            continue
        scan = leaf.scan()
        if scan.getClass().getSimpleName() != "PythonScan":
            continue
        partitions = [
            cloudpickle.loads(bytes(part.pickedPartition()))
            for part in scan.toBatch().planInputPartitions()
        ]
        if all(isinstance(part, LogPartition) for part in partitions):
            for single in {part.plan for part in partitions if part.plan is not None}:
                single.use_up()
            yield list(scan.readSchema().fieldNames()), partitions


def _lines(names: list[str], partitions: list[LogPartition]) -> Iterator[str]:
    yield from partitions[0].explanation
    columns = [column_name(name) for name in names]
    compile_for(columns)
    plan = ReadPlan([task for part in partitions for task in part.tasks])
    seconds = estimated_seconds(plan, lambda tasks: read_sample(tasks, columns))
    yield (
        f"time: about {seconds:,.1f} s of processor time in {counted(len(partitions), 'task')}, by a sample, without "
        "Spark's conversion of rows"
    )
