"""Where brokers of 4.9.3, 5.3.3, 5.4 and 5.5 end the logs of damaged stores, and reput ends them at the same places."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.engine.writer.survey import survey_of
from reput.errors import StoreError
from tests.golden.sparse import copy_store
from tests.oracle.walk import proven_records, read_log
from tests.recovery.ends_by_release import CONFIG, RELEASES, SHOWN_BY, TABLE, Case, cases
from tests.store.broker_ends import broker_end

# The numbers of cases that are not slow. Each release ends one of these logs elsewhere than another does.
ALWAYS = frozenset(range(12))


def rows() -> Sequence[object]:
    marks = {
        number: [] if number in ALWAYS else [pytest.mark.slow] for number in range(len(cases()))
    }
    return [
        pytest.param(case, row, marks=marks[case.number], id=str(case.number))
        for case, row in zip(cases(), TABLE.read_text().splitlines(), strict=True)
    ]


@pytest.mark.every_case
@pytest.mark.parametrize(("case", "row"), rows())
def test_each_release_ends_the_log_elsewhere(tmp_path: Path, case: Case, row: str) -> None:
    if case.in_rocksdb:
        pytest.importorskip("rocksdict")
    store = case.write(tmp_path / "store")
    assert case.row(store) == row
    ends = row.split("\t")[5:]
    for release, end in zip(RELEASES, ends, strict=False):
        if end == "-":
            continue
        config = replace(CONFIG, store_version=release)
        changed = copy_store(store, tmp_path / release)
        if release in SHOWN_BY:
            (changed / SHOWN_BY[release]).mkdir()
        if release == "4.9":
            (changed / "abort.bak").unlink()
        assert survey_of(changed, config).release == release
        assert broker_end(survey_of(changed, config)) == int(end)
    quick = replace(CONFIG, accelerated_recovery=True)
    assert broker_end(survey_of(tmp_path / "5.5", quick)) == int(ends[-1])


def readable(store: Path) -> set[int]:
    """Return the physical offsets of all messages of a log that can be read, wherever they are."""
    return {start + at for start, data in read_log(store) for at in proven_records(start, data, -1)}


@pytest.mark.every_case
@pytest.mark.parametrize(("case", "row"), rows())
def test_recovery_of_a_newer_store_loses_no_readable_message(
    tmp_path: Path, case: Case, row: str
) -> None:
    if case.in_rocksdb:
        pytest.importorskip("rocksdict")
    store = case.write(tmp_path / "store")
    (store / SHOWN_BY["5.5"]).mkdir()
    for as_broker in (False, True):
        recovered = copy_store(store, tmp_path / str(as_broker))
        recover_without_loss(recovered, int(row.split("\t")[8]), as_broker=as_broker)


def recover_without_loss(store: Path, log_end: int, *, as_broker: bool) -> None:
    """Open a store for writing: its log ends there, or the store is refused. No readable message is lost."""
    before = readable(store)
    try:
        config = replace(CONFIG, store_version="5.5")
        writer = StoreWriter(store, config, WriterSettings(as_broker=as_broker))
    except StoreError:
        # Damage before the place at which the broker begins is repaired first.
        assert readable(store) == before
        return
    assert writer.recovery.log_end == log_end
    kept = writer.recovery.kept
    writer.close()
    after = readable(store)
    if kept:
        after |= readable(Path(kept))
    assert after >= before


def test_the_releases_differ() -> None:
    """The table shows each rule: no two releases end all logs at the same place."""
    ends = [row.split("\t")[5:] for row in TABLE.read_text().splitlines()]
    for one, other in ((0, 1), (1, 2), (3, 4)):
        assert any(row[one] != row[other] for row in ends if "-" not in (row[one], row[other]))


def test_inspect_and_recovery_take_the_same_release(tmp_path: Path) -> None:
    store = Case(0).write(tmp_path / "store")
    (store / SHOWN_BY["5.4"]).mkdir()
    assert reput.inspect(store).as_dict()["release"] == "5.4 or later"
    assert survey_of(store).release == "5.4"
