"""The command `doctor`: shows what `deltaworks.doctor` finds."""

from __future__ import annotations

import typer
from rich.text import Text

from deltaworks.cli.console import AsJson, out, print_json, print_table
from deltaworks.doctor import examine
from deltaworks.settings import Settings

_COLOR = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Stack")(doctor)


def doctor(as_json: AsJson = False) -> None:
    """Try every connection and tool that streams need; changes nothing. Exit code 1 if one of them fails."""
    settings = Settings.from_environment()
    findings = examine(settings)
    if as_json:
        from deltaworks.cli import listings

        print_json(listings.Doctor(checks=list(map(listings.FindingListed.of, findings))))
    else:
        print_table(
            f"Project {settings.project}",
            ("check", "outcome", "found"),
            ((f.name, Text(f.outcome, _COLOR[f.outcome]), f.found) for f in findings),
        )
        for finding in findings:
            if finding.hint is not None:
                out.print(Text.assemble((f"{finding.name}: ", "bold"), finding.hint))
    if any(finding.outcome == "failed" for finding in findings):
        raise typer.Exit(1)
