"""Names of stores and brokers from paths."""

from pathlib import Path

import pytest

from reput.core.log.sources import BrokerNames, LogListing
from reput.engine.tables.naming import named_from
from reput.errors import UsageError


def _named(pattern: str, *paths: str) -> list[tuple[str, BrokerNames]]:
    logs = [LogListing(path, ()) for path in paths]
    return [(log.name, log.names) for log in named_from(logs, pattern)]


def test_brokers_and_clusters() -> None:
    assert _named("/data/{broker}/store", "/data/broker-a/store", "/data/b.c/store/") == [
        ("broker-a", BrokerNames("broker-a")), ("b.c", BrokerNames("b.c")),
    ]  # fmt: skip
    assert _named("/*/{cluster}-x/{broker}", "/d/main-x/a") == [
        ("main/a", BrokerNames("a", "main"))
    ]
    assert _named("s3://b/{broker}/store", "s3://b/x/store") == [("x", BrokerNames("x"))]


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _named("{broker}", "a") == [("a", BrokerNames("a"))]


@pytest.mark.parametrize(
    ("pattern", "paths", "why"),
    [
        ("/data/{broker}", ["/data/a/store"], "does not match the store /data/a/store"),
        (
            "/data/*/{broker}",
            ["/data/1/a", "/data/2/a"],
            "/data/1/a and /data/2/a would both be named a",
        ),
        ("/data/store", ["/data/store"], "must contain {broker} once"),
        ("/{broker}/{broker}", ["/a/a"], "must contain {broker} once"),
        ("/{broker}/{id}", ["/a/b"], "must contain {broker} once"),
    ],
)
def test_what_is_refused(pattern: str, paths: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        _named(pattern, *paths)
