"""Conditions on the content of messages."""

from __future__ import annotations

import pytest

from reput.errors import UsageError
from reput.wings.console.content import parse_content

_BODY = b'{"order": {"id": 5, "tags": ["a", "b c"], "paid": true, "at.x": 1.5}, "lines": [{"n": 1}, {"n": 12}]}'


@pytest.mark.parametrize(
    ("how", "text", "is_met"),
    [
        ("text", '"id": 5', True),
        ("text", '"ID": 5', False),
        ("text", "value of a", True),
        ("regex", r'"n": \d\d', True),
        ("regex", "(?i)ORDER", True),
        ("regex", "^value", True),
        ("regex", "^alue", False),
        ("json", "$.order.id", True),
        ("json", "order.id = 5", True),
        ("json", "order.id != 5", False),
        ("json", "order.id >= 6", False),
        ("json", "order.id = true", False),
        ("json", "$.order.paid = true", True),
        ("json", "$.order.tags[1] contains c", True),
        ("json", "$.lines[*].n > 11", True),
        ("json", "$.lines[0].n > 11", False),
        ("json", '$.order["at.x"] = 1.5', True),
        ("json", "$.order.id < x", False),
        ("json", "$.nothing", False),
        ("property", "NAME", True),
        ("property", "NAME=value of a", True),
        ("property", "NAME=value", False),
        ("property", "name", False),
    ],
)  # fmt: skip
def test_one_message(how: str, text: str, is_met: bool) -> None:
    assert parse_content(how, text).takes(_BODY, {"NAME": "value of a"}) is is_met


def test_bodies_in_chinese_are_found_in_both_encodings() -> None:
    content = parse_content("text", "订单")
    assert content.takes("新订单".encode(), {})
    assert content.takes("新订单".encode("gbk"), {})
    assert content.takes(b"", {"x": "订单"})
    assert not content.takes(b"\xff\xfe", {})


@pytest.mark.parametrize(
    "pattern",
    ["(", "([ab]?){1000}c", "((a{10}){10}){10}", "(a|b)*a(a|b){500}c", "a{1,2000}", "x" * 1001],
)
def test_patterns_that_are_wrong_or_too_large_are_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        parse_content("regex", pattern)


def test_a_pattern_that_ruins_others_takes_no_longer_than_a_search() -> None:
    assert not parse_content("regex", "(a+)+$").takes(b"a" * 100_000 + b"b", {})


@pytest.mark.parametrize("text", ["$", "", "$.a b", "$.a = ", "=1"])
def test_paths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="JSON path"):
        parse_content("json", text)


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"a": ' + b"9" * 5_000 + b"}", b"\xff", b'{"a": NaN}']
)
def test_bodies_that_are_no_json_do_not_match(body: bytes) -> None:
    assert not parse_content("json", "$.a = 1").takes(body, {})
