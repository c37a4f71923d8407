"""The data files of an Iceberg table, some of which others replace in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reput.lakes.data_file import DataFile
from reput.lakes.tally import Tally

if TYPE_CHECKING:
    from pyiceberg.table import Table


def live_files(table: Table, location: str) -> dict[str, Any]:
    """pyiceberg's data files in a folder by name, but those with deleted rows and those of other partitions' specs."""
    spec = table.spec().spec_id
    planned = [task for task in table.scan().plan_files() if not task.delete_files]
    found = {Path(task.file.file_path).name: task.file for task in planned}
    return {
        name: file
        for name, file in found.items()
        if file.file_path == f"{location}/{name}" and file.spec_id == spec
    }


def data_file(name: str, file: Any) -> DataFile:
    """The same for a merge; its partition only tells it from others."""
    values = [file.partition[n] for n in range(len(file.partition))]
    partition = tuple((str(n), str(value)) for n, value in enumerate(values))
    tally = Tally(file.record_count, None, None)
    return DataFile(name, file.file_size_in_bytes, tally, partition, {}, {})


def replace_files(
    table: Table, gone: Sequence[Any], paths: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Take files out of a table and those of these paths in, by one snapshot with these properties."""
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=dict(properties))
        with update.overwrite() as overwriting:
            for file in gone:
                overwriting.delete_data_file(file)
            metadata = transaction.table_metadata
            for file in parquet_files_to_data_files(table.io, metadata, iter(paths)):
                overwriting.append_data_file(file)
