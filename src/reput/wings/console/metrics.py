"""Provide metrics for Prometheus: requests by route, and figures of stores."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reput import __version__
from reput.base import Severity
from reput.engine import stores
from reput.errors import ReputError
from reput.io import Location
from reput.wings.console.mounts import Mounts
from reput.wings.console.surveys import Rounds
from reput.wings.fleet.api import SurveyReport, survey
from reput.wings.serve import GroupLag, Traffic, consumer_lag, group_lags

_GAUGES = {
    "reput_store_up": "1 if the store can be read",
    "reput_store_begin_offset": "Physical offset of the first byte that has not expired",
    "reput_store_end_offset": "Physical offset at which the log ends",
    "reput_store_queues": "Queues of all topics",
    "reput_store_groups": "Consumer groups with committed offsets",
    "reput_store_groups_left_out": "Further consumer groups, without metrics of their own",
    "reput_store_groups_lag_unknown": "Consumer groups whose lag is unknown",
    "reput_store_counted_seconds": "When end, queues, groups and lag were counted, in seconds since 1970",
}
# The metrics have the lags of at most _MOST_GROUPS consumer groups of each store, and of at most _MOST_LAGS groups of
# all stores together. Each lag is a time series in Prometheus.
_MOST_GROUPS, _MOST_LAGS = 100, 5_000
# No broker accepts a longer name, but a file of offsets can contain any text.
_MOST_NAME = 255
_COUNTED_S = 2.0
"""Time for which a scrape waits for counts. For stores that take longer, it returns the previous counts."""
_SURVEYED_S = 300.0


# Accept only these methods as labels. Clients may send any text as a method, and every label is kept until the process
# ends.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one app."""

    def __init__(self, mounts: Mounts, traffic: Traffic | None = None) -> None:
        """Collect metrics of stores.

        `traffic` has the counts of requests of RocketMQ's clients, if such clients are served.
        """
        self.registry = CollectorRegistry()
        self.registry.register(_StoreCollector(mounts))
        self.registry.register(_SurveyCollector(mounts))
        if traffic is not None:
            self.registry.register(_TrafficCollector(traffic))
        # Add metrics of this process: processor time, memory and open files.
        ProcessCollector(registry=self.registry)
        labels = ["route", "method", "status"]
        self._requests = Counter(
            "reput_http_requests", "HTTP requests", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "reput_http_request_seconds", "Time until the answer was complete", ["route"],
            registry=self.registry,
        )  # fmt: skip

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Collect all metrics; return their text, and its content type, which depends on the Accept header."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """Wrap the app in a middleware that counts and measures requests by route. Return the middleware."""

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
                # All unknown paths share one label, because clients may request any path.
                route = getattr(scope.get("route"), "path", "other")
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._requests.labels(route, method, status).inc()
                self._seconds.labels(route).observe(time.perf_counter() - begin)

        return run


class _StoreCounts(NamedTuple):
    """Figures of a store that are slow to compute.

    Attributes:
        end_offset, queues: The end of the log, and the number of queues; None if the store cannot be read.
        groups: Number of groups with committed offsets; None if the offsets were not read.
        unknown: Number of groups whose lag is unknown.
        lag: The groups with the largest lags.
    """

    end_offset: int | None = None
    queues: int | None = None
    groups: int | None = None
    unknown: int = 0
    lag: tuple[GroupLag, ...] = ()


class _StoreCollector(Collector):
    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts
        self._counts = Rounds(mounts, self._count, wait_s=_COUNTED_S)

    def describe(self) -> list[Metric]:
        # Without this method, the registry would call `collect` to find the names of the metrics.
        return []

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("reput_build", "The version", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        searches = GaugeMetricFamily("reput_http_searches", "Searches that are running or waiting")
        searches.add_metric([], self._mounts.searches)
        yield searches
        gauges = {
            name: GaugeMetricFamily(name, text, labels=["store"]) for name, text in _GAUGES.items()
        }
        lags = {
            name: GaugeMetricFamily(f"reput_group_{name}", text, labels=["store", "group"])
            for name, text in stores.GROUP_METRICS.items()
        }
        seen_last = self._counts.latest()
        share = max(_MOST_LAGS // max(len(seen_last), 1), 1)
        for store in self._mounts.names:
            begin = self._begin(store)
            is_up = begin is not None and not (
                store in seen_last and seen_last[store].result.queues is None
            )
            gauges["reput_store_up"].add_metric([store], is_up)
            if begin is not None:
                gauges["reput_store_begin_offset"].add_metric([store], begin)
        for store in self._mounts.missing:
            gauges["reput_store_up"].add_metric([store], 0)
        for store, latest in seen_last.items():
            counts = latest.result
            if counts.queues is not None and counts.end_offset is not None:
                gauges["reput_store_end_offset"].add_metric([store], counts.end_offset)
                gauges["reput_store_queues"].add_metric([store], counts.queues)
                gauges["reput_store_counted_seconds"].add_metric([store], latest.seen_ms / 1000)
            if counts.groups is not None:
                left_out = counts.groups - min(len(counts.lag), share)
                gauges["reput_store_groups"].add_metric([store], counts.groups)
                gauges["reput_store_groups_left_out"].add_metric([store], left_out)
                gauges["reput_store_groups_lag_unknown"].add_metric([store], counts.unknown)
            for group in counts.lag[:share]:
                # A figure that is unknown has no metric.
                for name, metric in lags.items():
                    if (value := getattr(group, name)) is not None:
                        metric.add_metric([store, group.group], value)
        yield from lags.values()
        yield from gauges.values()
        yield self._unreadable()
        yield from self._written()

    def _unreadable(self) -> Metric:
        """Return the number of ranges of messages that pulls could not read, per store."""
        ranges = CounterMetricFamily(
            "reput_store_unreadable_ranges",
            "Ranges of queue offsets whose messages pulls could not read, since the store was opened",
            labels=["store"],
        )
        for name in self._mounts.names:
            with suppress(ReputError):
                ranges.add_metric([name], self._mounts.named(name)[1].unreadable.count)
        return ranges

    def _written(self) -> Iterator[Metric]:
        """Yield two metrics of each store: how many bytes of its log are not flushed yet, and not dispatched yet."""
        unflushed = GaugeMetricFamily(
            "reput_store_unflushed_bytes", "Bytes of log that are not durable yet", labels=["store"]
        )
        undispatched = GaugeMetricFamily(
            "reput_store_undispatched_bytes", "Bytes of log that are not dispatched to queues and indexes yet",
            labels=["store"],
        )  # fmt: skip
        for name in self._mounts.names:
            with suppress(ReputError):
                _, store = self._mounts.named(name)
                # `bytes_behind` returns None if another process writes the log.
                behind = store.bytes_behind()
                if behind is not None:
                    unflushed.add_metric([name], behind[0])
                    undispatched.add_metric([name], behind[1])
        yield from (unflushed, undispatched)

    def _begin(self, name: str) -> int | None:
        with suppress(ReputError):
            _, store = self._mounts.named(name)
            return store.begin_offset()
        return None

    def _count(self, name: str) -> _StoreCounts:
        try:
            _, store = self._mounts.named(name)
            end, queues = store.end_offset(), len(store.list_queues())
        except ReputError:
            return _StoreCounts()
        if Location.is_url(store.path):
            return _StoreCounts(end, queues)
        try:
            groups = group_lags(consumer_lag(store, store.path))
        except ReputError:
            return _StoreCounts(end, queues)
        unknown = sum(group.lag_messages is None for group in groups)
        named = [group for group in groups if len(group.group) <= _MOST_NAME]
        return _StoreCounts(end, queues, len(groups), unknown, tuple(named[:_MOST_GROUPS]))


class _SurveyCollector(Collector):
    """Provides the figures of `reput fleet`, from the last survey of each store."""

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts
        self._surveys = Rounds(mounts, self._survey, most_age_s=_SURVEYED_S)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        latest = self._surveys.latest()
        gauges = {
            name: GaugeMetricFamily(f"reput_store_{name}", text, labels=["store"])
            for name, text in stores.STORE_METRICS.items()
        }
        findings = GaugeMetricFamily(
            "reput_store_findings", "Findings of the quick check, and of figures beyond their limits",
            labels=["store", "severity"],
        )  # fmt: skip
        surveyed = GaugeMetricFamily(
            "reput_store_surveyed_seconds", "When the figures were taken, in seconds since 1970",
            labels=["store"],
        )  # fmt: skip
        for store, (_, _, answer) in latest.items():
            for name, value in stores.store_figures(answer).items():
                if value is not None:
                    gauges[name].add_metric([store], value)
            if answer.report is not None:
                counts = Counts(item.severity for item in answer.report.findings)
                for severity in Severity:
                    findings.add_metric([store, severity], counts[severity])
                surveyed.add_metric([store], answer.report.surveyed_ms / 1000)
        yield from (*gauges.values(), findings, surveyed)
        answers = [item.result for item in latest.values()]
        for label in ("topic", "file"):
            for name, text, rows in stores.part_figures(answers, label):
                gauge = GaugeMetricFamily(name, text, labels=["store", label])
                for labels, value in rows:
                    if value is not None and len(labels[label]) <= _MOST_NAME:
                        gauge.add_metric(list(labels.values()), value)
                yield gauge

    def _survey(self, name: str) -> stores.StoreAnswer[SurveyReport]:
        try:
            _, store = self._mounts.named(name)
            report = survey(store.path, config=store.told_config)
            return stores.StoreAnswer(name, store.path, report, None, report.log_bytes)
        except ReputError as error:
            return stores.StoreAnswer(name, name, None, error)


class _TrafficCollector(Collector):
    """Provides counts and durations of the requests of RocketMQ's clients."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "reput_remoting_requests", "Requests of RocketMQ clients by their outcome",
            labels=["request", "outcome"],
        )  # fmt: skip
        # The event loop may add entries while this thread iterates, so iterate over copies.
        for (request, outcome), count in list(self._traffic.requests.items()):
            requests.add_metric([request, outcome], count)
        yield requests
        seconds = HistogramMetricFamily(
            "reput_remoting_request_seconds",
            "Time until the answer was ready, excluding requests that wait for messages",
            labels=["request"],
        )
        for request, latency in list(self._traffic.seconds.items()):
            seconds.add_metric([request], latency.buckets(), latency.sum_s)
        yield seconds
        for name, (text, value) in self._traffic.gauges.items():
            gauge = GaugeMetricFamily(f"reput_remoting_{name}", text)
            gauge.add_metric([], value())
            yield gauge
