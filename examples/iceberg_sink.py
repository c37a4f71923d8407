"""Export a growing store to an Iceberg table, run by run: python -m examples.iceberg_sink [STORE [FOLDER]]

Each run commits the new messages together with the offset up to which the store has been exported. So cron can start
runs, and a run can be killed at any moment and repeated: each message is in the table exactly once. Without arguments,
the example exports the shop's store, which grows between the runs.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pyiceberg.catalog import load_catalog

from examples.shop import store_of
from reput.cli.main import main as reput


def export(store: Path, lake: Path) -> None:
    """Run `reput export STORE LAKE --to iceberg --incremental ...`, as in a shell."""
    code = reput(
        [
            "export", str(store), str(lake), "--to", "iceberg", "--incremental", "--name", "shop",
            "--partition-by", "topic,day", "--table", "shop.messages",
        ]
    )  # fmt: skip
    if code:
        sys.exit(code)


def told(lake: Path) -> str:
    """Return a line with counts, which pyiceberg reads from the table without reput."""
    catalog = load_catalog("reput", type="sql", uri=f"sqlite:///{lake}/catalog.db")
    table = catalog.load_table("shop.messages")
    messages = table.scan(selected_fields=("physical_offset",)).to_arrow()
    different = len(set(messages["physical_offset"].to_pylist()))
    paid = table.scan(row_filter="topic = 'payments'", selected_fields=("key",)).to_arrow()
    return (
        f"{len(table.metadata.snapshots)} snapshots, {len(messages):,} messages, {different:,} of them different, "
        f"{len(paid):,} payments"
    )


def follow_the_shop(whole: Path, lake: Path) -> None:
    """Run the export three times. Before each run, add files to the log."""
    with tempfile.TemporaryDirectory(prefix="reput-example-") as folder:
        growing = Path(folder) / "commitlog"
        growing.mkdir()
        files = sorted((whole / "commitlog").iterdir())
        for number in (2, 5, len(files)):
            for file in files[:number]:
                shutil.copyfile(file, growing / file.name)
            export(growing.parent, lake)
            print(told(lake))


def main(arguments: list[str]) -> None:
    with store_of(arguments[:1]) as store, tempfile.TemporaryDirectory() as folder:
        lake = Path(arguments[1] if len(arguments) > 1 else folder)
        if arguments:
            export(store, lake)
            print(told(lake))
        else:
            follow_the_shop(store, lake)


if __name__ == "__main__":
    main(sys.argv[1:])
