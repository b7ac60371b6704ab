"""The commands `tables`, `tables show`, `tables repair`, `catalog` and `sql`, which read Delta tables without Spark.

What `tables --markdown` prints is in `tables_page`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer
from rich.text import Text

from deltaworks.cli import pins
from deltaworks.cli.console import AsJson, err, out, print_json, print_table, size_text, write_csv
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.catalogue.entries import Entry
    from deltaworks.cli.listings import TableShown

Format: TypeAlias = Literal["table", "csv", "json"]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="List the Delta tables; show or repair one.", invoke_without_command=True)
    group.callback()(tables)
    group.command()(show)
    group.command()(repair)
    pins.add_to(group)
    app.add_typer(group, name="tables", rich_help_panel="Tables")
    app.command(rich_help_panel="Tables")(sql)
    app.command(rich_help_panel="Tables")(catalog)


def tables(
    context: typer.Context,
    as_json: AsJson = False,
    technical: Annotated[
        bool, typer.Option("--technical", help="Show files, versions and batches instead of what the tables are.")
    ] = False,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown", help="Print a page with the columns of all tables; of those that do not exist, from the code."
        ),
    ] = False,
) -> None:
    """List the Delta tables; show or repair one."""
    if context.invoked_subcommand is not None:
        return
    settings = Settings.from_environment()
    if as_json + technical + markdown > 1:
        raise ConfigurationError("--json, --technical and --markdown exclude each other.", hint="give one of them")
    if markdown:
        from deltaworks.cli import tables_page

        sys.stdout.write(tables_page.page(tables_page.found(settings)))
        return
    from deltaworks.catalogue.entries import entries

    found = entries(settings)
    if as_json:
        from deltaworks.cli import listings

        return print_json(listings.Tables(tables=list(map(listings.TableOverview.of_entry, found))))
    title = f"Delta tables in {settings.tables}"
    if technical:
        columns: tuple[str, ...] = ("name", "rows", "files", "MB", "version", "batch", "committed", "as of")
        rows = map(_technical, found)
    else:
        columns = ("name", "one row is", "pipeline", "rows", "size", "as of (UTC)", "checked", "description")
        rows = map(_at_a_glance, found)
    print_table(title, columns, rows, right=("rows", "size", "files", "MB", "version", "batch"))


def _at_a_glance(entry: Entry) -> tuple[object, ...]:
    table, grain = entry.table, entry.table.grain
    if grain is not None and "key" in grain.split() and table.key:
        grain = f"{grain} ({', '.join(table.key)})"
    return (
        table.name,
        grain,
        table.pipeline,
        table.info.rows,
        size_text(table.info.size_bytes),
        entry.as_of and entry.as_of.replace(microsecond=0),
        None if entry.checked is None else Text(entry.checked.verdict, _COLORS[entry.checked.verdict]),
        table.description,
    )


def _technical(entry: Entry) -> tuple[object, ...]:
    table = entry.table.info
    return (
        table.name,
        table.rows,
        table.files,
        f"{table.size_bytes / 1e6:.1f}",
        table.version,
        table.batch_id,
        table.committed_at and table.committed_at.replace(microsecond=0),
        table.as_of and table.as_of.replace(microsecond=0),
    )


_COLORS = {"passed": "green", "warning": "yellow", "failed": "red"}


def show(name: Annotated[str, typer.Argument(help="Name of the table.")], as_json: AsJson = False) -> None:
    """Show what a table holds: its columns and their meaning, what a row is, how fresh it is, and a query."""
    from deltaworks.catalogue.entries import entry
    from deltaworks.cli import listings

    shown = listings.TableShown.of(entry(Settings.from_environment(), name))
    if as_json:
        return print_json(shown)
    for title, text in _facts(shown):
        _print_fact(title, text)
    out.print()
    print_table(
        "",
        ("column", "type", "key", "meaning"),
        ((column.name, column.type, "yes" if column.is_key else None, column.meaning) for column in shown.columns),
    )
    _print_fact("query", f"deltaworks sql {shlex.quote(shown.example)}")


def _print_fact(title: str, text: str) -> None:
    out.print(Text.assemble((f"{title:<12}", "bold"), text))


def _facts(shown: TableShown) -> Iterator[tuple[str, str]]:
    """Title and text of each line; what is not known has none."""
    table = shown.table
    lines = {
        "table": f"{table.name}: {shown.description}" if shown.description else table.name,
        "path": table.path,
        "one row is": shown.grain,
        "note": shown.note,
        "pipeline": shown.pipeline if shown.code is None else f"{shown.pipeline}, code {shown.code}",
        "holds": f"{table.rows:,} rows, {table.size_bytes / 1e6:.1f} MB in {table.files} files",
        "partitions": ", ".join(shown.partitioned_by),
    }
    if shown.shown_at is not None:
        behind = "" if shown.lag_records is None else f"; {shown.lag_records:,} records are still to be processed"
        lines["shown as of"] = f"batch {shown.shown_batch_id}, {shown.shown_at:%Y-%m-%d %H:%M:%S} UTC{behind}"
        lines["which means"] = shown.as_of_means
    if shown.checked is not None:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in shown.checked.outcomes.items())
        lines["checked"] = f"{shown.checked.at:%Y-%m-%d %H:%M} UTC: {outcomes}"
    return ((title, text) for title, text in lines.items() if text)


def catalog(
    every: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="MINUTES",
            help="Leave rows that are younger, unless more has changed in them than times and counts.",
        ),
    ] = 0,
) -> None:
    """Write the Delta table `catalog`, in which every table is a row: what it is, how fresh and how right it is."""
    from deltaworks.catalogue.table import refresh

    written = refresh(Settings.from_environment(), timedelta(minutes=every))
    done = f"version {written.version}" if written.is_new else "nothing has changed"
    out.print(f"catalog: {written.tables} tables as of {written.written_at:%Y-%m-%d %H:%M:%S} UTC, {done}")


def repair(
    name: Annotated[str, typer.Argument(help="Name of the table.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Undo what somebody else committed to a table; its stream has to be stopped."""
    from deltaworks.control import fence
    from deltaworks.control.lease import Lease
    from deltaworks.control.paths import PipelinePaths
    from deltaworks.lakehouse import repair

    settings = Settings.from_environment()
    found = repair.plan(settings.tables, name)
    for version in found.foreign:
        out.print(f"{name}: {version} is not a commit of the stream", markup=False)
    if not found.is_needed:
        out.print(f"{name}: nothing to repair; rows, columns and properties are as the stream left them")
        return
    found.check()
    changes = [f"{len(found.added)} files to restore", f"{len(found.removed)} to remove"]
    changes += ["columns and properties to reset"] if found.definition or found.protocol else []
    out.print(f"{name}: {', '.join(changes)}")
    if not yes and not typer.confirm("Repair?"):
        return
    paths = PipelinePaths.of(settings, found.pipeline)
    generation = fence.read(paths.fence) + 1
    with Lease(paths.lease, found.pipeline, generation):
        fence.advance(paths.fence, generation, found.pipeline)
        repair.repair(settings.tables, name, generation)
    out.print(f"{name}: repaired; deltaworks restart {found.pipeline}")


def sql(
    query: Annotated[str, typer.Argument(help="DuckDB SQL; each Delta table is a view.")],
    format: Annotated[Format, typer.Option("--format", "-f", help="A table to read, or data for programs.")] = "table",
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME|VERSION|PIN", help="Tables as they were then; a time without a zone is in UTC."),
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="Each table at its latest version, not all of a pipeline as of one batch.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Rows at most; default: 50 in a table, all of them as csv or json.")
    ] = None,
    unrestricted: Annotated[
        bool,
        typer.Option("--unrestricted", help="Allow files, network, extensions and settings, without resource limits."),
    ] = False,
) -> None:
    """Query the Delta tables with DuckDB SQL, which sees nothing else and has limits on memory and time."""
    from deltaworks.lakehouse import catalog
    from deltaworks.lakehouse.sandbox import Limits, limited_process

    settings = Settings.from_environment()
    limits = Limits.of(settings, restricted=not unrestricted)
    if latest and at is not None:
        raise ConfigurationError("--latest and --at exclude each other.", hint="leave one of them out")
    then = None if at is None else catalog.moment(at)
    limit = 50 if limit is None and format == "table" else limit
    with limited_process(limits), catalog.sandbox(settings.tables, limits, query, then, latest=latest) as tables:
        answer = tables.answer(query, None if limit is None else limit + 1)
    names, rows = [name for name, _ in answer.columns], answer.rows[:limit]
    match format:
        case "table":
            print_table("", names, rows, right=[name for name, kind in answer.columns if kind in _NUMBERS])
        case "csv":
            write_csv(names, rows)
        case "json":
            if len(set(names)) < len(names):
                raise ConfigurationError(
                    f"Two columns have the same name: {', '.join(names)}.", hint="name each of them: SELECT a AS b"
                )
            print_json([dict(zip(names, row, strict=True)) for row in rows])
    if limit is not None and len(answer.rows) > limit:
        err.print(f"... only the first {limit} rows; --limit shows more")


_NUMBERS = {"NUMBER", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "DOUBLE", "FLOAT"}
