"""An answer is incomplete until its evidence covers what was asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.base.findings import Finding, Kind
from reput.core.log.offset_range import OffsetRange
from reput.core.query.evidence import Coverage, Evidence, joined
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]

ASKED = OffsetRange(100, 200)


def damage(start: int, stop: int) -> Finding:
    return Finding(Kind.UNREADABLE_RECORD, "0", "zeros", start, start, stop - start)


def of(evidence: Evidence) -> Coverage:
    return evidence.coverage(ASKED)


def test_an_answer_without_evidence_is_incomplete_and_says_so() -> None:
    coverage = of(Evidence("log"))
    assert not coverage.is_complete
    assert coverage.unproven == (ASKED,)
    [finding] = coverage.unreadable
    assert str(finding) == "log: physical offset 100: 100 bytes lost: not covered: no evidence"


def test_a_reader_that_forgets_a_range_makes_the_answer_incomplete() -> None:
    evidence = Evidence("log")
    evidence.scanned(100, 150)
    evidence.queued(151, 250)
    assert of(evidence).unproven == ((150, 151),)
    evidence.scanned(150, 151)
    assert of(evidence).is_complete
    assert of(evidence).unreadable == ()


def test_damage_withdraws_evidence() -> None:
    evidence = Evidence("log")
    evidence.scanned(100, 200)
    evidence.damage.append(damage(0, 100))
    assert of(evidence).is_complete, "the damage lies before the range"
    evidence.damage.append(damage(120, 130))
    assert of(evidence).unproven == ((120, 130),)
    assert of(evidence).unreadable == (damage(120, 130),)


def test_only_unreadable_bytes_that_were_asked_are_counted() -> None:
    evidence = Evidence("log")
    evidence.scanned(100, 200)
    # A lost file reaches beyond both ends of the question, or beyond one of them; findings may overlap.
    evidence.damage += [damage(0, 110), damage(105, 120), damage(190, 1000)]
    coverage = of(evidence)
    assert coverage.unreadable_bytes == 30
    assert sum(part.size_bytes for part in coverage.unproven) == 30
    evidence.damage.append(damage(0, 1000))
    assert of(evidence).unreadable_bytes == 100


def test_damage_of_unknown_length_withdraws_evidence() -> None:
    evidence = Evidence("log")
    evidence.scanned(100, 200)
    evidence.damage.append(damage(120, 120))
    assert of(evidence).unproven == ((120, 121),)


def test_damage_without_a_place_in_the_log_withdraws_all_evidence() -> None:
    evidence = Evidence("log")
    evidence.queued(100, 200)
    lost = Finding(Kind.QUEUE_GAP, "queue", "entries are lost")
    evidence.damage.append(lost)
    assert of(evidence).unproven == (ASKED,)
    assert of(evidence).unreadable == (lost,)


def test_a_lost_end_was_asked_as_well() -> None:
    evidence = Evidence("log")
    evidence.scanned(100, 200)
    evidence.damage.append(Finding(Kind.LOST_LOG_END, "0", "ends here", 200, 200, 1))
    coverage = of(evidence)
    assert coverage.unproven == ((200, 201),)
    assert coverage.log == ASKED


def test_ranges_that_were_not_scanned_need_every_further_search() -> None:
    evidence = Evidence("log", "inner batches", "replaced ids")
    evidence.scanned(100, 120)
    evidence.queued(120, 200)
    evidence.further("inner batches", 120, 200)
    evidence.further("replaced ids", 130, 190)
    assert of(evidence).unproven == ((120, 130), (190, 200))


def test_composed_answers_prove_what_every_one_of_them_proves() -> None:
    first, second = Evidence("log"), Evidence("log")
    first.scanned(100, 180)
    second.scanned(120, 200)
    both = joined((of(first), of(second)))
    assert both.unproven == ((100, 120), (180, 200))
    assert len(both.unreadable) == 2
    assert joined(()).is_complete, "nothing was asked"


def test_only_evidence_makes_a_coverage() -> None:
    """Everywhere else, a coverage comes from `Evidence.coverage` or `joined`: nobody sets whether it is complete."""
    source = Path(reput.__file__).parent
    makers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"(?<![\w.])Coverage\(", path.read_text())
    }
    assert makers == {"core/query/evidence.py"}


@pytest.mark.parametrize("key", ["K1", "no such key"])
def test_a_key_query_proves_the_whole_log(golden: Golden, key: str) -> None:
    with reput.open_store(golden("basic").path) as store:
        for topic in ("TopicA", None):
            found = store.query(topic, key)
            coverage = found.coverage
            assert found.is_complete
            assert coverage.proven == coverage.asked.ranges == (coverage.log,)
            assert coverage.asked.topics == (None if topic is None else {topic})
