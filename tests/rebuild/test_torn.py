"""Rebuilds of logs that a broker's crash or people damaged equal the oracle's dispatch."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.golden.stores import GoldenLibrary, GoldenStore, StoreNotHereError, passed_over
from tests.oracle.forge import Files, overwrite, truncate
from tests.oracle.walk import read_log, walk
from tests.rebuild.rebuilding import (
    SMALL,
    assert_log_end,
    assert_oracle,
    damage_of,
    golden_config,
    rebuild,
    rebuild_log,
)
from tests.slow import examples, slow_from

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize("stride", slow_from(1, [6, 1]))
def test_torn_stores(golden_library: GoldenLibrary, tmp_path: Path, stride: int) -> None:
    try:
        names = golden_library.torn_names()
    except StoreNotHereError as missing:
        passed_over(missing)
    for name in list(names)[::stride]:
        case = golden_library.torn(name)
        config = golden_config(case if "config.properties" in _names(case.root) else case.base)
        found = walk(read_log(case.before))
        report = rebuild(case.before, tmp_path / name, config, split_size=9_000)
        assert_oracle(tmp_path / name, found, config)
        assert damage_of(report) == [(d.offset, d.length) for d in found.damage], name
        assert_log_end(report, found)
    assert len(names) > 20


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="session")
def golden_log(golden: Golden) -> Callable[[], Files]:
    """Return the last two files of the store of extremes: enough to be damaged, quick to walk."""

    @cache
    def files() -> Files:
        return [(start, bytes(data)) for start, data in read_log(golden("extremes").path)][-2:]

    return files


@given(st.data())
@settings(max_examples=examples(10))
def test_mutated_golden_logs(
    golden_log: Callable[[], Files],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    files = golden_log()
    begin, end = files[0][0], files[-1][0] + len(files[-1][1])
    for _ in range(data.draw(st.integers(1, 6), "patches")):
        at = data.draw(st.integers(begin, end - 1), "at")
        files = overwrite(files, at, data.draw(st.binary(min_size=1, max_size=12), "bytes"))
    if data.draw(st.booleans(), "cut"):
        files = truncate(files, data.draw(st.integers(begin + 1, end), "cut at"))
    found = walk(files)
    # With a queue offset whose byte position exceeds int64, a broker writes to a place that no reader reads.
    assume(all(0 <= record.queue_offset < 2**63 // 20 for record in found.dispatched))
    folder = tmp_path_factory.mktemp("mutated")
    report = rebuild_log(folder, files, split_size=data.draw(st.sampled_from((500, 9_000, None))))
    assert_oracle(folder / "out", found, SMALL)
    assert damage_of(report) == [(damage.offset, damage.length) for damage in found.damage]
    assert_log_end(report, found)
    salvaged = rebuild(folder / "store", folder / "salvaged", salvage=True)
    assert salvaged.messages >= report.messages
    assert sum(d.length for d in salvaged.damage) <= sum(d.length for d in report.damage)
