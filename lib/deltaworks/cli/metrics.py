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
    alert_rules: Annotated[
        bool, typer.Option("--alert-rules", help="Print the rules by which Prometheus tells of incidents.")
    ] = False,
    scale: Annotated[
        float, typer.Option(help="Multiply the ranges of these rules, such as 0.01 to try them.", show_default=True)
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show where the metrics of running streams are, for Prometheus.

    Drivers serve them if `metrics = "on"` in deltaworks.toml, or DELTAWORKS_METRICS=on, when they start.
    """
    settings = Settings.from_environment()
    if alert_rules:
        from deltaworks.metrics import rules

        out.print(rules.render(scale=scale, docs_url=settings.docs_url), markup=False, end="", soft_wrap=True)
        return
    if scrape_config:
        from deltaworks.metrics import prometheus

        out.print(prometheus.scrape_config(settings), markup=False, end="", soft_wrap=True)
        return
    from deltaworks.metrics import endpoint

    found = {name: f"http://{address}/metrics" for name, address in endpoint.targets(settings).items()}
    if as_json:
        print_json(found)
        return
    if not found and settings.metrics == "off":
        raise ConfigurationError(
            "No driver serves metrics here.", hint='set metrics = "on" in deltaworks.toml, and deploy the streams again'
        )
    print_table("Metrics of drivers", ("pipeline", "address"), found.items())
