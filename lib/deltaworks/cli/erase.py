"""The commands `erase` and `erasures`: deletion of a person's data, and the record of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli.console import AsJson, Steps, out, print_json, print_table, require_agreement
from deltaworks.cli.pipelines import user
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltaworks.control.erasures import Erasure
    from deltaworks.erase.erasing import Found


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command(rich_help_panel="Tables")(erase)
    app.command(rich_help_panel="Tables")(erasures)


def erase(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    key: Annotated[
        str, typer.Option(help="The person's key, such as u-17; `-`: a line of standard input, which no shell keeps.")
    ],
    field: Annotated[
        list[str] | None,
        typer.Option(help="A field or column that has the key as a number; texts are always searched."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a person's data: rows of all versions of tables, state, archives, dead letters, logs.

    Whatever names the key as a whole word goes: a row, an entry of a store, a line of a log. The stream is stopped for
    it and started again. Topics of Kafka stay as they are; what else stays is listed. Given again, it completes what
    was interrupted.
    """
    from deltaworks.cli import listings
    from deltaworks.erase import erasing
    from deltaworks.topology.persons import Person

    settings, steps = Settings.from_environment(), Steps(silent=as_json)
    person = Person.of(_key(key), field or ())
    if dry_run or not yes:
        with steps.step(f"look for the data in {pipeline}"):
            found = erasing.find(settings, pipeline, person)
        if dry_run and as_json:
            return print_json(listings.Erasable.of(pipeline, found))
        _show_found(pipeline, found)
        if dry_run:
            return
        require_agreement("Delete?", "delete this", hint="--yes deletes without asking")
    with steps.step(f"erase from {pipeline}") as report:
        done = erasing.erase(settings, pipeline, person, by=user(), reason=reason, report=report)
    if as_json:
        print_json(listings.ErasureListed.of(done))
    else:
        _show_done(done)


def erasures(
    pipeline: Annotated[str | None, typer.Argument(help="Name of the pipeline; default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """List whose data was erased (by a hash of their keys), when, who asked, and what stayed."""
    from deltaworks.cli import listings
    from deltaworks.control import erasures as records
    from deltaworks.control import paths
    from deltaworks.control.paths import PipelinePaths

    settings = Settings.from_environment()
    names = [pipeline] if pipeline is not None else [each.root.name for each in paths.known_pipelines(settings)]
    found = [each for name in names for each in records.erasures(PipelinePaths.of(settings, name))]
    if as_json:
        return print_json(listings.Erasures(erasures=list(map(listings.ErasureListed.of, found))))
    print_table(
        "Erasures",
        ("id", "pipeline", "asked (UTC)", "by", "reason", "state", "deleted", "stayed"),
        (
            (
                each.id,
                each.pipeline,
                each.begun_at.replace(microsecond=0),
                each.requested_by,
                each.reason,
                "done" if each.done_ms is not None else "not completed: give the command again",
                sum(each.taken.values()),
                len(each.left),
            )
            for each in found
        ),
        right=("deleted", "stayed"),
    )


def _key(given: str) -> str:
    if given != "-":
        return given
    if not (key := sys.stdin.readline().strip()):
        raise ConfigurationError("Standard input has no key.", hint="echo u-17 | deltaworks erase orders --key - --yes")
    return key


def _show_found(pipeline: str, found: Found) -> None:
    names = sorted(found.tables.keys() | found.older.keys())
    print_table(
        f"What {pipeline} has, beside its state",
        ("table", "rows", "in older files", "named in"),
        (
            (name, found.tables.get(name, 0), found.older.get(name, 0), ", ".join(found.columns.get(name, [])))
            for name in names
        ),
        right=("rows", "in older files"),
    )
    out.print(f"{found.texts:,} lines of logs and texts of documents", markup=False)
    _show_left(found.left)


def _show_done(done: Erasure) -> None:
    print_table(
        f"Erased from {done.pipeline} ({done.id})",
        ("where", "deleted"),
        sorted(done.taken.items()),
        right=("deleted",),
    )
    _show_left(done.left)


def _show_left(left: Iterable[str]) -> None:
    out.print("What stays, as far as it has the person's data:", markup=False)
    for place in left:
        out.print(f"  {place}", markup=False)
    out.print("  and copies of the home that somebody has made", markup=False)
