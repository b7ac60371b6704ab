"""The configuration of Prometheus and its Alertmanager."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from deltaworks.errors import ConfigurationError
from deltaworks.metrics.prometheus import alertmanager_config, prometheus_config, scrape_config
from deltaworks.metrics.rules import RULES
from deltaworks.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path / "home")


def test_the_configuration_names_the_files(settings: Settings, tmp_path: Path) -> None:
    assert f'- files: ["{settings.home}/metrics/*.json"]' in scrape_config(settings)
    with pytest.raises(ConfigurationError, match="takes some of its characters for a pattern"):
        scrape_config(replace(settings, home=tmp_path / "home[1]"))


def test_prometheus_asks_drivers_itself_and_queries_and_tells_the_alertmanager(settings: Settings) -> None:
    found = yaml.safe_load(prometheus_config(settings, Path('/a "b"/alerts.yml')))

    assert found["rule_files"] == ['/a "b"/alerts.yml']
    assert found["alerting"]["alertmanagers"][0]["static_configs"] == [{"targets": ["127.0.0.1:19094"]}]
    jobs = {job["job_name"]: job for job in found["scrape_configs"]}
    assert set(jobs) == {"deltaworks", "deltaworks-connectors", "prometheus", "alertmanager", "deltaworks-queries"}
    assert jobs["prometheus"]["static_configs"] == [{"targets": ["127.0.0.1:19090"]}]
    of_home = yaml.safe_load(scrape_config(settings))["scrape_configs"]
    assert [jobs["deltaworks"], jobs["deltaworks-connectors"]] == of_home
    assert of_home[1]["file_sd_configs"][0]["files"] == [f"{settings.connectors_target.parent}/*.json"]


def test_alerts_go_to_the_webhook_if_there_is_one(settings: Settings) -> None:
    without = yaml.safe_load(alertmanager_config(settings))
    address = 'https://hooks.example.com/"$a"'
    own = yaml.safe_load(alertmanager_config(replace(settings, alert_webhook=address)))

    assert (without["route"]["receiver"], own["route"]["receiver"]) == ("page", "webhook")
    assert without["receivers"] == [{"name": "page"}]
    assert own["receivers"][1]["webhook_configs"] == [{"url": address, "send_resolved": True}]
    assert address not in repr(replace(settings, alert_webhook=address))


def test_what_is_left_out_names_alerts_that_there_are(settings: Settings) -> None:
    names = {rule.name for rule in RULES}
    for rule in yaml.safe_load(alertmanager_config(settings))["inhibit_rules"]:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            assert set(matcher.partition('"')[2].rstrip('"').split("|")) <= names


def test_the_address_of_a_webhook_is_checked_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="DELTAWORKS_ALERT_WEBHOOK is no address") as raised:
        Settings.from_environment({"DELTAWORKS_ALERT_WEBHOOK": "hooks/T0KEN"})
    assert "T0KEN" not in str(raised.value)
