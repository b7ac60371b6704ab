"""What Prometheus and its Alertmanager are told: where drivers answer, which rules there are, and who gets alerts.

The templates are in `infra/monitoring`; the rules are in `rules.py`.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.metrics.rule import CONNECTORS_JOB, JOB
from deltaworks.metrics.rules import times
from deltaworks.settings import Settings

_SCRAPE_CONFIG = """\
scrape_configs:
  - job_name: {job}
    scrape_interval: {every}
    honor_labels: true
    file_sd_configs:
      - files: ["{folder}/*.json"]
        refresh_interval: {every}
    relabel_configs:
      - source_labels: [__meta_filepath]
        regex: ".*/(.+)[.]json"
        target_label: pipeline
  - job_name: {connectors_job}
    scrape_interval: {connectors_every}
    file_sd_configs:
      - files: ["{folder}/connectors/*.json"]
        refresh_interval: {connectors_every}
"""
_WEBHOOK = """\
  - name: webhook
    webhook_configs:
      - url: {url}
        send_resolved: true
"""
_QUERIES_PORT = 19200
"""Where `deltaworks store serve` listens unless it is told otherwise."""


def scrape_config(settings: Settings, *, scale: float = 1.0) -> str:
    """The part of a configuration of Prometheus that finds all drivers of a home, and the metrics of its connectors.

    Each target has the name of its pipeline as a label, so that `up` has it, too.

    Args:
        settings: of the home.
        scale: by which its intervals are multiplied, for tests.

    Raises:
        ConfigurationError: Prometheus would take the path of the home for a pattern.
    """
    folder = str(settings.metrics_targets)
    if any(character in folder for character in '*?[]"\\'):
        raise ConfigurationError(
            f"Prometheus cannot use {folder}: it takes some of its characters for a pattern.",
            hint="DELTAWORKS_HOME=<a folder without quotes, brackets, * and ?>",
        )
    return _SCRAPE_CONFIG.format(
        job=JOB,
        connectors_job=CONNECTORS_JOB,
        folder=folder,
        every=times("5s", scale, 0.5),
        connectors_every=times("10s", scale, 0.5),
    )


def prometheus_config(settings: Settings, rules: Path, *, scale: float = 1.0) -> str:
    """The configuration of the Prometheus of a home.

    Args:
        settings: of the home.
        rules: the file of `rules.render`.
        scale: as that of the rules.

    Raises:
        ConfigurationError: Prometheus would take the path of the home for a pattern.
    """
    names = {
        "every": times("15s", scale, 0.5),
        "rules": json.dumps(str(rules)),
        "alertmanager_port": settings.alertmanager_port,
        "drivers": scrape_config(settings, scale=scale).rstrip(),
        "port": settings.prometheus_port,
        "queries_port": _QUERIES_PORT,
    }
    return _filled(settings, "prometheus.yml", names)


def alertmanager_config(settings: Settings, *, scale: float = 1.0) -> str:
    """The configuration of the Alertmanager of a home; `alert_webhook` of the settings is told of alerts.

    Args:
        settings: of the home.
        scale: as that of the rules.
    """
    url = settings.alert_webhook
    names = {
        "receiver": "page" if url is None else "webhook",
        "group_wait": times("10s", scale, 0.1),
        "group_interval": times("1m", scale, 0.5),
    }
    text = _filled(settings, "alertmanager.yml", names)
    return text if url is None else text + _WEBHOOK.format(url=json.dumps(url))


def _filled(settings: Settings, name: str, names: Mapping[str, object]) -> str:
    text = (settings.infra / "monitoring" / name).read_text()
    return string.Template(text).substitute({"names": "$names", **names})
