"""Exports into buckets that are killed at every step in turn and run again: every row once, in tables of all formats.

The server kills the export at the n-th change that it asks for (`tests.remote.killing_server`). So all steps are
covered evenly, whatever time they take: staged files, the head, manifests, data files, the Delta log, the catalog,
rejected rows, compaction, deletions. Other requests fail meanwhile: 500, 503, 429, connections that are lost before or
after the request was done, time-outs.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reput.errors import StoreAccessError
from reput.io import bucket
from reput.io.deadlines import Deadlines
from reput.wings.inspect.comparing.tables import diff_export
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import grow_to, offsets
from tests.remote.killing_server import MODES, Killer, Mode, killing_process
from tests.remote.lake_buckets import Lake
from tests.remote.rest_catalog import catalog_process
from tests.remote.s3_server import Options, s3_process, upload_whole

pytest.importorskip("obstore")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("REPUT_KILLS", "20"))
"""Number of kills per table format."""
_END, _STEP, _SPLIT = 250_000, 110_000, 60_000
_REFUSED = 7
_MOST_RUNS = 12
_EVERYWHERE = {"staged file", "head", "manifest", "data file", "deletion"}
_STEPS = {
    "parquet": _EVERYWHERE | {"rejected rows"},
    "delta": _EVERYWHERE | {"rejected rows", "Delta log"},
    "iceberg": _EVERYWHERE | {"rejected rows", "catalog", "Iceberg metadata"},
}

Golden = Callable[[str], GoldenStore]


@dataclass
class Bench:
    """The store, the servers and the counts that all exports of a test share.

    Attributes:
        store: The exported store.
        expected: The physical offsets of its messages.
        schema: The schema of the bodies of most messages.
        options: Options for the S3 server.
        catalog: Address of a REST catalog.
        through: Options and catalog address that lead through the killer.
        killer: A proxy of the S3 server and the catalog, which kills exports.
        killed_at: Number of exports that were killed at each kind of step.
        failed: Number of failed requests.
    """

    store: Path
    expected: list[int]
    schema: Path
    options: Options
    catalog: str
    through: tuple[Options, str]
    killer: Killer
    killed_at: Counter[str] = field(default_factory=Counter)
    failed: int = 0

    def lake(self, layout: str, name: str) -> Lake:
        """Return a table whose requests go through the killer."""
        options, catalog = self.through
        url = f"s3://kills/{layout}/{name}/messages"
        return Lake(url, options, layout, catalog, f"{name}.messages")

    def direct(self, lake: Lake) -> Lake:
        """Return the same table, with requests that go directly to the servers."""
        return replace(lake, options=self.options, catalog=self.catalog)

    def export(self, lake: Lake) -> None:
        """Export new messages in three commits, and merge small files."""
        lake.export(
            self.store, incremental=True, commit_every=_STEP, split_bytes=_SPLIT,
            partition_by=("topic",), json_body=str(self.schema),
            compact_after=None if lake.layout == "parquet" else 2,
        )  # fmt: skip

    def run(self, lake: Lake, step: int, mode: Mode, seed: int | None) -> str:
        """Run an export in a child until this step; return "killed", "done", or "failed" if faults explain an error."""
        begin, end = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(begin, 1)
            _set_deadlines(is_faulty=seed is not None)
            _end_with(lambda: self.export(lake))
        self.killer.watch(child, step, mode, seed)
        os.write(end, b"x")
        status = os.waitpid(child, 0)[1]
        os.close(begin)
        os.close(end)
        code, (_, killed_at, failed) = os.waitstatus_to_exitcode(status), self.killer.seen()
        self.failed += failed
        if code == -9:
            assert killed_at is not None, "killed by nobody"
            self.killed_at[killed_at] += 1
            return "killed"
        assert code in ((0,) if seed is None else (0, _REFUSED)), code
        return "failed" if code else "done"

    def finish(self, lake: Lake) -> None:
        """Run an export to its end."""
        for _ in range(_MOST_RUNS):
            if self.run(lake, 0, "before", None) == "done":
                return
        pytest.fail("never done")

    def check(self, lake: Lake) -> None:
        """Compare every row with the store, in a child."""

        def compare() -> None:
            _set_deadlines(is_faulty=False)
            direct = self.direct(lake)
            # The killed run's last requests may have created objects after the next run. This export deletes them.
            self.export(direct)
            found = diff_export(str(self.store), direct.open())
            assert found.is_same, found
            rows = offsets(direct.rows()) + offsets(direct.rows(rejects=True))
            assert sorted(rows) == self.expected
            assert direct.is_tidy(), direct.names()

        child = os.fork()
        if child == 0:
            _end_with(compare)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _set_deadlines(*, is_faulty: bool) -> None:
    """Set short deadlines if requests stall on purpose; otherwise long ones, because a busy machine answers slowly."""
    bucket.POLICY = Deadlines(2.0, 4.0) if is_faulty else Deadlines(120.0, 240.0)  # type: ignore[attr-defined]


def _end_with(action: Callable[[], None]) -> None:
    """End a child after the action: this process must stay free of threads, because it forks."""
    try:
        action()
        os._exit(0)
    except StoreAccessError as error:
        print(f"  {error}", flush=True)
        os._exit(_REFUSED)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        os._exit(1)


@pytest.fixture(scope="module")
def bench(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder, source = tmp_path_factory.mktemp("kills"), golden("orders")
    grow_to(source.path, folder / "store", _END)
    expected = [m.physical_offset for m in source.messages if m.physical_offset + m.size <= _END]
    schema = folder / "schema.json"
    schema.write_text('{"order": "string", "amount": "string"}')
    with s3_process() as options, catalog_process(folder / "catalog.db", options) as catalog:
        upload_whole(tmp_path_factory.mktemp("empty"), "kills", options)
        with killing_process(options, catalog) as (killer, near, address):
            yield Bench(
                folder / "store", expected, schema, options, catalog, (near, address), killer
            )


@pytest.mark.parametrize("is_faulty", [False, True])
@pytest.mark.parametrize("layout", ["parquet", "delta", "iceberg"])
def test_every_row_is_there_once(bench: Bench, layout: str, is_faulty: bool) -> None:
    """Each table is killed up to twice, at steps that are spread evenly over a whole export."""
    chance, begun = random.Random(f"{layout} {is_faulty}"), time.monotonic()
    whole = bench.lake(layout, f"whole-{is_faulty}")
    assert bench.run(whole, 0, "before", None) == "done"
    bench.killer.release()
    steps = bench.killer.seen()[0]
    assert set(steps) >= _STEPS[layout], set(steps)
    bench.check(whole)
    bench.killed_at.clear()
    bench.failed = 0
    tables, wanted = 0, (KILLS + 1) // 2
    first = [1 + number * len(steps) // wanted for number in range(wanted)]
    later = chance.sample(first, len(first))
    while sum(bench.killed_at.values()) < wanted:
        lake = bench.lake(layout, f"{is_faulty}-{tables}")
        for step in (first[2 * tables % wanted], later[tables % wanted]):
            mode = MODES[chance.randrange(len(MODES))]
            bench.run(lake, step, mode, chance.randrange(1 << 30) if is_faulty else None)
        bench.finish(lake)
        bench.killer.release()
        bench.check(lake)
        tables += 1
    assert (bench.failed > 0) == is_faulty
    print(
        f"{layout}{' with faults' * is_faulty}: {len(steps)} steps, {bench.failed} failed requests, "
        f"{sum(bench.killed_at.values())} kills "
        f"{dict(bench.killed_at)}, {tables} tables, {tables * len(bench.expected)} rows compared, "
        f"{time.monotonic() - begun:.0f} s"
    )
