"""An export that is killed at its most dangerous moments and repeated writes each message once, in all formats."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden.stores import GoldenStore
from tests.lakes.exporting import (
    FORMATS,
    control_of,
    export,
    grow_to,
    iceberg_table,
    offsets,
    read_table,
)
from tests.writer.crashing import dying

pytestmark = pytest.mark.slow

Golden = Callable[[str], GoldenStore]

MOMENTS = ("export", "written", "pending", "published", "committed", "finished")
CRUCIAL = {
    ("parquet", "pending"),
    ("parquet", "committed"),
    ("iceberg", "committed"),
    ("delta", "published"),
}
CASES = [
    pytest.param(
        layout, moment, marks=[] if (layout, moment) in CRUCIAL else [pytest.mark.slow]
    )
    for layout in FORMATS
    for moment in MOMENTS
]  # fmt: skip


def killed_at(moment: str, store: Path, out: Path, layout: str, schema: Path) -> None:
    """Export in a new process that kills itself."""
    command = [sys.executable, "-m", "tests.lakes.test_kills"]
    ended = subprocess.run(
        [*command, moment, str(store), str(out), layout, str(schema)],
        cwd=Path(__file__).parents[2], capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def die_at(moment: str) -> Callable[[str, int, int], None]:
    def die(phase: str, done: int, total: int) -> None:
        if phase == moment and done:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def run(
    store: Path,
    out: Path,
    layout: str,
    schema: Path,
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None,
) -> None:
    export(
        store, out, layout,
        incremental=True, partition_by=("topic",), json_body=str(schema), progress=progress,
    )  # fmt: skip


def check_whole(source: GoldenStore, out: Path, layout: str, end: int) -> None:
    """Every message before `end` is in the table or among the rejected rows, once; no file is left over."""
    rows, rejects = read_table(out, layout), read_table(out, layout, rejects=True)
    found = sorted([*offsets(rows), *offsets(rejects)])
    assert found == [
        m.physical_offset for m in source.messages if m.physical_offset + m.size <= end
    ]
    assert len(rejects) > 10, "the bodies of payments and shipments do not fit"
    left = {path.name for path in control_of(out, layout).iterdir()}
    assert left <= {"owner", "format", "commits", "rejects"}


@pytest.mark.parametrize(("layout", "moment"), CASES)
def test_killed_and_run_again(golden: Golden, tmp_path: Path, layout: str, moment: str) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    schema = tmp_path / "schema.json"
    schema.write_text('{"order": "string", "amount": "string"}')
    for end in (
        1_000_000,
        2_200_000,
    ):  # kill the first export, then a second export, which continues the table
        grow_to(source.path, store, end)
        killed_at(moment, store, out, layout, schema)
        if moment in ("committed", "finished") and layout != "parquet":
            assert len(read_table(out, layout)) > 0
    run(store, out, layout, schema)
    check_whole(source, out, layout, 2_200_000)
    assert data_files(out) == files_of_table(out, layout)


def data_files(out: Path) -> int:
    found = [*out.rglob("*.parquet"), *(control_of(out) / "rejects").rglob("*.parquet")]
    return len([path for path in found if "_delta_log" not in path.parts])


def files_of_table(out: Path, layout: str) -> int:
    """Return the number of data files of the table and of its rejected rows."""
    if layout == "iceberg":
        tables = (iceberg_table(out, rejects) for rejects in (False, True))
        return sum(len(list(table.scan().plan_files())) for table in tables)
    if layout == "delta":
        from deltalake import DeltaTable

        return sum(len(DeltaTable(place).file_uris()) for place in (out, out / "_rejects"))
    manifests = (control_of(out) / "commits").glob("*.json")
    return sum(len(json.loads(path.read_text())["files"]) for path in manifests)


@pytest.mark.parametrize(
    "partition_by", [(), pytest.param(("topic", "hour"), marks=pytest.mark.slow)]
)
def test_dead_after_any_step_and_run_again(
    golden: Golden, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """In turn, each system call that changes a file is the last one before the process dies."""
    source, store = golden("basic"), tmp_path / "store"
    grow_to(source.path, store, 60_000)
    expected = [m.physical_offset for m in source.messages if m.physical_offset + m.size <= 60_000]
    with dying(None) as steps:
        export(store, tmp_path / "whole", partition_by=partition_by)
    assert steps.made > 12
    for last in range(steps.made):
        out = tmp_path / str(last)
        with dying(last):
            export(store, out, incremental=True, partition_by=partition_by)
        seen = control_of(out) / "commits"
        if seen.exists() and not any(seen.glob("*.json")):
            assert data_files(out) == 0, "nothing is seen before the commit"
        export(store, out, incremental=True, partition_by=partition_by)
        assert offsets(read_table(out, "parquet")) == expected, last


if __name__ == "__main__":
    asked: Any = sys.argv[1:]
    run(Path(asked[1]), Path(asked[2]), asked[3], Path(asked[4]), die_at(asked[0]))
