"""Findings have one form in Python, in JSON and in the documentation."""

import json
import pickle
import re
from pathlib import Path

import pytest

from reput.base.findings import Finding, Kind, Remedy, Severity
from reput.errors import FormatError

PAGE = Path(__file__).parents[1] / "docs" / "findings.md"
LOST = Finding(Kind.UNREADABLE_RECORD, "commitlog/1024", "no record begins here", 10, 1034, 90)
ENTRY = Finding(Kind.QUEUE_GAP, "consumequeue/t/0/0", "entry 3 is not written", 60)
FILE = Finding(Kind.FOREIGN_FILE, "index/readme", "not the name of an IndexFile")


@pytest.mark.parametrize("finding", [LOST, ENTRY, FILE])
def test_json_and_pickle_give_the_same_finding_back(finding: Finding) -> None:
    stored = json.loads(json.dumps(finding.as_json()))
    assert Finding.from_json(stored) == finding
    assert pickle.loads(pickle.dumps(finding)) == finding
    assert {finding, Finding.from_json(stored)} == {finding}


def test_json_has_every_field_under_its_documented_name() -> None:
    assert LOST.as_json() == {
        "kind": "unreadable_record",
        "severity": "damage",
        "file": "commitlog/1024",
        "file_offset": 10,
        "physical_offset": 1034,
        "length": 90,
        "count": 1,
        "detail": "no record begins here",
        "cost": "",
        "at_next_start": "",
        "remedy": "restore the file from a replica or a backup",
    }
    shown = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    assert json.loads(shown[1]).keys() == LOST.as_json().keys()


def test_the_text_names_file_and_offsets_in_one_line() -> None:
    assert str(LOST) == (
        "commitlog/1024: offset 10: physical offset 1034: 90 bytes lost: no record begins here"
    )
    assert str(ENTRY) == "consumequeue/t/0/0: offset 60: entry 3 is not written"
    assert str(FILE) == "index/readme: not the name of an IndexFile"


def test_only_findings_about_the_log_have_a_range_of_it() -> None:
    assert (LOST.start, LOST.stop) == (1034, 1124)
    with pytest.raises(ValueError, match="without a physical offset"):
        _ = ENTRY.start


def test_an_error_becomes_a_finding_with_its_offset() -> None:
    error = FormatError("index/1", 36, "index count 7 of 3 items")
    found = Finding.of_error(Kind.INDEX_HEADER, error, "; left out")
    assert (found.file, found.file_offset) == ("index/1", 36)
    assert found.detail == "index count 7 of 3 items; left out"


def test_the_page_defines_each_kind_as_the_code_does() -> None:
    text = re.sub(r"\[(`(\w+)`)\]\(findings/\2\.md\)", r"\1", PAGE.read_text())
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert rows == [
        (kind.value, kind.severity.value, kind.meaning, kind.remedy.value) for kind in Kind
    ]


def test_what_a_repair_removes_has_a_remedy_that_the_command_offers() -> None:
    by_command = {
        Remedy.REBUILD_INDEXES, Remedy.REBUILD_WHEEL, Remedy.RECOVER, Remedy.REMOVE_FILE,
    }  # fmt: skip
    for kind in Kind:
        assert (
            bool(kind.repair) is (kind.remedy in by_command) or kind.remedy is Remedy.RESTORE_FILE
        )
        assert kind.cost.count("{}") == (2 if kind.noun else 0)


def test_the_worst_severity_decides() -> None:
    assert Severity.worst([Severity.WARNING, None, Severity.DAMAGE]) is Severity.DAMAGE
    assert Severity.worst([Severity.INFO, Severity.WARNING]) is Severity.WARNING
    assert Severity.worst([Severity.INFO]) is None


def test_what_is_merely_worth_knowing_is_not_wrong() -> None:
    assert [finding.is_wrong for finding in (LOST, ENTRY, FILE)] == [True, True, False]
    assert FILE.severity is Severity.INFO
