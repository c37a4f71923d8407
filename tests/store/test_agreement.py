"""All commands agree about the sizes, the version and the end of the log of a store, and about what is uncertain.

Readers of the table and exports exclude an incomplete last record, and report it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest

import reput as api
from reput.base.findings import Finding, Kind
from reput.engine.check.checking.checked_store import look_at
from reput.engine.tables.arrow import to_arrow
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.plan import plan_reading
from reput.engine.writer.shared_store import SharedStore
from reput.engine.writer.survey import StoreSurvey, survey_of
from reput.errors import ReputError, UsageError
from reput.reports import CheckReport
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenStore
from tests.slow import slow_from
from tests.store.broker_ends import broker_end
from tests.store.damaging import DAMAGES, Damage, Damaging

Golden = Callable[[str], GoldenStore]
SIZES = (
    "commit_log_file_bytes", "queue_entries", "batch_queue_file_bytes", "extension_file_bytes",
    "hash_slots", "index_items", "store_version", "append_record_crc", "enable_lmq",
)  # fmt: skip
READABLE = [name for name in (*EVERY_STORE, *EVERY_FIVE) if name != "five_rocksdb"]
# The number of stores with each kind of damage. They are copies of the stores in DAMAGED, one after the other.
VARIANTS = 40
DAMAGED = (
    "orders", "five_batch", "basic", "five_ext", "tricky", "five_timer", "lmq", "five_compaction",
    "extremes", "five_multipath", "timed", "five_tiered",
)  # fmt: skip


def agree(store: Path, folder: Path) -> StoreSurvey:
    """Run each command and compare its output with the facts."""
    facts = survey_of(store)
    ends = facts.ends
    doubts = {doubt.detail for doubt in facts.doubts}
    is_odd = ends.reader < ends.rebuild or ends.data > ends.rebuild

    inspected = api.inspect(store).as_dict()
    assert inspected["log_end"] == ends.rebuild
    assert inspected["version"] == facts.parts.version
    findings = api.inspect(store).findings
    assert (Kind.TORN_LOG_END in kinds(findings)) == is_odd
    assert kinds(findings).count(Kind.UNCERTAIN_SIZE) == len(doubts)

    checked = look_at(store, None)
    assert (checked.end, checked.broker_start) == (
        ends.rebuild,
        facts.broker_start(facts.log.files),
    )
    assert sizes(checked.config) == sizes(facts.config)
    report: CheckReport = api.check(store, runner="serial")
    assert kinds(report.findings).count(Kind.UNCERTAIN_SIZE) == len(doubts)
    reported = {Kind.TORN_LOG_END, Kind.BODY_CRC, Kind.RECORD_CRC, Kind.UNREADABLE_RECORD}
    assert bool(reported & set(kinds(report.findings))) or not is_odd

    lines_file = folder / "lines.jsonl"
    exported = api.export(store, lines_file, to="jsonl", fail_on_data_loss=False)
    lines = [json.loads(line) for line in lines_file.read_bytes().splitlines()]
    assert exported.rows == len(lines)
    (span,) = exported.stores.values()
    assert span[1] == ends.reader
    plan = plan_reading(find_logs([str(store)]))
    for notes in (exported.notes, plan.notes):
        assert any("are not read" in note for note in notes) == (ends.reader < ends.data)
    table = to_arrow(store, columns=["physical_offset", "size"], on_corrupt="skip").read_all()
    offsets = table["physical_offset"].to_pylist()
    assert sorted(offsets) == sorted(line["physical_offset"] for line in lines)
    stops = map(sum, zip(offsets, table["size"].to_pylist(), strict=True))
    assert max(stops, default=0) <= ends.reader

    with api.open_store(store) as opened:
        assert opened.end_offset() == ends.rebuild
        assert opened.query("no-such-topic", "no-such-key").coverage.log.stop == ends.rebuild
        named = whole(opened, max(offsets, default=0))
    assert api.stats(store).figures.log_end == ends.rebuild
    with closing(SharedStore(str(store))) as served:
        assert served.end_offset() == ends.rebuild
        assert whole(served, max(offsets, default=0)) == named

    recovered = recovered_end(copy_store(store, folder / "recovered"))
    assert recovered in (None, broker_end(facts))

    if doubts:
        with pytest.raises(UsageError, match="uncertain"):
            api.rebuild(store, output=folder / "out", runner="serial")
    else:
        rebuilt = api.rebuild(store, output=folder / "out", runner="serial")
        assert rebuilt.log_end == ends.rebuild
        assert sizes(rebuilt.config) == sizes(facts.config)
        is_noted = any("is incomplete" in note for note in rebuilt.notes)
        assert is_noted == (ends.reader < ends.rebuild)
        if rebuilt.is_complete:  # otherwise the rebuild skips the rest of a damaged file
            assert rebuilt.messages >= len(set(offsets))
    return facts


def recovered_end(store: Path) -> int | None:
    """Return the end of the log for a store that is opened for writing; None if opening is refused."""
    try:
        with api.open_store(store, mode="rw") as opened:
            return opened.recovery.log_end
    except ReputError:
        return None


def kinds(findings: tuple[Finding, ...]) -> list[Kind]:
    return [one.kind for one in findings]


def sizes(config: api.StoreConfig) -> list[object]:
    return [getattr(config, name) for name in SIZES]


def whole(store: api.MessageStore | SharedStore, physical_offset: int) -> object:
    """Return the message at an offset, or the reason for its absence."""
    try:
        return store.get(physical_offset)
    except ReputError as error:
        return str(error)


def variants() -> Iterator[tuple[Damage, str, int]]:
    for damage in DAMAGES:
        stores = cycle(DAMAGED)
        for seed in range(VARIANTS):
            yield damage, next(stores), seed


@pytest.mark.parametrize("name", slow_from(1, READABLE))
def test_of_golden_stores(golden: Golden, tmp_path: Path, name: str) -> None:
    facts = agree(golden(name).path, tmp_path)
    last = golden(name).messages[-1]
    assert facts.ends.reader == facts.ends.rebuild == broker_end(facts)
    assert facts.ends.rebuild >= last.physical_offset + last.size
    assert facts.findings() == []


@pytest.mark.parametrize(
    ("damage", "name", "seed"),
    [pytest.param(*each, marks=[] if each[2] == 0 else pytest.mark.slow) for each in variants()],
)
@pytest.mark.every_case
def test_of_damaged_stores(
    golden: Golden, tmp_path: Path, damage: Damage, name: str, seed: int
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    damage(Damaging(store, golden(name), seed))
    agree(store, tmp_path)
