"""A query in steps gives the messages of the query, in its order, and then its result."""

from collections.abc import Callable

import pytest

import reput
from reput.core.query.answers import QueryProgress, QueryResult
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize("name", ["orders", "basic", "tricky"])
def test_steps_give_what_the_query_returns(golden: Golden, name: str, limit: int | None) -> None:
    store = golden(name)
    keys = sorted({query.key for query in store.queries})[:20]
    several = 0
    with reput.open_store(store.path) as opened:
        for key in keys:
            *steps, result = opened.query_steps(None, key, limit=limit)
            expected = opened.query(None, key, limit=limit)
            assert isinstance(result, QueryResult)
            assert result == expected
            progress = [step for step in steps if isinstance(step, QueryProgress)]
            assert progress == steps
            found = [message for step in progress for message in step.messages]
            assert tuple(found) == expected.messages
            reached = [step.searched_to for step in progress]
            assert reached == sorted(reached, reverse=True)
            several += len(progress) > 1
    assert several


def test_the_first_step_comes_before_the_rest_is_searched(golden: Golden) -> None:
    store = golden("orders")
    with reput.open_store(store.path) as opened:
        key = next(query.key for query in store.queries if query.key)
        steps = opened.query_steps(None, key)
        first = next(steps)
        assert isinstance(first, QueryProgress)
        assert first.searched_to > opened.begin_offset()
