"""The alert rules and the dashboard in deploy/: their metrics exist, and alerts fire on bad stores only."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reput import rebuild
from reput.engine.check import scrub
from reput.engine.stores.monitoring import _LISTS, STORE_METRICS
from reput.io import Disk
from reput.wings.console.metrics import _GAUGES
from tests.cli.running import reput
from tests.console.serving import console
from tests.fleet.alerting import Rules, Vector, samples_of, tokens_of
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, SHIPPED, GoldenStore
from tests.waiting import wait_for

Golden = Callable[[str], GoldenStore]
DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
BOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
# The metrics that have the label `store`, and their further labels.
LABELS: dict[str, set[str]] = {
    **{name: {"store"} for name in _GAUGES},
    **{f"reput_store_{name}": {"store"} for name in (*STORE_METRICS, "surveyed_seconds")},
    **{
        f"reput_{label}_{name}": {"store", label}
        for label, (_, metrics) in _LISTS.items()
        for name in metrics
    },
}
WORDS = {"time", "offset", "topk", "store"}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b[a-z]\w*(?=[^\w]|$)", re.sub(r'"[^"]*"', "", expression))) - WORDS


def test_each_rule_has_the_fields_that_prometheus_asks_for() -> None:
    assert RULES.keys() == {"groups"}
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names) > 10
    for rule in ALERTS:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert re.fullmatch(r"Reput[A-Z]\w+", rule["alert"])
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "0m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        (metric,) = metrics_in(rule["expr"])
        labels = LABELS[metric]
        assert tokens_of(rule["expr"])
        texts = rule["annotations"]
        assert texts.keys() == {"summary", "description"}
        for text in texts.values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels
            assert text.count("{{") == text.count("}}") == len(re.findall(r"\{\{ \$\w", text))


def test_the_dashboard_uses_metrics_and_labels_that_exist() -> None:
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers) >= 10
    variables = {one["name"] for one in BOARD["templating"]["list"]}
    places = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        places.add((place["x"], place["y"]))
        assert place["x"] + place["w"] <= 24
        assert (panel["title"], panel["description"]) != ("", "")
        assert panel["datasource"]["uid"] == "${source}"
        for target in panel["targets"]:
            expression = target["expr"]
            (metric,) = metrics_in(re.sub(r"\d+", "", expression))
            assert '{store=~"$store"}' in expression
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= LABELS[metric]
            assert set(re.findall(r"\$(\w+)", expression)) <= variables
    assert len(places) == len(BOARD["panels"])


def fired(text: str, before: str = "", seconds: float | None = None) -> dict[str, Vector]:
    """Return the alerts that fire on a page of metrics, by name."""
    rules = Rules(samples_of(text), samples_of(before), time.time() if seconds is None else seconds)
    found = {rule["alert"]: rules.alerts(rule["expr"]) for rule in ALERTS}
    return {name: series for name, series in found.items() if series}


def page(*stores: Path) -> str:
    """Return the metrics of stores, as node_exporter's textfile collector reads them."""
    return reput("fleet", *stores, "--format", "prometheus").out


@pytest.mark.parametrize("name", [*EVERY_STORE, *EVERY_FIVE])
def test_no_alert_fires_on_a_healthy_store(golden: Golden, name: str) -> None:
    path = golden(name).path
    text = page(path)
    assert "reput_store_state{" in text
    assert fired(text, before=text) == {}


@pytest.mark.slow
def test_no_alert_fires_on_thirty_healthy_stores(golden: Golden, tmp_path: Path) -> None:
    # Groups of FIVE_LIFE have unread messages, which grow old.
    names = [*EVERY_STORE, *EVERY_FIVE]
    stores = [golden(name).path for name in names]
    for name in (*SHIPPED, "five_default", "five_crc"):
        rebuilt = copy_store(golden(name).path, tmp_path / f"rebuilt-{name}")
        rebuild(rebuilt, runner="serial")
        scrubbed = copy_store(golden(name).path, tmp_path / f"scrubbed-{name}")
        scrub(scrubbed, rate=None)
        stores += [rebuilt, scrubbed]
    assert len(stores) >= 30
    text = page(*stores)
    assert text.count("reput_store_state{") == len(stores)
    assert fired(text, before=text) == {}


def stores_of(alerts: Vector) -> set[str]:
    return {dict(labels)["store"] for labels in alerts}


@pytest.fixture
def prepared(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> dict[str, Path]:
    """Stores with one fault each, and a healthy one."""
    names = "healthy", "damaged", "full", "late", "outside", "rotten"
    stores = {name: copy_store(golden("orders").path, tmp_path / name) for name in names}
    (queue,) = list(stores["damaged"].glob("consumequeue/*/0"))[:1]
    for path in queue.iterdir():
        path.write_bytes(bytes(path.stat().st_size - 7))
    usage = Disk.usage
    monkeypatch.setattr(
        Disk, "usage",
        lambda self, path: (1, 0) if stores["full"] in (path, path.parent) else usage(self, path),
    )  # fmt: skip
    topic = queue.parent.name
    for name, offset in (("late", 0), ("outside", 10**9), ("healthy", None)):
        (stores[name] / "config").mkdir(exist_ok=True)
        table = {} if offset is None else {f"{topic}@group-{name}": {"0": offset}}
        (stores[name] / "config" / "consumerOffset.json").write_text(
            json.dumps({"offsetTable": table})
        )
    log = min((stores["rotten"] / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(3000)
        file.write(bytes(3000))
    for name in ("rotten", "healthy"):
        scrub(stores[name], rate=None)
    return stores


EXPECTED = {
    "ReputStoreDamaged": {"damaged", "rotten"},
    "ReputStoreWarning": {"full", "outside"},
    "ReputUnreadableBytes": {"rotten"},
    "ReputDiskFull": {"full"},
    "ReputDiskFullSoon": {"full"},
    "ReputGroupLate": {"late"},
    "ReputOffsetOutsideQueue": {"outside"},
}


def test_alerts_fire_on_the_stores_with_a_fault_and_on_no_other(prepared: dict[str, Path]) -> None:
    alerts = fired(page(*prepared.values(), prepared["healthy"].with_name("gone")))
    paths = {str(path): name for name, path in prepared.items()}
    named = {
        alert: {paths.get(one, "gone") for one in stores_of(series)}
        for alert, series in alerts.items()
    }
    assert named == EXPECTED | {"ReputStoreNotRead": {"gone"}}


def test_alerts_fire_on_the_metrics_of_a_server(prepared: dict[str, Path]) -> None:
    with console(prepared) as client:

        def surveyed() -> str | None:
            text = client.get("/metrics").text
            is_done = text.count("reput_store_surveyed_seconds{") == len(prepared)
            return text if is_done else None

        text = wait_for(surveyed)
    named = {alert: stores_of(series) for alert, series in fired(text).items()}
    assert named == EXPECTED
    # An hour later, the figures are old.
    later = fired(text, seconds=time.time() + 3_700)
    assert stores_of(later["ReputSurveyOld"]) == set(prepared)


CHANGES = [
    ("ReputStoreMissing", "reput_store_up", 0),
    ("ReputProofOld", "reput_store_proof_age_seconds", 35 * 86_400 + 1),
]


@pytest.mark.parametrize(("alert", "metric", "value"), CHANGES)
def test_alerts_on_figures_that_a_test_cannot_wait_for(
    alert: str, metric: str, value: float
) -> None:
    assert list(fired(f'{metric}{{store="s"}} {value}\n')) == [alert]
    assert fired(f'{metric}{{store="s"}} 1\n') == {}


def test_growth_is_compared_with_a_week_ago() -> None:
    metric = 'reput_store_growth_bytes_per_day{store="s"}'
    assert list(fired(f"{metric} 201\n", f"{metric} 100\n")) == ["ReputGrowthDoubled"]
    assert fired(f"{metric} 200\n", f"{metric} 100\n") == {}
    assert fired(f"{metric} 201\n") == {}
