"""What tests of metrics, alerts and dashboards share: who is told of alerts, and what Prometheus answers."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deltaworks.metrics import dashboards, rules
from deltaworks.metrics.grafana import Query
from deltaworks.settings import Settings
from deltaworks.stack import pages

HOME = frozenset(rule.name for rule in rules.RULES if rule.subject == "home")
"""Alerts of the home, which name no pipeline and no connector."""
FIRING, RESOLVED = "firing", "resolved"


class Webhook:
    """What the Alertmanager has told: (alert, pipeline or connector, status) -> how often."""

    def __init__(self) -> None:
        self.told: Counter[tuple[str, str, str]] = Counter()
        self.texts: dict[str, dict[str, str]] = {}
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in content["alerts"]:
                    name, labels = alert["labels"]["alertname"], alert["labels"]
                    subject = labels.get("pipeline", labels.get("connector", ""))
                    hook.told[name, subject, alert["status"]] += 1
                    hook.texts[name] = alert["annotations"] | {"since": alert["startsAt"]}
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server.server_port}/"

    def close(self) -> None:
        """It hears no more."""
        self.server.shutdown()
        self.server.server_close()


def asked(settings: Settings, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers to a query."""
    path = f"/api/v1/query?query={urllib.parse.quote(query)}"
    said = pages.said(settings.prometheus_port, path, timeout_s=10) or {}
    found: list[dict[str, Any]] = said.get("data", {}).get("result", [])
    return found


def filled(expr: str) -> str:
    """A query of a dashboard as Grafana asks it."""
    return re.sub(r"\$(pipeline|connector)\b", ".*", expr).replace("$__rate_interval", "1m")


def asked_by_panels() -> Iterator[tuple[str, Query]]:
    """Dashboard and panel, and each of its queries."""
    for dashboard in dashboards.ALL:
        for row in dashboard.rows:
            for panel in row.panels:
                yield from ((f"{dashboard.title}, {panel.title}", query) for query in panel.queries)


def panels() -> dict[str, Query]:
    """All queries of all panels, by a name of their own."""
    return {f"{name} {query.legend} {number}": query for number, (name, query) in enumerate(asked_by_panels())}


def without_numbers(
    settings: Settings, wanted: Mapping[str, Query], meanwhile: Callable[[], None] = lambda: None, *, within_s: float
) -> dict[str, Query]:
    """The panels that have no number yet, after some seconds of a stream that goes on.

    Args:
        settings: of the home with the Prometheus.
        wanted: see `panels`.
        meanwhile: makes the stream go on, once a second.
        within_s: how long numbers may take.
    """
    missing, until_s = dict(wanted), time.monotonic() + within_s
    while missing and time.monotonic() < until_s:
        meanwhile()
        for name, query in list(missing.items()):
            if any(series["value"][1] != "NaN" for series in asked(settings, filled(query.expr))):
                del missing[name]
        time.sleep(1.0)
    return missing
