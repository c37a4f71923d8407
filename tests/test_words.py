"""The names that are most similar to an unknown one."""

from reput.base.words import did_you_mean, nearest_first


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
