"""The commands `tables`, `tables repair` and `sql`, which read the Delta tables without Spark."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from deltaworks.cli.console import AsJson, err, out, print_json, print_table, write_csv
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

Format: TypeAlias = Literal["table", "csv", "json"]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="List the Delta tables; repair one.", invoke_without_command=True)
    group.callback()(tables)
    group.command()(repair)
    app.add_typer(group, name="tables", rich_help_panel="Tables")
    app.command(rich_help_panel="Tables")(sql)


def tables(context: typer.Context, as_json: AsJson = False) -> None:
    """List the Delta tables; repair one."""
    if context.invoked_subcommand is not None:
        return
    from deltaworks.lakehouse import catalog

    settings = Settings.from_environment()
    found = catalog.tables(settings.tables)
    if as_json:
        from deltaworks.cli import listings

        return print_json(listings.Tables(tables=list(map(listings.TableListed.of, found))))
    print_table(
        f"Delta tables in {settings.tables}",
        ("name", "rows", "files", "MB", "version", "batch", "committed", "as of"),
        (
            (
                table.name,
                table.rows,
                table.files,
                f"{table.size_bytes / 1e6:.1f}",
                table.version,
                table.batch_id,
                table.committed_at and table.committed_at.replace(microsecond=0),
                table.as_of and table.as_of.replace(microsecond=0),
            )
            for table in found
        ),
        right=("rows", "files", "MB", "version", "batch"),
    )


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
        typer.Option(metavar="TIME|VERSION", help="Tables as they were then; a time without a zone is in UTC."),
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
    then = None if at is None else catalog.time_or_version(at)
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
