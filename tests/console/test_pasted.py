"""Text that people paste into the search field, and answers about several keys in it."""

from __future__ import annotations

import pytest

from reput.core.log.offset_range import OffsetRange
from reput.core.query.evidence import Evidence
from reput.engine.stores.pasted import Pasted, understood
from reput.errors import UsageError
from reput.wings.console.searching import Outcome, _beside

_ID = "7f000001000078bf00000000004c4b40"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("order-1", ("order-1",)),
        ("  order-1 order-2\n", ("order-1", "order-2")),
        ("order-1, order-2;order-3", ("order-1", "order-2", "order-3")),
        ("a,b", ("a,b", "a", "b")),
        ('"order-1"', ('"order-1"', "order-1")),
        ("msgId: ABC keys=order-1", ("ABC", "order-1")),
        (_ID, (_ID,)),
        (f"order-1 {_ID.upper()}", ("order-1", _ID.upper())),
        ("order-1 a-very-long-k…", ("order-1",)),
        ("…", ("…",)),
    ],
)
def test_keys_are_found_in_text(text: str, keys: tuple[str, ...]) -> None:
    assert understood(text) == Pasted(keys)


@pytest.mark.parametrize(
    ("text", "offset"), [("5184375", 5_184_375), ("5,184,375", 5_184_375), (str(1 << 63), None)]
)
def test_a_number_is_an_offset_too(text: str, offset: int | None) -> None:
    assert understood(text) == Pasted((text,), offset)


def test_a_title_of_a_page_is_a_place() -> None:
    assert understood("orders 3/17").place == ("orders", 3, 17)
    assert understood("orders 3/17 · reput").place == ("orders", 3, 17)


def test_more_keys_than_are_searched_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 20"):
        understood(" ".join(map(str, range(100, 130))))


def test_two_searches_are_covered_where_both_are() -> None:
    def outcome(*ranges: OffsetRange) -> Outcome:
        evidence = Evidence("log")
        for part in ranges:
            evidence.scanned(*part)
        return Outcome(0, None, (), evidence.coverage(OffsetRange(0, 100)))

    first = outcome(OffsetRange(0, 100))
    second = outcome(OffsetRange(0, 1), OffsetRange(2, 100))
    for both in (_beside(first, second), _beside(second, first)):
        assert both.coverage is not None
        assert both.coverage.scanned == (OffsetRange(0, 100),)
        assert both.coverage.unproven == (OffsetRange(1, 2),)
        assert not both.is_complete
