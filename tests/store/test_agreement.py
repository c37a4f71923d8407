"""Every command says the same of a store: sizes, version and the end of the log, or the same doubt.

Readers of the table and exports leave out a last record that is not whole; each that stops elsewhere than the log's
data says so.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import reput as api
from reput.errors import UsageError
from reput.examine.stats import measure_store
from reput.examine.store_inspection import inspect_store
from reput.findings import Kind
from reput.lakes.planning import bounds_of
from reput.lakes.report import ExportReport
from reput.log.paths import find_logs
from reput.pipeline.driver import rebuild_store
from reput.query.shared_store import SharedStore
from reput.store.facts import StoreFacts, facts_of
from reput.table.plan import plan_reading
from reput.tasks import SerialRunner
from reput.verify.checking.checked_store import look_at
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenStore
from tests.slow import slow_from
from tests.store.damaging import DAMAGES, Damage, Damaging

Golden = Callable[[str], GoldenStore]
SIZES = (
    "commit_log_file_bytes", "queue_entries", "batch_queue_file_bytes", "extension_file_bytes",
    "hash_slots", "index_items", "store_version", "append_record_crc", "enable_lmq",
)  # fmt: skip
READABLE = [name for name in (*EVERY_STORE, *EVERY_FIVE) if name != "five_rocksdb"]


def agree(store: Path, output: Path) -> StoreFacts:
    """Run each reader and compare what it says with the facts."""
    facts = facts_of(store)
    ends = facts.ends
    doubts = {doubt.detail for doubt in facts.doubts}
    is_odd = ends.reader < ends.rebuild or ends.data > ends.rebuild

    inspected = inspect_store(store)
    assert inspected.log_end == ends.rebuild
    assert inspected.version == facts.parts.version
    assert any(one.kind is Kind.TORN_LOG_END for one in inspected.findings) == is_odd
    assert len([one for one in inspected.findings if one.kind is Kind.UNCERTAIN_SIZE]) == len(
        doubts
    )

    checked = look_at(store, None)
    assert checked.end == ends.rebuild
    assert len([one for one in checked.findings if one.kind is Kind.UNCERTAIN_SIZE]) == len(doubts)
    assert _sizes(checked.config) == _sizes(facts.config)

    (source,) = find_logs([str(store)])
    exported = ExportReport(str(output))
    bounds = bounds_of([source], None, exported)
    assert bounds[source.name].stop == ends.reader
    plan = plan_reading([source])
    assert max(task.part.stop for task in plan.tasks) == ends.reader
    for notes in (exported.notes, plan.notes):
        assert any("are left out" in note for note in notes) == (ends.reader < ends.data)

    with api.open_store(store) as opened:
        assert opened.end_offset() == ends.rebuild
        assert measure_store(opened).log_end == ends.rebuild
        assert opened.query("no-such-topic", "no-such-key").coverage.log.stop == ends.rebuild
    with closing(SharedStore(str(store))) as served:
        assert served.end_offset() == ends.rebuild

    if doubts:
        with pytest.raises(UsageError, match="uncertain"):
            rebuild_store(SerialRunner(), store, output=output)
    else:
        report = rebuild_store(SerialRunner(), store, output=output)
        assert report.log_end == ends.rebuild
        assert _sizes(report.config) == _sizes(facts.config)
        assert any("not whole" in note for note in report.notes) == (ends.reader < ends.rebuild)
    return facts


def _sizes(config: api.StoreConfig) -> list[object]:
    return [getattr(config, name) for name in SIZES]


@pytest.mark.parametrize("name", slow_from(1, READABLE))
def test_of_golden_stores(golden: Golden, tmp_path: Path, name: str) -> None:
    facts = agree(golden(name).path, tmp_path / "out")
    last = golden(name).messages[-1]
    assert facts.ends.reader == facts.ends.rebuild
    assert facts.ends.rebuild >= last.physical_offset + last.size
    assert facts.findings() == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    ("name", "seed"),
    [("orders", 0), *(pytest.param(name, seed, marks=pytest.mark.slow)
      for name in ("basic", "five_batch", "five_ext", "five_default", "five_timer")
      for seed in range(4))],
)  # fmt: skip
@pytest.mark.every_case
def test_of_damaged_stores(
    golden: Golden, tmp_path: Path, damage: Damage, name: str, seed: int
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    damage(Damaging(store, golden(name), seed))
    agree(store, tmp_path / "out")
