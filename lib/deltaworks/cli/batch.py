"""The command `batch`, which runs a batch job for some days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from deltaworks import clock
from deltaworks.cli.console import AsJson, Steps, print_json, print_table
from deltaworks.cli.quality import print_verdicts
from deltaworks.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Tables")(batch)


def batch(
    name: Annotated[str, typer.Argument(help="Name of the batch job: its file in jobs/batch/, without `.py`.")],
    day: Annotated[
        list[datetime] | None,
        typer.Option(formats=["%Y-%m-%d"], help="UTC day; may be given several times; default: yesterday."),
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Id of the run in the history of the table.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the rows of a day with Spark, check them, and replace those in the table.

    The tables that it reads are those of one batch of each pipeline; the streams may run. Nothing changes if a check
    fails. Exit code 1 if a check other than a warning failed or could not run.
    """
    from deltaworks.batch import running

    now = clock.utc_now()
    days = sorted({each.replace(tzinfo=UTC).date() for each in day or [now - timedelta(days=1)]})
    run_id = run_id or f"command__{now.isoformat()}"
    with Steps(silent=as_json).step(f"batch {name}") as report:
        found = running.run(Settings.from_environment(), name, days, run_id=run_id, report=report)
    passed = all(each.version is not None for each in found)
    if as_json:
        from deltaworks.cli import listings

        print_json(listings.Batch(job=name, run_id=run_id, passed=passed, days=list(map(listings.BatchDay.of, found))))
    else:
        print_table(
            f"Batch job {name}",
            ("day", "rows", "version", "checks"),
            ((each.day, each.rows, each.version, len(each.verdicts)) for each in found),
            right=("rows", "version", "checks"),
        )
        for each in found:
            if each.version is None:
                print_verdicts(f"Checks of {each.day}", each.verdicts, only_failed=True)
    if not passed:
        raise typer.Exit(1)
