"""The command `metrics`: where Prometheus finds the drivers."""

from __future__ import annotations

from typing import Annotated

import typer

from deltaworks.cli.console import AsJson, out, print_json, print_table
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command()(metrics)


def metrics(
    scrape_config: Annotated[
        bool, typer.Option("--scrape-config", help="Print the configuration by which Prometheus finds all drivers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show where the metrics of running streams are, for Prometheus.

    Drivers serve them if `metrics = "on"` in deltaworks.toml, or DELTAWORKS_METRICS=on, when they start.
    """
    from deltaworks.metrics import endpoint

    settings = Settings.from_environment()
    if scrape_config:
        out.print(endpoint.scrape_config(settings), markup=False, end="", soft_wrap=True)
        return
    found = {name: f"http://{address}/metrics" for name, address in endpoint.targets(settings).items()}
    if as_json:
        print_json(found)
        return
    if not found and settings.metrics == "off":
        raise ConfigurationError(
            "No driver serves metrics here.", hint='set metrics = "on" in deltaworks.toml, and deploy the streams again'
        )
    print_table("Metrics of drivers", ("pipeline", "address"), found.items())
