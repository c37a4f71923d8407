"""What Prometheus reads: requests by route, and where the stores begin and end."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reput import __version__
from reput.console.mounts import Mounts
from reput.errors import ReputError

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
        labels = ["route", "method", "status"]
        self._requests = Counter(
            "reput_http_requests", "HTTP requests", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "reput_http_request_seconds", "Time to the end of the answer", ["route"],
            registry=self.registry,
        )  # fmt: skip

    def text(self) -> bytes:
        """All of it, as Prometheus reads it; it asks the stores."""
        return generate_latest(self.registry)

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
        for store in self._mounts.names:
            for name, value in self._figures(store).items():
                gauges[name].add_metric([store], value)
        yield from gauges.values()

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
