"""The alert rules beside the incidents and the metrics; `tests/integration/test_monitoring.py` has them evaluated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deltaworks.connectors.metrics import ConnectorMetrics
from deltaworks.connectors.overview import Connectors
from deltaworks.control.incidents import KINDS, OF_CONNECTORS, OF_STREAMS
from deltaworks.errors import ConfigurationError
from deltaworks.metrics.rules import RULES, render, scaled
from deltaworks.metrics.stream import StreamMetrics
from tests.unit.connectors.test_metrics import RUNS
from tests.unit.metrics.test_stream import BEAT

ROOT = Path(__file__).parents[3]


def rules(**options: Any) -> list[dict[str, Any]]:
    [group] = yaml.safe_load(render(**options))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_the_file_of_the_repository_is_what_is_rendered() -> None:
    assert (ROOT / "infra/monitoring/alerts.yml").read_text() == render(), "deltaworks metrics --alert-rules > it"


def test_each_incident_that_metrics_show_is_an_alert_of_that_name() -> None:
    found = {rule["labels"]["kind"]: rule for rule in rules() if "kind" in rule["labels"]}

    of_streams = OF_STREAMS - {"given_up"}  # the registry knows that, and not the driver
    assert set(found) == of_streams | OF_CONNECTORS | {"disk_filling", "connect_away"}
    for kind, rule in found.items():
        text = KINDS[kind]
        assert rule["alert"].lower() == text.title.lower().replace(" ", "")
        assert rule["annotations"]["page"] == f"docs/runbooks.md#{text.anchor}"
        label = "connector" if kind in OF_CONNECTORS else "pipeline"
        assert rule["annotations"]["advice"] == text.advice.format(pipeline=f"{{{{ $labels.{label} }}}}")


def test_each_page_that_a_rule_opens_is_there() -> None:
    for rule in rules():
        page, _, section = rule["annotations"]["page"].partition("#")
        headings = re.findall("^#+ (.+)$", (ROOT / page).read_text(), re.M)
        assert section in {heading.lower().replace(" ", "-") for heading in headings}, rule["alert"]
    [of_site] = {rule["annotations"]["page"].partition("#")[0] for rule in rules(docs_url="https://x/d")[:1]}
    assert of_site == "https://x/d/runbooks.html"


def test_rules_ask_for_metrics_that_there_are() -> None:
    metrics = StreamMetrics("orders", Path("/"))
    metrics.take(BEAT)
    there = {sample.name for family in metrics.registry.collect() for sample in family.samples}

    connectors = ConnectorMetrics()
    connectors.take(Connectors(connectors=(RUNS,)))
    there |= {sample.name for family in connectors.registry.collect() for sample in family.samples}

    asked = {name for rule in RULES for name in re.findall(r"deltaworks_[a-z_]+", rule.expr)}

    assert asked <= there, asked - there


def test_what_rules_say_is_about_their_subject() -> None:
    for rule, said in zip(RULES, rules(), strict=True):
        about = "the home" if rule.subject == "home" else f"{{{{ $labels.{rule.subject} }}}}"
        assert said["annotations"]["summary"].startswith(f"{about}: ")
        for label in re.findall(r"by \(([a-z]+)", rule.expr):
            assert label == rule.subject, rule.name


def test_all_ranges_scale_and_thresholds_do_not() -> None:
    text = "a[1h] > 900 and b offset 1d - max_over_time(c[10m]) / 15"

    assert scaled(text, 1) == text
    assert scaled(text, 0.01) == "a[36s] > 900 and b offset 864s - max_over_time(c[6s]) / 15"
    assert "c[3s]" in scaled(text, 0.001), "two scrapes fit"
    holds = {rule["alert"]: rule.get("for") for rule in rules(scale=0.1)}
    assert (holds["StreamFailed"], holds["SlowBatches"]) == ("6s", "90s")


def test_a_scale_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"The scale is 0; it must be above 0\."):
        render(scale=0)
