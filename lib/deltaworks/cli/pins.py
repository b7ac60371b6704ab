"""The commands `tables pin`, `tables unpin` and `tables pins`: tables as of a batch that stay readable."""

from __future__ import annotations

from typing import Annotated

import typer

from deltaworks.cli.console import AsJson, out, print_json, print_table
from deltaworks.cli.pipelines import user
from deltaworks.settings import Settings

Name = Annotated[str, typer.Argument(help="Name of the pin.")]
Pipeline = Annotated[str, typer.Argument(help="Name of the pipeline.")]


def add_to(group: typer.Typer) -> None:
    """Registers the commands."""
    group.command()(pin)
    group.command()(unpin)
    group.command()(pins)


def pin(
    name: Name,
    pipeline: Pipeline,
    at: Annotated[str | None, typer.Option(help="The tables as they were at a time; default: as they are.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for others.")] = "",
) -> None:
    """Keep all tables of a pipeline as of one batch until they are unpinned; `sql --at NAME` reads them."""
    from deltaworks.lakehouse import catalog, retention

    settings = Settings.from_environment()
    made = retention.pin(
        settings.tables,
        name,
        pipeline,
        None if at is None else catalog.time_of(at),
        by=user(),
        reason=reason,
        retention=retention.Retention.of(settings.retention_of(pipeline)),
    )
    out.print(f"{name}: {pipeline} as of batch {made.cut.batch_id}, {made.cut.at:%Y-%m-%d %H:%M:%S} UTC", markup=False)


def unpin(name: Name, pipeline: Pipeline) -> None:
    """Take a pin away; what only it has kept is deleted."""
    from deltaworks.lakehouse import retention

    gone = retention.unpin(Settings.from_environment().tables, name, pipeline)
    out.print(f"{name}: {pipeline} as of batch {gone.cut.batch_id} is not kept any more", markup=False)


def pins(as_json: AsJson = False) -> None:
    """List the pins."""
    from deltaworks.cli import listings
    from deltaworks.lakehouse import retention

    root = Settings.from_environment().tables
    found = retention.all_pins(root)
    if as_json:
        return print_json(listings.Pins(pins=list(map(listings.PinListed.of, found))))
    print_table(
        f"Pins in {root}",
        ("name", "pipeline", "as of", "batch", "pinned", "by", "reason"),
        (
            (
                pin.name,
                pin.cut.pipeline,
                pin.cut.at.replace(microsecond=0),
                pin.cut.batch_id,
                pin.pinned_at.replace(microsecond=0),
                pin.by,
                pin.reason,
            )
            for pin in found
        ),
        right=("batch",),
    )
