"""The dashboards beside the metrics and Grafana's format; `tests/integration/test_monitoring.py` has them asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest

from deltaworks.connectors.metrics import ConnectorMetrics
from deltaworks.connectors.overview import Connectors
from deltaworks.metrics.dashboards import ALL, files
from deltaworks.metrics.grafana import COLUMNS, TAG, Dashboard, Unit, document
from deltaworks.metrics.stream import StreamMetrics
from tests.unit.connectors.test_metrics import RUNS
from tests.unit.metrics.test_stream import BEAT

FOLDER = Path(__file__).parents[3] / "infra" / "monitoring" / "dashboards"
each = pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.uid)


def panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(dashboard)["panels"]
    return found


def queries(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """Panel and query."""
    for panel in panels(dashboard):
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_the_files_of_the_repository_are_what_is_rendered() -> None:
    there = {file.name: file.read_text() for file in FOLDER.iterdir()}

    assert there == files(), "deltaworks metrics --dashboards infra/monitoring/dashboards --force"


def test_there_is_one_for_each_question() -> None:
    assert [each.title for each in ALL] == [
        "Streams overview", "One stream", "Stores and state", "Delta tables", "Connectors"
    ]  # fmt: skip
    assert len({each.uid for each in ALL}) == len(ALL)


@each
def test_grafana_can_import_it(dashboard: Dashboard) -> None:
    """What Grafana's schema of dashboards and of these kinds of panels requires, and what breaks links and layouts."""
    found = json.loads(files()[f"{dashboard.uid}.json"])

    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", found["uid"])
    assert found["title"] and found["schemaVersion"] == 39 and found["tags"] == [TAG]
    assert {"id", "version"}.isdisjoint(found), "Grafana gives them"
    datasource, *others = found["templating"]["list"]
    assert (datasource["name"], datasource["type"], datasource["query"]) == ("datasource", "datasource", "prometheus")
    assert [each["name"] for each in others] == ([dashboard.variable.name] if dashboard.variable else [])
    numbers = [panel["id"] for panel in found["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in found["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["type"] in {"timeseries", "stat", "table"}
        assert panel["title"] and panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in get_args(Unit)
        assert panel["targets"]
        assert [target["refId"] for target in panel["targets"]] == [chr(65 + n) for n in range(len(panel["targets"]))]
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert target["instant"] != target["range"]
            assert target["instant"] == (panel["type"] != "timeseries")
    titles = [panel["title"] for panel in found["panels"] if panel["type"] == "timeseries"]
    assert len(set(titles)) == len(titles)


@each
def test_panels_are_side_by_side_and_not_on_each_other(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in panels(dashboard)]

    assert all(at["x"] >= 0 and at["x"] + at["w"] <= COLUMNS for at in places), "in the grid"
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


def test_queries_ask_for_metrics_and_labels_that_there_are() -> None:
    streams, connectors = StreamMetrics("orders", Path("/")), ConnectorMetrics()
    streams.take(BEAT)
    connectors.take(Connectors(connectors=(RUNS,)))
    there: dict[str, set[str]] = {}
    for registry in (streams.registry, connectors.registry):
        for family in registry.collect():
            for sample in family.samples:
                there.setdefault(sample.name, set()).update(sample.labels)

    for dashboard in ALL:
        for panel, expr in queries(dashboard):
            asked = set(re.findall(r"deltaworks_(?:stream|connector|connect)_[a-z_]+(?![a-z_]*=)", expr)) - {
                "deltaworks_stream_state"
            }
            assert asked <= there.keys(), (panel, asked - there.keys())
            known = set().union(*(there[name] for name in asked))
            by = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expr) for label in labels.split(",")}
            if asked:
                assert by - {"pipeline"} <= known, (panel, by - known)


def test_all_that_is_measured_is_on_a_dashboard() -> None:
    """Else nobody looks at it, and it could go."""
    streams, connectors = StreamMetrics("orders", Path("/")), ConnectorMetrics()
    streams.take(BEAT)
    connectors.take(Connectors(connectors=(RUNS,)))
    words = {word for dashboard in ALL for _, expr in queries(dashboard) for word in re.findall(r"\w+", expr)}
    asked = {re.sub("_(total|bucket|sum|count)$", "", word) for word in words}
    names = {family.name for registry in (streams.registry, connectors.registry) for family in registry.collect()}

    unseen = {name.removeprefix("deltaworks_") for name in names if name.startswith("deltaworks") and name not in asked}

    assert unseen == {
        "stream_last_batch", "stream_next_offset",  # numbers of batches and offsets say nothing in a graph
        "stream_alert_batch_seconds", "stream_alert_dead_letters", "stream_alert_state_growth",  # for the rules
        "connector_alert_dead_letters", "connector_deployed_seconds", "connector_failed_records",  # likewise
    }  # fmt: skip


@each
def test_a_graph_of_one_stream_names_no_other(dashboard: Dashboard) -> None:
    """Graphs obey the variable; only what is of the whole home does not."""
    for panel in panels(dashboard):
        if panel["type"] == "timeseries" and dashboard.variable is not None:
            for target in panel["targets"]:
                chosen = f'{dashboard.variable.name}=~"${dashboard.variable.name}"'
                assert chosen in target["expr"] or "home_free" in target["expr"], panel["title"]
