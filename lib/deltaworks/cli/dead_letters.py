"""The commands `dead-letters`: what has failed, with which records, and sending those again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli.console import (
    AsJson,
    Steps,
    bytes_text,
    out,
    print_json,
    print_table,
    require_agreement,
    shortened,
)
from deltaworks.cli.pipelines import Name, user
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates

if TYPE_CHECKING:
    from datetime import datetime

    from deltaworks.control.resends import Resend

_TEXT = 60


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Look at the records that failed, and send them again.", no_args_is_help=True)
    group.command("list")(list_failures)
    group.command()(show)
    group.command()(resend)
    app.add_typer(group, name="dead-letters", rich_help_panel="Pipelines")


OfOperator = Annotated[str | None, typer.Option("--operator", help="Of this operator only.")]
WithError = Annotated[str | None, typer.Option("--error", help="With this text in the error's class or message.")]
WithKey = Annotated[str | None, typer.Option("--key", help="Of records with this key.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Of records from this UTC time on.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Of records before this UTC time.")]


def list_failures(
    name: Name,
    operator: OfOperator = None,
    error: WithError = None,
    key: WithKey = None,
    since: Since = None,
    until: Until = None,
    records: Annotated[bool, typer.Option("--records", help="List the records, not their number per error.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Records to list at most, the latest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Say which operators failed, how often, why and when; or list the records."""
    from deltaworks.cli import listings
    from deltaworks.lakehouse import dead_letters

    settings = Settings.from_environment()
    table = _table(settings, name)
    wanted = dead_letters.Wanted.of(operator=operator, error=error, key=key, since=since, until=until)
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


def resend(
    name: Name,
    operator: OfOperator = None,
    error: WithError = None,
    key: WithKey = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send records that failed again, after a repair: each once, to the operator that failed on it.

    A record goes to the partition in which it failed, with its bytes and its time. In this pipeline, the operator that
    failed and those behind it process it. Where that cannot be exact, it is not sent, and the command says why.
    """
    from deltaworks.cli import listings
    from deltaworks.control import resends
    from deltaworks.lakehouse.dead_letters import Wanted

    settings, steps = Settings.from_environment(), Steps(silent=as_json)
    wanted = Wanted.of(operator=operator, error=error, key=key, since=since, until=until)
    planned = resends.plan(settings, name, wanted)
    readers = resends.readers(settings, planned)
    if not as_json:
        _show_plan(planned, readers)
    if dry_run or not planned.count:
        return print_json(listings.Resent.of(planned, readers, 0)) if as_json else None
    if not yes:
        require_agreement("Send?", "send these", hint="--yes sends without asking", silent=as_json)
    with steps.step(f"send {planned.count:,} records to {name}") as report:
        sent = resends.send(settings, planned, by=user(), report=lambda count: report(f"{count:,} sent"))
    if as_json:
        return print_json(listings.Resent.of(planned, readers, sent))
    out.print(f"{sent:,} sent. Those that fail again are dead letters again: deltaworks dead-letters list {name}")


def _show_plan(planned: Resend, readers: list[str]) -> None:
    from deltaworks.topology.resend import HEADER

    print_table(
        f"{planned.count:,} dead letters of {planned.pipeline} can be sent again",
        ("operator", "error", "count", "sent again?", "failed again"),
        (
            (each.operator, each.error_class, each.count, each.stays or "yes", each.again or "")
            for each in planned.groups
        ),
        right=("count", "failed again"),
    )
    if planned.count:
        others = f"{', '.join(readers)} and others" if readers else "Other pipelines"
        topics = ", ".join(planned.topics)
        text = f"{others} that read {topics} skip them; consumers of other systems find the header {HEADER}."
        out.print(text, markup=False)


def _table(settings: Settings, name: str) -> str:
    """The table of a pipeline's dead letters."""
    from deltaworks.control import jobs, resends

    return resends.table_of(jobs.load(settings, name))


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _line(text: str) -> str:
    """The first line, where that is enough."""
    return shortened(text.splitlines()[0], _TEXT) if text else ""
