"""Read a table in a bucket with DuckDB's extensions: `python -m tests.remote.duckdb_reader LAYOUT URL OPTIONS OUTPUT`.

The extensions come from packages (`make test-lakes` installs them with their version of DuckDB in build/readers), so
nothing is downloaded. The output is a Parquet file.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import duckdb

_SCANS = {
    "parquet": "read_parquet('{}/**/*.parquet', hive_partitioning = true)",
    "delta": "delta_scan('{}')",
    "iceberg": "iceberg_scan('{}')",
}
_EXTENSIONS = {
    "parquet": ("httpfs",),
    "delta": ("httpfs", "delta"),
    "iceberg": ("httpfs", "avro", "iceberg"),
}


def main() -> None:
    """Run."""
    layout, url, options, output = sys.argv[1:]
    given = json.loads(options)
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for name in _EXTENSIONS[layout]:
            (file,) = map(str, _folder(f"duckdb_extension_{name}").rglob("*.duckdb_extension"))
            connection.load_extension(file)
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{given['s3.access_key']}', SECRET '{given['s3.secret_key']}', "
            f"REGION '{given['s3.region']}', ENDPOINT '{given['s3.endpoint_override']}', URL_STYLE 'path', "
            f"USE_SSL false)"
        )
        columns = "topic, queue_id, queue_offset, physical_offset, store_timestamp, body"
        found = connection.sql(f"SELECT {columns} FROM {_SCANS[layout].format(url)}")
        found.write_parquet(output)


def _folder(module: str) -> Path:
    return Path(str(import_module(module).__file__)).parent


if __name__ == "__main__":
    main()
