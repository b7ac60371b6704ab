"""The command `quality`, which checks a pipeline's Delta tables with its suite and the built-in invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from deltaworks import clock
from deltaworks.cli.console import AsJson, Steps, cell_text, out, print_json, print_table
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.quality import Verdict


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Tables")(quality)


def quality(
    name: Annotated[str, typer.Argument(help="Name of the pipeline: its file in jobs/quality/, without `.py`.")],
    samples: Annotated[int, typer.Option(min=0, help="Rows to show and keep for each failed check.")] = 3,
    unrestricted: Annotated[
        bool,
        typer.Option(
            "--unrestricted", help="Allow rules in SQL to use files, network and extensions, without resource limits."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a pipeline's tables with its suite in jobs/quality/ and the invariants that hold for every pipeline.

    The stream may run. Results are kept in the Delta tables quality_results and quality_failures.
    Exit code 1 if a check other than a warning failed or could not run.
    """
    from deltaworks.quality import production

    run_id = f"command__{clock.utc_now().isoformat()}"
    with Steps(silent=as_json).step(f"quality {name}") as report:
        report("loading Great Expectations")
        verdicts = production.check(
            Settings.from_environment(), name, run_id=run_id, samples=samples, restricted=not unrestricted
        )
        report(f"{len(verdicts)} checks, run {run_id}")
    passed = not any(verdict.blocks for verdict in verdicts)
    if as_json:
        from deltaworks.cli import listings

        checks = list(map(listings.CheckListed.of, verdicts))
        print_json(listings.Quality(pipeline=name, run_id=run_id, passed=passed, checks=checks))
    else:
        print_verdicts(f"Quality of {name}", verdicts)
    if not passed:
        raise typer.Exit(1)


def print_verdicts(title: str, verdicts: Sequence[Verdict], *, only_failed: bool = False) -> None:
    """Prints a row per verdict, then details of those that did not pass."""
    print_table(
        title,
        ("table", "rows", "expects", "unexpected", "outcome"),
        (
            (v.table, v.rows, v.expects, v.unexpected or None, _outcome(v))
            for v in verdicts
            if not (only_failed and v.passed)
        ),
        right=("rows", "unexpected"),
    )
    for verdict in verdicts:
        if not verdict.passed:
            _explain(verdict)
        elif verdict.observed and verdict.unexpected is not None and not only_failed:
            out.print(Text(f"{verdict.table}: {verdict.expects}: {verdict.observed}", "dim"))
    counts = Counter(verdict.outcome.value for verdict in verdicts)
    out.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


def _outcome(verdict: Verdict) -> Text:
    warning = "" if verdict.blocks or verdict.passed else f" ({verdict.severity})"
    color = "green" if verdict.passed else "red" if verdict.blocks else "yellow"
    return Text(f"{verdict.outcome.value}{warning}", color)


def _explain(verdict: Verdict) -> None:
    """Prints a verdict that did not pass: what it expects, why, and sample rows."""
    out.print(Text.assemble(_outcome(verdict), (f" {verdict.table}: {verdict.expects}", "bold")))
    for line in (verdict.why, verdict.error, verdict.observed):
        if line:
            out.print(Text(f"  {line}"))
    for row in verdict.sample:
        out.print(Text("  " + ", ".join(f"{column}={cell_text(cell)}" for column, cell in row.items()), "dim"))
    out.print()
