"""`reput export` on Spark: the export of `reput.lakes` with its tasks run by a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from reput.arguments import checked
from reput.lakes.driver import export_sources
from reput.lakes.merging import TARGET_BYTES
from reput.lakes.planning import open_stores
from reput.lakes.report import ExportReport
from reput.lakes.request import ExportRequest
from reput.lakes.tables.opening import open_table
from reput.lakes.task import warm_up
from reput.spark.runner import prepared_runner
from reput.tasks import Progress, silent


@checked
def export(
    spark: SparkSession,
    stores: str | Path | Sequence[str | Path],
    destination: str | Path,
    format: str = "parquet",
    request: ExportRequest | None = None,
    *,
    names: Sequence[str] = (),
    incremental: bool = False,
    fail_on_data_loss: bool = True,
    catalog: str | None = None,
    table: str | None = None,
    split_size: int | None = None,
    max_rejects: str | int | None = None,
    target_file_size: int = TARGET_BYTES,
    progress: Progress = silent,
) -> ExportReport:
    """Export the messages of stores into a table, each message once.

    Args:
        spark: a session; on a cluster the destination and stores that are paths must be where every executor
            sees them.
        stores: store directories, their commitlog folders, patterns of them, or URLs of such.
        destination: the folder of the table.
        format: "parquet", "iceberg" (needs pyiceberg), "delta" (needs deltalake), or one that was registered.
        request: which messages, which columns, partitions and JSON bodies; all and everything when None.
        names: what to know each store by instead of its absolute path, so that it can move.
        incremental: continue where the last commit to the table ended, from the beginning if there was none.
        fail_on_data_loss: whether it is an error that messages expired before they were exported.
        catalog, table: of Iceberg; None is an SQLite catalog in the destination, and `reput.messages`.
        split_size: bytes of CommitLog a task reads.
        max_rejects: rejected rows with which a run still commits: a number, or a share such as "1%"; None for any.
        target_file_size: bytes up to which small files of a partition are put together.
        progress: called with the phase, units done and units in all.

    Returns what was found and written; damage in a log is reported there, not raised, unless the request says
    otherwise.

    Raises:
        StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, CorruptMessageError, UsageError,
        RejectedRowsError, SparkJobError.
    """
    paths = [str(path) for path in ([stores] if isinstance(stores, str | Path) else stores)]
    sources = open_stores(paths, names)
    into = open_table(str(destination), format, catalog=catalog, table=table)
    runner = prepared_runner(spark, warm_up)
    return export_sources(
        sources,
        into,
        request or ExportRequest(),
        lambda _: runner,
        incremental=incremental,
        fail_on_data_loss=fail_on_data_loss,
        split_bytes=split_size,
        max_rejects=max_rejects,
        target_file_bytes=target_file_size,
        progress=progress,
    )
