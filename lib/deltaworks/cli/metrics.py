"""The command `metrics`: where Prometheus finds the drivers, what it should know, and the metrics of connectors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from deltaworks.cli.console import AsJson, out, print_json, print_table, write_files
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

_POLL_S = 0.2


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
    dashboards: Annotated[
        Path | None, typer.Option(help="Write the dashboards for Grafana into this folder.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace dashboards that are there.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the metrics of the project's connectors, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of --serve; 0: any free one.", min=0, max=65_535)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show where the metrics of running streams are, for Prometheus.

    Drivers serve them if `metrics = "on"` in deltaworks.toml, or DELTAWORKS_METRICS=on, when they start.
    """
    settings = Settings.from_environment()
    if serve:
        _serve(settings, port)
        return
    if dashboards is not None:
        from deltaworks.metrics.dashboards import files

        write_files({dashboards / name: text for name, text in files().items()}, force=force)
        return
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


def _serve(settings: Settings, port: int) -> None:
    """Asks Kafka Connect again and again, and serves what it has said, until SIGTERM or SIGINT."""
    from deltaworks import home
    from deltaworks.connectors.metrics import EVERY_S, ConnectorMetrics, look
    from deltaworks.control.children import stops_noted
    from deltaworks.metrics.endpoint import served

    home.make(settings)
    found, ended = ConnectorMetrics(), threading.Event()

    def ask() -> None:
        while not ended.is_set():
            look(settings, found)
            ended.wait(EVERY_S)

    with stops_noted() as told, served(found.registry, settings.connectors_target, port=port) as address:
        asking = threading.Thread(target=ask, name="connectors", daemon=True)
        asking.start()
        out.print(address, markup=False)
        while not told and asking.is_alive():
            ended.wait(_POLL_S)
        ended.set()
    if not told:
        raise ConfigurationError(
            "Connectors can no longer be looked at.", hint="the error above says why; start it again"
        )
