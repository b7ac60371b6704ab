"""The command `sinks`: which sinks for other systems are not what the tables show after a publication."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from deltaworks.cli.console import AsJson, out, print_json, print_table
from deltaworks.errors import ConfigurationError
from deltaworks.names import PIPELINE
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.cli.listings import SinkListed
    from deltaworks.control.paths import PipelinePaths


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Replays")(sinks)


def sinks(
    name: Annotated[str | None, typer.Argument(help="Only sinks of this pipeline.")] = None,
    written: Annotated[
        str | None,
        typer.Option("--written", metavar="SINK", help="Say that a stale sink was written anew from the tables."),
    ] = None,
    give_up: Annotated[
        str | None,
        typer.Option("--give-up", metavar="SINK", help="Drop the corrections that wait for a sink, and mark it stale."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the sinks (`to_search`, `to_jdbc`, `to_files`) that a publication has left behind the tables."""
    settings = Settings.from_environment()
    if written is not None or give_up is not None:
        return _change(settings, name, written, give_up)
    found = listed(settings, name)
    if as_json:
        from deltaworks.cli import listings

        return print_json(listings.Sinks(sinks=found))
    if not found:
        return out.print(Text("Each sink is what the tables show."))
    return show(found)


def _change(settings: Settings, name: str | None, written: str | None, give_up: str | None) -> None:
    from deltaworks.control import sink_corrections

    if name is None:
        raise ConfigurationError("The pipeline is missing.", hint="deltaworks sinks PIPELINE --written SINK")
    PIPELINE.checked(name, settings.pipelines)
    if give_up is not None:
        count = sink_corrections.give_up(settings, name, give_up)
        out.print(Text(f"Corrections of {count} publications are dropped; sink '{give_up}' is stale."))
    if written is not None:
        sink_corrections.clear(settings, name, written)
        out.print(Text(f"Sink '{written}' is what the tables show."))


def listed(settings: Settings, name: str | None) -> list[SinkListed]:
    """The sinks that are stale, or wait for corrections; of one pipeline, or of all."""
    from deltaworks.control.paths import known_pipelines

    if name is not None:
        PIPELINE.checked(name, settings.pipelines)
    owns = [own for own in known_pipelines(settings) if name in (None, own.root.name)]
    return [each for own in owns for each in _of_pipeline(own)]


def show(found: list[SinkListed]) -> None:
    """Prints them as a table."""
    print_table(
        "Sinks behind the tables",
        ("pipeline", "sink", "is", "since", "by", "run", "why"),
        ((s.pipeline, s.sink, s.state, _seconds(s.since), s.action, s.run_id, s.why) for s in found),
    )


def _of_pipeline(own: PipelinePaths) -> Iterator[SinkListed]:
    from deltaworks.lakehouse.publish import stale_sinks

    marks, waits = stale_sinks.all_of(own.publications), (own.publications / "sinks").is_dir()
    if not marks and not waits:
        return
    from deltaworks.cli.listings import SinkListed

    yield from (SinkListed.of(own.root.name, mark) for mark in marks)
    if not waits:
        return
    from deltaworks.lakehouse.publish import sink_changes

    for kept in sink_changes.waiting(own.publications):
        yield from SinkListed.waiting(own.root.name, kept)


def _seconds(time: datetime) -> datetime:
    return time.replace(microsecond=0)
