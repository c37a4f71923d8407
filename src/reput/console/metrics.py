"""What Prometheus reads: requests by route, and where the stores begin and end."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reput import __version__
from reput.broker.offsets import consumer_lag
from reput.console.mounts import Mounts
from reput.errors import ReputError
from reput.files.storage import is_url

_GAUGES = {
    "reput_store_up": "1 if the store can be read",
    "reput_store_begin_offset": "Physical offset of the first byte that has not expired",
    "reput_store_end_offset": "Physical offset at which the log ends",
    "reput_store_queues": "Queues of all topics",
}


# A client may send any word: each would be kept for as long as the process runs.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})


class Metrics:
    """The registry of one app."""

    def __init__(self, mounts: Mounts) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_StoreCollector(mounts))
        ProcessCollector(registry=self.registry)  # processor time, memory, descriptors
        labels = ["route", "method", "status"]
        self._requests = Counter(
            "reput_http_requests", "HTTP requests", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "reput_http_request_seconds", "Time to the end of the answer", ["route"],
            registry=self.registry,
        )  # fmt: skip

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All of it, and its type: OpenMetrics if the Accept header prefers it. It asks the stores."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def measured(self, app: ASGIApp) -> ASGIApp:
        """The app, its requests counted by route."""

        async def run(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            begin, status = time.perf_counter(), 500

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, noting)
            finally:
                route = getattr(scope.get("route"), "path", "other")
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._requests.labels(route, method, status).inc()
                self._seconds.labels(route).observe(time.perf_counter() - begin)

        return run


class _StoreCollector(Collector):
    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts

    def describe(self) -> list[Metric]:
        return []  # registering it asks no store

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("reput_build", "The version", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        gauges = {
            name: GaugeMetricFamily(name, text, labels=["store"]) for name, text in _GAUGES.items()
        }
        searches = GaugeMetricFamily("reput_http_searches", "Searches that are running or wait")
        searches.add_metric([], self._mounts.searches)
        yield searches
        lag = GaugeMetricFamily(
            "reput_group_lag_messages", "Messages that a consumer group has to read",
            labels=["store", "group"],
        )  # fmt: skip
        for store in self._mounts.names:
            for group, messages in self._lag(store).items():
                lag.add_metric([store, group], messages)
        yield lag
        for store in self._mounts.names:
            for name, value in self._figures(store).items():
                gauges[name].add_metric([store], value)
        for store in self._mounts.missing:
            gauges["reput_store_up"].add_metric([store], 0)
        yield from gauges.values()

    def _lag(self, name: str) -> dict[str, int]:
        """Lag by group, of a store on this machine whose offsets can be read."""
        totals = Counts[str]()
        with suppress(ReputError):
            _, store = self._mounts.named(name)
            if not is_url(store.path):
                for queue in consumer_lag(store, store.path):
                    totals[queue.group] += queue.lag or 0
        return totals

    def _figures(self, name: str) -> dict[str, float]:
        try:
            _, store = self._mounts.named(name)
            return {
                "reput_store_up": 1,
                "reput_store_begin_offset": store.begin_offset(),
                "reput_store_end_offset": store.end_offset(),
                "reput_store_queues": len(store.list_queues()),
            }
        except ReputError:
            return {"reput_store_up": 0}
