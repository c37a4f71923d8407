"""Define `reput.export`, which writes messages into a lake table, or as JSON lines, and `reput compact-table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike, fspath
from typing import IO, Any, Unpack

from reput.base import Progress, Time, checked, optional_milliseconds, silent
from reput.engine.stores import Chosen, NamedStore, Stores, opened_runner, stores_of
from reput.errors import UsageError
from reput.wings.lakes.compaction import CompactReport, compact_destination, layout_of
from reput.wings.lakes.control import format_of
from reput.wings.lakes.driver import export_sources, preview_export
from reput.wings.lakes.json_lines import export_lines
from reput.wings.lakes.merging import TARGET_BYTES
from reput.wings.lakes.planning import open_stores, without_replicas
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import ExportFields, ExportRequest, ExportSettings
from reput.wings.lakes.tables.opening import open_table
from reput.wings.lakes.task import warm_up

StorePath = str | PathLike[str]


@checked
def export(
    stores: Stores,
    destination: StorePath | IO[bytes],
    *,
    to: str = "parquet",
    request: ExportRequest | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    names: Sequence[str] = (),
    name_from: str | None = None,
    incremental: bool = False,
    fail_on_data_loss: bool = True,
    catalog: str | None = None,
    table: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    split_bytes: int | None = None,
    target_file_bytes: int | None = None,
    commit_every: str | int | None = None,
    compact_after: int | None = None,
    max_rejects: str | int | None = None,
    storage_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    runner: Any = "auto",
    progress: Progress = silent,
    **fields: Unpack[ExportFields],
) -> ExportReport:
    """Write the messages of stores into a table, each message exactly once.

    Args:
        stores: Store directories, their commitlog folders, patterns or URLs of these, or NamedStores. Of several
            replicas only the master is exported.
        destination: The folder of the table; for "jsonl" a file's path or an open binary stream.
        to: "parquet", "iceberg", "delta" or "jsonl", or the name of a registered format.
        request: The messages, columns, partitions and JSON bodies to export; None for everything, or for the request
            with the fields in `fields`.
        begin: Only messages stored at this time or later.
        end: Only messages stored at this time or earlier.
        names: Names of stores in the table's checkpoints, instead of their paths.
        name_from: A path such as "/data/{cluster}/{broker}/store". If a store's path matches, its name and its columns
            `cluster` and `broker` come from the path.
        incremental: Continue after the last commit to the table.
        fail_on_data_loss: Raise if messages expired before they were exported.
        catalog: The catalog of an Iceberg table: a URI, or a name in pyiceberg's configuration.
        table: The name of an Iceberg table.
        catalog_properties: Properties of the catalog, in addition to pyiceberg's configuration.
        split_bytes: Bytes of CommitLog per task.
        target_file_bytes: Size up to which small files of a partition are combined.
        commit_every: Bytes of CommitLog ("10GB") or time ("10min") after which to commit; None for one commit.
        compact_after: Combine small files after the last commit if a partition has at least this many.
        max_rejects: Maximum number of rejected rows, or a share such as "1%". If more rows are rejected, nothing is
            committed.
        storage_options: Options of the file systems of URLs, of stores and of the destination.
        dry_run: Write nothing; report which bytes would be read, how they are found, and how long it would take. Only
            for tables.
        runner: "auto", "serial", "processes", "spark", or a SparkSession.
        progress: Called with the phase, units done and units in all.
        fields: Fields of `ExportRequest`, such as `topics=["orders-*"]`.

    Returns:
        A report of the messages read and written. It also states damage of a log, which raises an error only if the
        request asks for that.

    Raises:
        StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, CorruptMessageError, UsageError,
        RejectedRowsError, SparkJobError.
    """
    items = [stores] if isinstance(stores, str | PathLike | NamedStore) else stores
    every: list[str | NamedStore] = []
    for store in items:
        every += (
            stores_of(store, storage_options) if isinstance(store, NamedStore) else [fspath(store)]
        )
    masters, skipped = without_replicas(every)
    notes = [
        f"{name}: not exported, because it is a replica of {first}"
        for name, first in skipped.items()
    ]
    sources = open_stores(masters, names, storage_options, name_from)
    for name, time in (
        ("begin_ms", optional_milliseconds(begin)),
        ("end_ms", optional_milliseconds(end, is_end=True)),
    ):
        if time is not None:
            fields[name] = time  # type: ignore[literal-required]
    request = ExportRequest.of(request, fields)
    settings = ExportSettings(
        incremental, fail_on_data_loss, split_bytes, target_file_bytes, commit_every, compact_after,
        max_rejects,
    )  # fmt: skip
    options = {
        "catalog": catalog, "table": table, "catalog_properties": catalog_properties or None,
    }  # fmt: skip
    if to == "jsonl":
        is_automatic = Chosen.of(runner) == Chosen()
        refused = {
            **options, **settings.only_for_tables(), "dry_run": dry_run or None,
            "runner": None if is_automatic else runner,
        }  # fmt: skip
        if wrong := [name for name, value in refused.items() if value is not None]:
            raise UsageError(f"{', '.join(wrong)}: cannot be used with jsonl", arguments=wrong)
        output: Any = (
            fspath(destination) if isinstance(destination, str | PathLike) else destination
        )
        report = export_lines(sources, output, request, settings)
        return replace(report, notes=(*notes, *report.notes)).sealed()
    if not isinstance(destination, str | PathLike):
        raise UsageError(f"destination: {to} needs a folder", arguments=["destination"])
    into = open_table(fspath(destination), to, storage_options=storage_options, **options)
    if dry_run:
        is_new = format_of(fspath(destination), storage_options) is None
        report = preview_export(sources, into, request, settings, is_new=is_new)
        return replace(report, notes=(*notes, *report.notes)).sealed()
    with ExitStack() as stack:
        report = export_sources(
            sources, into, request,
            lambda size: stack.enter_context(opened_runner(Chosen.of(runner), size, warm_up)),
            settings, progress,
        )  # fmt: skip
    return replace(report, notes=(*notes, *report.notes)).sealed()


@checked
def compact_table(
    destination: StorePath,
    *,
    target_file_bytes: int | None = None,
    catalog: str | None = None,
    table: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    runner: Any = "auto",
    progress: Progress = silent,
) -> CompactReport:
    """Combine the small files of a table that `export` wrote. The rows do not change.

    Args:
        destination: The folder of the table.
        target_file_bytes: Size up to which small files of a partition are combined.
        catalog, table, catalog_properties, runner, progress: As for `export`.

    Raises:
        UsageError, StoreLockedError, StoreAccessError, SparkJobError.
    """
    into = open_table(
        fspath(destination), layout_of(fspath(destination)), catalog=catalog, table=table,
        catalog_properties=catalog_properties or None,
    )  # fmt: skip
    with ExitStack() as stack:
        return compact_destination(
            into,
            lambda size: stack.enter_context(opened_runner(Chosen.of(runner), size, warm_up)),
            target_file_bytes=target_file_bytes or TARGET_BYTES,
            progress=progress,
        )
