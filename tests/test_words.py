"""The names that are most similar to an unknown one, and numbers with their nouns."""

import re
from pathlib import Path

import reput
from reput.base.words import agreeing, counted, did_you_mean, nearest_first

SOURCE = Path(reput.__file__).parent
_NOUNS = (
    "messages|files|entries|records|stores|queues|keys|groups|topics|rows|lines|IndexFiles|indexes|places|parts|"
    "ranges|copies|others|retries|times"
)
_COUNT = re.compile(rf"\{{(?P<count>len\([^{{}}]*\)(?::,)?|[^{{}}]*:,)\}} (?:{_NOUNS})\b")
_MANY = re.compile(r"most|least|limit", re.IGNORECASE)
"""Limits are above 1, so their nouns are plurals."""


def test_a_number_and_its_verb_agree_with_a_noun() -> None:
    assert [counted(count, "file") for count in (0, 1, 2_000)] == [
        "0 files",
        "1 file",
        "2,000 files",
    ]
    assert counted(1, "entry", "entries", "has") == "1 entry has"
    assert counted(2, "entry", "entries", "has") == "2 entries have"
    assert [agreeing(count, "states") for count in (1, 2)] == ["states", "state"]
    assert [agreeing(2, word) for word in ("is", "was", "does", "its")] == [
        "are",
        "were",
        "do",
        "their",
    ]


def test_no_text_counts_one_thing_as_several() -> None:
    """Texts for people use `counted`, so that none says "1 files"."""
    wrong = [
        f"{path.relative_to(SOURCE)}:{number}: {found[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parent.name != "format"  # It has no words for people.
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for found in _COUNT.finditer(line)
        if not _MANY.search(found["count"]) and " of {" not in line
    ]
    assert wrong == []


def test_only_names_that_are_alike_are_meant() -> None:
    assert did_you_mean("topik", ["path", "topic", "queueId"]) == "; did you mean topic?"
    assert did_you_mean("ONCORRUP", ["onCorrupt"]) == "; did you mean onCorrupt?"
    assert did_you_mean("color", ["path", "topic"]) == ""
    assert did_you_mean("a", []) == ""
    names = ["store-1", "store-2", "stare-3", "store-4"]
    assert did_you_mean("store", names) == "; did you mean store-1 or store-2 or store-4?"


def test_more_names_than_are_compared_come_after_those_that_are() -> None:
    names = [f"t{number:05}" for number in range(10_001)]
    found = nearest_first("t09999", names)
    assert found[0] == "t09999"
    assert found[-1] == "t10000"
    assert sorted(found) == names
