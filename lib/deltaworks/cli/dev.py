"""The command `dev`; see `development`."""

from __future__ import annotations

from typing import Annotated

import typer

from deltaworks.cli.console import Steps, out
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Pipelines")(dev)


def dev(
    name: Annotated[str, typer.Argument(help="Name of the pipeline: a file in jobs/.")],
    data: Annotated[
        float | None, typer.Option(metavar="RATE", help="Write its sample data meanwhile: so many records per second.")
    ] = None,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="First delete its checkpoint, tables and output topics.")
    ] = False,
) -> None:
    """Run a pipeline while you edit it; Ctrl-C ends it.

    It starts Kafka unless it runs. After each change of the code, the stream finishes its batch and goes on with the
    new code and the same checkpoint. If the checkpoint does not fit, it asks; if the code fails, the old code goes on.
    """
    from deltaworks import home
    from deltaworks.cli.development import Development

    settings = Settings.from_environment()
    home.make(settings)
    _require_kafka(settings)
    development = Development(settings, name)
    try:
        with development.shown(), development.sample_data(data):
            development.run(start_over=start_over)
    except KeyboardInterrupt:
        out.print()
    finally:
        with Steps().step(f"stop {name}") as report:
            report(development.stop())


def _require_kafka(settings: Settings) -> None:
    """Starts the Kafka of the home, unless one answers."""
    from deltaworks import listeners
    from deltaworks.kafka import admin
    from deltaworks.stack import lifecycle

    listeners.require_own_kafka(settings)
    if admin.answers(settings.cluster):
        return
    if (refused := admin.refusal(settings.cluster)) is not None:
        raise refused
    if not settings.bootstrap.startswith("127.0.0.1:"):
        raise ConfigurationError(f"Kafka does not answer at {settings.cluster}.", hint="deltaworks doctor")
    with Steps().step("up kafka") as report:
        lifecycle.up(settings, report, only=["kafka"])
        report("started")
