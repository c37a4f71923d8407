"""The cost of queries of a large archive, in requests and bytes: times depend on the machine."""

from pathlib import Path

import pytest

from benchmarks.archive import MOST_REQUESTS, archive_in_bucket, query_costs

_MOST_BYTES = 20 << 20


@pytest.mark.slow
def test_queries_of_an_archive_of_1_000_log_files_take_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with archive_in_bucket(tmp_path) as bucket:
        costs = {cost.name: cost for cost in query_costs(bucket, tmp_path / "cache")}
    assert all(costs[name].requests <= most for name, most in MOST_REQUESTS.items()), costs
    assert max(cost.sent_bytes for cost in costs.values()) <= _MOST_BYTES
