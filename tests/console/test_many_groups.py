"""`/metrics` stays short with any number and any names of groups, and says how many groups it leaves out."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.console.serving import console
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.waiting import wait_for

Golden = Callable[[str], GoldenStore]
GROUPS = 300


@contextmanager
def scraped(store: GoldenStore, folder: Path, names: Iterable[str], groups: Any) -> Iterator[bytes]:
    """Serve copies of a store in which each group has the committed offset 0 in one queue. Yield the metrics page."""
    made = {}
    table = {f"orders@{group}": {"0": 0} for group in groups}
    for name in names:
        copy_store(store.path, folder / name)
        (folder / name / "config").mkdir(exist_ok=True)
        file = folder / name / "config" / "consumerOffset.json"
        file.write_text(json.dumps({"offsetTable": table}))
        made[name] = folder / name
    with console(made) as client:

        def counted() -> bytes | None:
            answer = client.get("/metrics")
            assert answer.status_code == 200, answer.text
            count = answer.text.count("reput_store_counted_seconds{")
            return answer.content if count == len(made) else None

        yield wait_for(counted)


def samples(text: bytes, name: str) -> list[tuple[dict[str, str], float]]:
    """Return labels and values of a metric, as Prometheus reads them."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    ]


def test_the_groups_of_many_stores_share_a_limit_and_the_rest_is_counted(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.wings.console.metrics._MOST_LAGS", 60)
    names = [f"s{n}" for n in range(4)]
    groups = [f"g{n}" for n in range(GROUPS)]
    with scraped(golden("orders"), tmp_path, names, groups) as text:
        lags = samples(text, "reput_group_lag_messages")
        assert len(lags) == 60
        assert {labels["store"] for labels, _ in lags} == set(names)
        assert samples(text, "reput_store_groups") == [({"store": s}, GROUPS) for s in names]
        left_out = samples(text, "reput_store_groups_left_out")
        assert left_out == [({"store": s}, GROUPS - 15) for s in names]


def test_one_store_has_its_hundred_groups(golden: Golden, tmp_path: Path) -> None:
    groups = [f"g{n}" for n in range(GROUPS)]
    with scraped(golden("orders"), tmp_path, ["s"], groups) as text:
        assert len(samples(text, "reput_group_lag_messages")) == 100
        assert samples(text, "reput_store_groups_left_out") == [({"store": "s"}, GROUPS - 100)]


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["n" * 100_000, 'a"b\nc\\', "\x00\x85\u2028"])
def test_no_name_of_a_group_makes_the_metrics_unreadable_or_long(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    with scraped(golden("orders"), tmp_path, ["s"], [name, "usual"]) as text:
        assert len(text) < 20_000
        groups = [labels["group"] for labels, _ in samples(text, "reput_group_lag_messages")]
        assert "usual" in groups
        ((_, left_out),) = samples(text, "reput_store_groups_left_out")
        assert len(groups) + left_out == 2


def test_groups_that_cannot_be_read_are_not_counted_as_none(golden: Golden, tmp_path: Path) -> None:
    # A name with a lone surrogate is not valid text, so the whole file of offsets cannot be read.
    with scraped(golden("orders"), tmp_path, ["s"], ["\ud800", "usual"]) as text:
        assert len(samples(text, "reput_store_queues")) == 1
        assert samples(text, "reput_store_groups") == []
        assert samples(text, "reput_group_lag_messages") == []
