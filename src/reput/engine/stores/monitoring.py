"""Format the states of stores for monitoring: as output of a Nagios plugin, or as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reput.base import Severity, one_line, printable
from reput.engine.stores.stores import StoreAnswer, StoresReport, StoreState

_WIDTH = 300
_NAGIOS = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
STORE_METRICS = {
    "state": "0 ok, 1 warning, 2 damaged, 3 not read.",
    "log_bytes": "Bytes of CommitLog files.",
    "newest_message_seconds": "Store time of the newest message, in seconds since 1970.",
    "growth_bytes_per_day": "Bytes of CommitLog per day.",
    "disk_free_bytes": "Free bytes of the log's disk.",
    "days_until_full": "Days until the disk is full if nothing expires, 0 if it is full.",
    "index_coverage_ratio": "Share of the log that IndexFiles cover.",
    "group_lag_messages": "Messages that the consumer group furthest behind has to read.",
    "group_lag_seconds": "Age of the oldest message that a consumer group has not consumed.",
    "unreadable_bytes": "Bytes of CommitLog that a scrub could not read.",
    "unproved_bytes": "Bytes of CommitLog files that no scrub has read yet.",
    "proof_age_seconds": "Time since which no scrub has proved the file with the oldest proof.",
}
"""The metrics of a store and their explanations. Their full names have the prefix `reput_store_`."""
GROUP_METRICS = {
    "lag_messages": "Messages that a consumer group has not consumed.",
    "lag_seconds": "Age of the oldest message that a consumer group has not consumed, 0 without one.",
    "offsets_after_end": "Queues that end before the offset that a consumer group has committed.",
}
"""The metrics of a consumer group and their explanations. Their full names have the prefix `reput_group_`."""
TOPIC_METRICS = {
    "growth_bytes_per_day": "Bytes of CommitLog per day of a topic's messages, estimated from samples.",
}
"""The metrics of a topic and their explanations. Their full names have the prefix `reput_topic_`."""
FILE_METRICS = {"proof_age_seconds": "Age of the last proof of a file by a scrub."}
"""The metrics of a file and their explanations. Their full names have the prefix `reput_file_`."""
_LISTS = {
    "file": ("files", FILE_METRICS),
    "group": ("groups", GROUP_METRICS),
    "topic": ("topics", TOPIC_METRICS),
}
"""Parts of a store with metrics of their own, by label: the list in the report, and the metrics."""
MOST_PARTS = 100
"""Each metric is a time series, so the metrics have at most this many groups, topics and files of a store."""
_NUMBERS = {StoreState.OK: 0, StoreState.WARNING: 1, StoreState.DAMAGED: 2, StoreState.NOT_READ: 3}


def nagios_status(report: StoresReport[Any], fail_on: Severity) -> tuple[str, int]:
    """Return the status of a Nagios plugin and its exit code. If `fail_on` is damage, warnings count as OK."""
    counts = report.counts
    if report.severity is Severity.DAMAGE:
        name = "CRITICAL"
    elif counts[StoreState.NOT_READ]:
        name = "UNKNOWN"
    elif report.severity is Severity.WARNING and fail_on is Severity.WARNING:
        name = "WARNING"
    else:
        name = "OK"
    return name, _NAGIOS[name]


def nagios_lines(report: StoresReport[Any], status: str) -> Iterator[str]:
    """Yield a line with counts and performance data, then a line per store that is not OK."""
    counts = {str(state).replace(" ", "_"): count for state, count in report.counts.items()}
    data = " ".join(f"{name}={count}" for name, count in {"stores": len(report), **counts}.items())
    yield f"REPUT {status} - {_plain(report.headline)} | {data}"
    for one in report.worst_first():
        if one.state is not StoreState.OK:
            yield f"{_plain(one.store)}: {one.state}: {_plain(one.headline)}"
    yield from (_plain(str(finding)) for finding in report.differing)


def _plain(text: str) -> str:
    # In the output of a Nagios plugin, | ends the text, and performance data follow.
    return one_line(text, _WIDTH).replace("|", "/")


def prometheus_lines(answers: Sequence[StoreAnswer[Any]]) -> Iterator[str]:
    """Yield the metrics of all stores in the format of node_exporter's textfile collector."""
    figures = [store_figures(one) for one in answers]
    for name, text in STORE_METRICS.items():
        rows = [
            ({"store": one.store}, values.get(name))
            for one, values in zip(answers, figures, strict=True)
        ]
        yield from _family(f"reput_store_{name}", text, rows)
    for label in _LISTS:
        yield from (
            line
            for name, text, rows in part_figures(answers, label)
            for line in _family(name, text, rows)
        )


def part_figures(
    answers: Sequence[StoreAnswer[Any]], label: str
) -> Iterator[tuple[str, str, list[tuple[dict[str, str], float | None]]]]:
    """Yield the metrics of groups, topics or files: name, explanation, and the labels and values of the first parts."""
    listed, metrics = _LISTS[label]
    for name, text in metrics.items():
        rows = [
            ({"store": one.store, label: part[label]}, part[name])
            for one in answers
            # A report of a check has no such list.
            if one.report is not None
            for part in one.report.as_dict().get(listed, ())[:MOST_PARTS]
        ]
        yield f"reput_{label}_{name}", text, rows


def _family(
    name: str, text: str, rows: Sequence[tuple[dict[str, str], float | None]]
) -> Iterator[str]:
    """Yield a metric's lines. Unknown values (None) have no line, and a metric without values has no head."""
    known = [(labels, value) for labels, value in rows if value is not None]
    if known:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} gauge"
    for labels, value in known:
        shown = ",".join(f'{label}="{_label(of)}"' for label, of in labels.items())
        yield f"{name}{{{shown}}} {value:.15g}"


def store_figures(answer: StoreAnswer[Any]) -> dict[str, float | None]:
    """Return the values of `STORE_METRICS`. Unknown values are None or missing."""
    found: dict[str, float | None] = {"state": _NUMBERS[answer.state]}
    if answer.report is None:  # The store was not read, so do not report a size of 0.
        return found
    found["log_bytes"] = answer.log_bytes
    found.update(answer.report.as_dict().get("metrics", {}))
    return found


def _label(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
