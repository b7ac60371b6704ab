"""The command `incidents`: what is wrong with the streams now, or was."""

from __future__ import annotations

from typing import Annotated

import typer

from deltaworks.cli.console import AsJson, out, print_json, print_table
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Pipelines")(incidents)


def incidents(
    name: Annotated[str | None, typer.Argument(help="Only those of this pipeline or connector.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those of the last 90 days that are over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the open incidents of streams, connectors and the home, with their likely causes.

    `streams__reconcile` in Airflow finds and records them, once a minute.
    """
    from deltaworks.cli import listings
    from deltaworks.connect import project
    from deltaworks.control import jobs
    from deltaworks.control.incident_book import IncidentBook
    from deltaworks.control.incidents import KINDS, runbook

    settings = Settings.from_environment()
    found = IncidentBook.of(settings).listed(name, ended=every)
    known = {*jobs.names(settings), *project.written(settings)}
    if name is not None and not found and name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise ConfigurationError(f"There is no pipeline {name!r}.", hint=f"pipelines and connectors: {there}")
    if as_json:
        listed = [listings.IncidentListed.of(each, settings.docs_url) for each in found]
        return print_json(listings.Incidents(incidents=listed))
    if not found:
        return out.print("no incidents" if every else "no open incidents")
    print_table(
        "Incidents",
        ("id", "of", "kind", "since (UTC)", *(("over (UTC)",) if every else ()), "what", "likely cause"),
        (
            (
                each.id,
                each.subject,
                KINDS[each.kind].title,
                f"{each.opened_at:%Y-%m-%d %H:%M}",
                *((f"{each.ended_at:%Y-%m-%d %H:%M}" if each.ended_at else None,) if every else ()),
                each.what,
                each.cause,
            )
            for each in found
        ),
        right=("id",),
    )
    for kind in dict.fromkeys(each.kind for each in found if each.ended_at is None):
        out.print(f"{KINDS[kind].title}: {runbook(settings.docs_url, KINDS[kind].anchor)}")
    return None
