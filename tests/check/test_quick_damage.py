"""Random damage: where the full check says that a broker does not start, or that messages cannot be read, so does the
quick check, or the damage lies in the parts that it names as not read. Where the full check finds nothing, nor does it.

A file that is missing, cut, renamed, copied or swapped shows in a listing, in sizes or in ends: no excuse counts there.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from reput.base.findings import Finding
from reput.engine.check.checking.checked_store import Unread
from reput.engine.check.run import check_store
from reput.errors import ReputError
from tests.check.test_check_mutations import valid_store
from tests.mutators import changed_store
from tests.slow import examples

_GRAVE = (
    "can no longer be read",
    "cannot be consumed",
    "all messages of the missing file",
    "consumers do not get past it",
    "a broker refuses the store",
)
_CONTENT = ("bit", "word", "range", "zeros")
_PARTS = {"commitlog": "log_bytes", "consumequeue": "queue_entries", "index": "index_items"}


def is_grave(finding: Finding) -> bool:
    if finding.at_next_start == "does not start":
        return True
    return finding.is_wrong and any(words in finding.cost for words in _GRAVE)


def findings(store: Path, quick: bool) -> tuple[list[Finding] | None, Unread]:
    """Return the findings, and what was not read. None for a store that is refused with an error."""
    unread = [Unread()]
    try:
        found = list(check_store(store, quick=quick, on_unread=unread.append))
    except ReputError:
        return None, unread[-1]
    return found, unread[-1]


def compared(store: Path, changes: int, seed: int) -> Counter[str]:
    """Compare the two checks on a store with one change, many times. Return the number of each outcome."""
    valid_store(store)
    assert findings(store, quick=True)[0] == []
    random, outcomes = Random(seed), Counter[str]()
    for _ in range(changes):
        with changed_store(store, random) as change:
            full, (quick, unread) = findings(store, quick=False)[0], findings(store, quick=True)
            if full is None or quick is None:
                assert full is quick, change
                outcomes["refused"] += 1
                continue
            is_noticed = any(one.is_wrong for one in quick)
            if not any(one.is_wrong for one in full):
                assert not is_noticed, (str(change), quick)
                outcomes["harmless"] += 1
            elif is_noticed:
                outcomes["noticed"] += 1
            elif any(map(is_grave, full)):
                part = _PARTS.get(change.file.parts[0])
                assert change.how.split()[0] in _CONTENT, (str(change), full)
                assert part is not None, (str(change), full)
                assert getattr(unread, part), (str(change), full)
                outcomes["named as not read"] += 1
            else:
                outcomes["left to the full check"] += 1
    return outcomes


def test_a_quick_check_finds_grave_damage_or_names_what_it_did_not_read(tmp_path: Path) -> None:
    outcomes = compared(tmp_path / "store", examples(40), seed=1)
    assert outcomes["noticed"] > 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_damages(tmp_path: Path) -> None:
    outcomes = compared(tmp_path / "store", 2000, seed=2)
    print(outcomes)
    assert outcomes["noticed"] > 1000
