"""Dashboards of Grafana as values, and the JSON that Grafana imports; which ones there are is in `dashboards.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["timeseries", "stat", "table"]
Unit = Literal["short", "none", "s", "bytes", "cps", "ops", "percentunit", "dateTimeFromNow", "bool_yes_no"]
"""Names of Grafana's units; `cps` counts per second, `percentunit` is a share of 1."""
TAG = "deltaworks"
COLUMNS = 24
"""Of Grafana's grid."""
_SCHEMA = 39
"""Version of Grafana's format of dashboards: that of Grafana 10.4; newer ones read it, too."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHTS: dict[Kind, int] = {"timeseries": 8, "stat": 4, "table": 9}


@dataclass(frozen=True, kw_only=True)
class Query:
    """One or more series of a panel."""

    expr: str
    """In PromQL; `$__rate_interval` and the dashboard's variable are Grafana's to fill in."""
    legend: str = ""
    """The name of each series, with labels in double braces; in a table, that of the column."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A rectangle of a dashboard."""

    title: str
    what: str
    """What it says, for whoever points at it."""
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    unit: Unit = "short"
    width: int = 12
    stacked: bool = False
    red_from: float | None = None
    """From which value on it is red; None: never."""
    red_below: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """What can be chosen above a dashboard."""

    name: str
    metric: str
    """Whose label of this name has the values."""
    several: bool = True


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A page of Grafana."""

    uid: str
    """Stays as it is, because links have it."""
    title: str
    what: str
    rows: tuple[Row, ...]
    variable: Variable | None = None
    joined_by: str = "pipeline"
    """The label by which the queries of a table become one."""


def render(dashboard: Dashboard) -> str:
    """The file that Grafana imports."""
    return json.dumps(document(dashboard), indent=1) + "\n"


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The same as a value."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.what,
        "tags": [TAG],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [{"type": "dashboards", "title": "deltaworks", "tags": [TAG], "asDropdown": True, "keepTime": True}],
        "templating": {"list": list(_variables(dashboard))},
        "annotations": {"list": [_alerts()]},
        "panels": list(_panels(dashboard)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    if (variable := dashboard.variable) is not None:
        asked = f"label_values({variable.metric}, {variable.name})"
        yield {
            "name": variable.name,
            "label": variable.name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "definition": asked,
            "query": {"query": asked, "refId": "variable"},
            "refresh": 2,
            "sort": 1,
            "multi": variable.several,
            "includeAll": variable.several,
            **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if variable.several else {}),
        }


def _alerts() -> dict[str, Any]:
    """Firing alerts are marked in all graphs."""
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertstate="firing"}',
        "titleFormat": "{{alertname}} {{pipeline}}",
        "step": "30s",
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in dashboard.rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            number += 1
            place = {"x": x, "y": y, "w": panel.width, "h": _HEIGHTS[panel.kind]}
            yield {"id": number, "gridPos": place, **_panel(panel, dashboard.joined_by)}
            x, height = x + panel.width, max(height, _HEIGHTS[panel.kind])
        y += height


def _panel(panel: Panel, joined_by: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.what,
        "datasource": _SOURCE,
        "targets": [_target(panel, number, query) for number, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **_colours(panel)}, "overrides": []},
        "options": _options(panel),
    }
    if panel.kind == "timeseries":
        custom: dict[str, Any] = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
        custom["stacking"] = {"mode": "normal" if panel.stacked else "none"}
        found["fieldConfig"]["defaults"]["custom"] = custom
    elif panel.kind == "table" and len(panel.queries) > 1:
        found["transformations"] = [
            {"id": "joinByField", "options": {"byField": joined_by, "mode": "outer"}},
            {
                "id": "organize",
                "options": {"excludeByName": {f"Time {n + 1}": True for n in range(len(panel.queries))}},
            },
        ]
        found["fieldConfig"]["overrides"] = [
            {
                "matcher": {"id": "byName", "options": f"Value #{_letter(number)}"},
                "properties": [{"id": "displayName", "value": query.legend}],
            }
            for number, query in enumerate(panel.queries)
        ]
    return found


def _target(panel: Panel, number: int, query: Query) -> dict[str, Any]:
    now = panel.kind != "timeseries"
    return {
        "refId": _letter(number),
        "datasource": _SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": now,
        "range": not now,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _colours(panel: Panel) -> dict[str, Any]:
    red, green = "red", "green"
    if panel.red_from is not None:
        steps = [{"color": green, "value": None}, {"color": red, "value": panel.red_from}]
    elif panel.red_below is not None:
        steps = [{"color": red, "value": None}, {"color": green, "value": panel.red_below}]
    else:
        return {}
    return {"thresholds": {"mode": "absolute", "steps": steps}}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"], "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        coloured = panel.red_from is not None or panel.red_below is not None
        return {"reduceOptions": reduced, "colorMode": "background" if coloured else "value", "graphMode": "none"}
    return {"showHeader": True, "cellHeight": "sm"}
