"""Define `reput.spark.rebuild` and `reput.spark.export`, which take a SparkSession as their first argument."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from reput.base import checked
from reput.engine.rebuild import RebuildReport
from reput.engine.rebuild import rebuild as rebuild_on
from reput.wings.lakes import ExportReport, ExportRequest
from reput.wings.lakes import export as export_on

StorePath = str | PathLike[str]


@checked
def rebuild(spark: Any, store: StorePath, **options: Any) -> RebuildReport:
    """Rebuild ConsumeQueues and IndexFiles of a store: `reput.rebuild(store, runner=spark)`.

    Args:
        spark: A SparkSession; on a cluster, every executor must have access to the paths of the store and the output.
        store: A store directory with `commitlog/`.
        options: As for `reput.rebuild`.
    """
    return rebuild_on(store, runner=spark, **options)


@checked
def export(
    spark: Any,
    stores: StorePath | Sequence[StorePath],
    destination: StorePath,
    format: str = "parquet",
    request: ExportRequest | None = None,
    *,
    split_size: int | None = None,
    target_file_size: int | None = None,
    **options: Any,
) -> ExportReport:
    """Write the messages of stores into a table: `reput.export(stores, destination, to=format, runner=spark)`.

    Args:
        spark: A SparkSession; on a cluster, every executor must have access to the paths of stores and destination.
        stores: As for `reput.export`.
        destination: The folder of the table.
        format: The argument `to` of `reput.export`.
        request: The messages, columns, partitions and JSON bodies to export.
        split_size: The argument `split_bytes` of `reput.export`.
        target_file_size: The argument `target_file_bytes` of `reput.export`.
        options: Further options of `reput.export`.
    """
    return export_on(
        stores, destination, to=format, request=request, split_bytes=split_size,
        target_file_bytes=target_file_size, runner=spark, **options,
    )  # fmt: skip
