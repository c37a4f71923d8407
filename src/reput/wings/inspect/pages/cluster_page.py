"""Render the page of `reput report` for several stores: brokers, topics by broker, retention, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reput.base import Finding, format_duration, format_size, now_ms, one_line
from reput.wings.inspect.measuring.figures import StoreFigures
from reput.wings.inspect.pages.charts import Bar, bar
from reput.wings.inspect.pages.rendering import render, seconds

_MOST_TOPICS, _NAME_WIDTH = 24, 64
_SERIES = 6


@dataclass(frozen=True, slots=True)
class ClusterStore:
    """A store on the page.

    Attributes:
        name: The name of the store.
        state: The state in words: ok, warning, damaged, not read.
        text: The worst finding, or the reason why the store was not read.
        figures: The figures of the store; None if it was not read.
        replica_of: The name of the store of which this store is a replica; None if this store is not a replica, or if
            the other store was not read. The page's sums do not count replicas.
        page: The name of the store's own page; empty if it has none.
    """

    name: str
    state: str
    text: str
    figures: StoreFigures | None
    replica_of: str | None
    page: str


def cluster_page(
    stores: Sequence[ClusterStore], headline: str, differing: Sequence[Finding], *, is_quick: bool
) -> str:
    """Return the page as HTML.

    Args:
        stores: The stores, the worst first.
        headline: The counts of all stores.
        differing: Findings about stores of one broker whose logs differ.
        is_quick: Whether the checks were quick checks.
    """
    figures = {
        store.name: store.figures
        for store in stores
        if store.figures is not None and not store.replica_of
    }
    topics = _topics(figures)
    return render(
        "cluster.html",
        stores=stores,
        headline=headline,
        is_bad=bool(differing) or any(store.state != "ok" for store in stores),
        differing=differing,
        is_quick=is_quick,
        messages=sum(store.messages for store in figures.values()),
        size=sum(store.size_bytes for store in figures.values()),
        topic_count=len(topics),
        brokers=len(figures),
        message_bars=_broker_bars(figures, "messages"),
        byte_bars=_broker_bars(figures, "size_bytes"),
        topic_bytes=_topic_bars(topics, 1, list(figures)),
        topic_messages=_topic_bars(topics, 0, list(figures)),
        other_topics=max(len(topics) - _MOST_TOPICS, 0),
        retention_bars=_retention_bars(figures),
        series=_legend(list(figures)),
    )


_Shares = Mapping[str, Mapping[str, tuple[int, int]]]
"""Number of messages and bytes, by topic and store."""


def _topics(stores: Mapping[str, StoreFigures]) -> _Shares:
    topics: dict[str, dict[str, tuple[int, int]]] = {}
    for name, figures in stores.items():
        for topic in figures.topics:
            topics.setdefault(topic.topic, {})[name] = topic.all_messages, topic.all_bytes
    return topics


def _style(place: int) -> str:
    return f"s{place}" if place < _SERIES else "other"


def _legend(names: Sequence[str]) -> list[tuple[str, str]]:
    entries = [
        (_style(place), one_line(name, _NAME_WIDTH)) for place, name in enumerate(names[:_SERIES])
    ]
    more = len(names) - _SERIES
    return [*entries, ("other", f"{more:,} other stores")] if more > 0 else entries


def _topic_bars(topics: _Shares, place: int, names: Sequence[str]) -> list[Bar]:
    """Return a bar per topic with a part per store. The note of a bar describes how uneven the parts are."""
    totals = {
        topic: sum(share[place] for share in shares.values()) for topic, shares in topics.items()
    }
    largest = max(totals.values(), default=0)
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:_MOST_TOPICS]
    bars = []
    for topic, total in ordered:
        values = [topics[topic].get(name, (0, 0))[place] for name in names]
        parts = [(float(value), _style(number)) for number, value in enumerate(values[:_SERIES])]
        parts.append((float(sum(values[_SERIES:])), "other"))
        value = format_size(total) if place else f"{total:,}"
        bars.append(bar(one_line(topic, _NAME_WIDTH), value, parts, largest, _skew(values)))
    return bars


def _skew(values: Sequence[int]) -> str:
    """Describe how unevenly a topic is distributed over stores, from its messages or bytes in each store.

    For example `in 3 of 4 stores, the largest has 2.0 times the mean`.
    """
    having = sum(value > 0 for value in values)
    note = f"in {having:,} of {len(values):,} stores"
    mean = sum(values) / len(values) if values else 0.0
    return (
        f"{note}, the largest has {max(values) / mean:.1f} times the mean" if having > 1 else note
    )


def _broker_bars(stores: Mapping[str, StoreFigures], field: str) -> list[Bar]:
    values = {name: getattr(figures, field) for name, figures in stores.items()}
    # Bars are sorted by value, but each store keeps its colour in all charts.
    largest, places = max(values.values(), default=0), {name: n for n, name in enumerate(values)}
    return [
        bar(
            one_line(name, _NAME_WIDTH),
            format_size(value) if field == "size_bytes" else f"{value:,}",
            [(float(value), _style(places[name]))], largest,
        )
        for name, value in sorted(values.items(), key=lambda item: -item[1])
    ]  # fmt: skip


def _retention_bars(stores: Mapping[str, StoreFigures]) -> list[Bar]:
    """Return a bar per store for its retention time, the shortest first."""
    now = now_ms()
    spans = {
        name: (now - store_figures.timeline.begin_ms, store_figures.timeline.begin_ms)
        for name, store_figures in stores.items()
        if store_figures.messages
    }
    longest = max((span for span, _ in spans.values()), default=0)
    return [
        bar(
            one_line(name, _NAME_WIDTH),
            format_duration(span),
            [(max(span, 0), "a")],
            longest,
            f"since {seconds(begin)}",
        )
        for name, (span, begin) in sorted(spans.items(), key=lambda item: item[1])
    ]
