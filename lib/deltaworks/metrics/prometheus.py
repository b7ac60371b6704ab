"""How Prometheus finds all drivers of a home: the part of its configuration that is about them."""

from __future__ import annotations

from deltaworks.errors import ConfigurationError
from deltaworks.metrics.rules import JOB
from deltaworks.settings import Settings

SCRAPE_S = 5.0
_SCRAPE_CONFIG = """\
scrape_configs:
  - job_name: {job}
    scrape_interval: {every}
    honor_labels: true
    file_sd_configs:
      - files: ["{files}"]
        refresh_interval: {every}
    relabel_configs:
      - source_labels: [__meta_filepath]
        regex: ".*/(.+)[.]json"
        target_label: pipeline
"""


def scrape_config(settings: Settings, *, every_s: float = SCRAPE_S) -> str:
    """The part of a configuration of Prometheus that finds all drivers of a home.

    Each target has the name of its pipeline as a label, so that `up` has it, too.

    Args:
        settings: of the home.
        every_s: how often drivers are asked, and files looked for.

    Raises:
        ConfigurationError: Prometheus would take the path of the home for a pattern.
    """
    folder = str(settings.metrics_targets)
    if any(character in folder for character in '*?[]"\\'):
        raise ConfigurationError(
            f"Prometheus cannot use {folder}: it takes some of its characters for a pattern.",
            hint="DELTAWORKS_HOME=<a folder without quotes, brackets, * and ?>",
        )
    return _SCRAPE_CONFIG.format(job=JOB, files=f"{folder}/*.json", every=_milliseconds(every_s))


def _milliseconds(seconds: float) -> str:
    return f"{seconds:g}s" if seconds == round(seconds) else f"{round(seconds * 1_000)}ms"
