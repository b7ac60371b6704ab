"""The commands `dead-letters list` and `dead-letters show`: what has failed, and with which records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli.console import AsJson, bytes_text, out, print_json, print_table, shortened
from deltaworks.cli.pipelines import Name
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates

if TYPE_CHECKING:
    from datetime import datetime

_TEXT = 60


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Look at the records that failed.", no_args_is_help=True)
    group.command("list")(list_failures)
    group.command()(show)
    app.add_typer(group, name="dead-letters", rich_help_panel="Pipelines")


def list_failures(
    name: Name,
    operator: Annotated[str | None, typer.Option(help="Of this operator only.")] = None,
    error: Annotated[str | None, typer.Option(help="With this text in the error's class or message.")] = None,
    key: Annotated[str | None, typer.Option(help="Of records with this key.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Of records from this UTC time on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Of records before this UTC time.")] = None,
    records: Annotated[bool, typer.Option("--records", help="List the records, not their number per error.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Records to list at most, the latest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Say which operators failed, how often, why and when; or list the records."""
    from deltaworks.cli import listings
    from deltaworks.lakehouse import dead_letters

    settings = Settings.from_environment()
    table = _table(settings, name)
    wanted = dead_letters.Wanted(
        operator=operator,
        error=error,
        key=None if key is None else key.encode(),
        since=_time(since),
        until=_time(until),
    )
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        raise ConfigurationError(f"The range of times is empty: {since} to {until}.", hint="--since is the earlier one")
    if records:
        found = dead_letters.newest(settings.tables, table, wanted, limit)
        if as_json:
            return print_json(listings.DeadLetters.of(name, table, found))
        columns = ("record", "timestamp (UTC)", "key", "operator", "error", "message")
        rows = (
            (
                each.record.name,
                _shown(each.timestamp),
                bytes_text(each.key, _TEXT),
                each.operator,
                each.error_class,
                _line(each.message),
            )
            for each in found
        )
        return print_table(f"Dead letters of {name}, latest first", columns, rows)
    counts = dead_letters.failures(settings.tables, table, wanted)
    if as_json:
        return print_json(listings.Failures.of(name, table, counts))
    print_table(
        f"Dead letters of {name}: {sum(each.count for each in counts):,}",
        ("operator", "error", "count", "first (UTC)", "last (UTC)", "example", "its message"),
        (
            (each.operator, each.error_class, each.count, _shown(each.first), _shown(each.last), each.example.name,
             _line(each.message))
            for each in counts
        ),
        right=("count",),
    )  # fmt: skip


def show(
    name: Name,
    record: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION@OFFSET", help="The record, as `list` names it.")],
    as_json: AsJson = False,
) -> None:
    """Show a record that failed: its bytes, and each operator that failed on it, with the traceback."""
    from deltaworks.cli import listings
    from deltaworks.lakehouse import dead_letters

    settings = Settings.from_environment()
    table = _table(settings, name)
    try:
        place = Coordinates.of(record)
    except ValueError as error:
        raise ConfigurationError(f"{error}.", hint=f"deltaworks dead-letters show {name} orders-0@1234") from None
    found = dead_letters.of_record(settings.tables, table, place)
    if not found:
        raise ConfigurationError(
            f"{place.name} is no dead letter of {name}.",
            hint=f"deltaworks dead-letters list {name} --records; one that failed just now may not be committed yet",
        )
    if as_json:
        return print_json(listings.DeadLetters.of(name, table, found))
    first = found[0]
    facts = [("record", place.name), ("timestamp", f"{_shown(first.timestamp)} UTC")]
    facts += [("key", bytes_text(first.key)), ("value", bytes_text(first.value))]
    facts += [(f"header {header}", bytes_text(value)) for header, value in first.headers]
    for title, text in facts:
        out.print(f"{title:<12}{text}", markup=False)
    for each in found:
        out.print(f"\n{each.operator}: {each.error_class}: {each.message}", markup=False)
        out.print(each.stacktrace.rstrip(), markup=False)


def _table(settings: Settings, name: str) -> str:
    """The table of a pipeline's dead letters."""
    from deltaworks.control import jobs

    letters = jobs.load(settings, name).dead_letters
    if letters.table is not None:
        return letters.table
    where = "they are only counted" if letters.topic is None else f"they go to the topic {letters.topic!r}"
    raise ConfigurationError(
        f"Pipeline {name!r} has no table of dead letters: {where}.",
        hint="Pipeline(dead_letters=DeadLetters(table='dead_letters')) keeps those of later batches",
    )


def _time(text: str | None) -> datetime | None:
    from deltaworks.lakehouse import catalog

    return None if text is None else catalog.time_of(text)


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _line(text: str) -> str:
    """The first line, where that is enough."""
    return shortened(text.splitlines()[0], _TEXT) if text else ""
