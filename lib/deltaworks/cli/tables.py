"""`tables`, `sql`: the Delta tables, without Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from deltaworks.cli.console import out, print_table
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for command in (tables, sql):
        app.command(rich_help_panel="Tables")(command)


def tables() -> None:
    """List the Delta tables."""
    from deltaworks.lakehouse import catalog

    settings = Settings.from_environment()
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
            for table in catalog.tables(settings.tables)
        ),
        right=("rows", "files", "MB", "version", "batch"),
    )


def sql(
    query: Annotated[str, typer.Argument(help="DuckDB SQL; each Delta table is a view.")],
    limit: Annotated[int, typer.Option(help="Rows to show.")] = 50,
) -> None:
    """Query the Delta tables."""
    import duckdb

    from deltaworks.lakehouse import catalog

    root = Settings.from_environment().tables
    connection = catalog.duckdb_connection(root)
    try:
        result = connection.execute(query)
        rows = result.fetchmany(limit + 1)
    except duckdb.Error as error:
        known = ", ".join(catalog.table_names(root)) or "none yet"
        raise ConfigurationError(f"DuckDB refuses the query: {error}", hint=f"tables: {known}") from error
    columns = result.description or []
    numbers = [name for name, kind, *_ in columns if str(kind) in _NUMBERS]
    print_table("", [name for name, *_ in columns], rows[:limit], right=numbers)
    if len(rows) > limit:
        out.print(f"... only the first {limit} rows; --limit shows more")


_NUMBERS = {"NUMBER", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "DOUBLE", "FLOAT"}
