"""The command `explain`: where a row of a table came from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli.console import AsJson, Steps, bytes_text, err, out, print_json, print_table
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.explain.explaining import Explanation, InputRole
    from deltaworks.explain.question import Question

_TEXT = 100
_ROLES: dict[InputRole, str] = {"wrote": "went into the row", "closed": "closed the window", "needed": "needed beside"}


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Tables")(explain)


def explain(
    table: Annotated[str, typer.Argument(help="Name of the table.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="Key of the row; for a key of several columns once per column, as COLUMN=VALUE."),
    ] = None,
    window: Annotated[str | None, typer.Option(metavar="TIME", help="Start of the window, in UTC.")] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="TOPIC-0@OFFSET", help="The record that a row of a stream or an update comes from."),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option(min=1, help="Records to process again at most; default: 200000.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Batches and records to show.")] = 10,
    write_test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a test that makes the row again: tests/test_NAME.py.")
    ] = None,
    as_deployed: Annotated[
        bool, typer.Option("--as-deployed", help="Run the code that wrote the row, from its archive.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say where a row came from: the batches that changed it, and the records that went into it.

    The records are processed again in the test driver, which has to give the row. Exit code 1 if it does not.
    """
    from deltaworks.control import jobs
    from deltaworks.explain import explaining, question, written

    settings, steps = Settings.from_environment(), Steps(silent=as_json)
    asked = _question(table, key or [], window, source)
    pipeline = jobs.load(settings, question.pipeline_of(settings.tables, table))
    if as_deployed and (batch := explaining.written_in(settings, pipeline, asked)) is not None:
        _run_as_deployed(settings, explaining.code_in(settings, pipeline.name, batch), batch)
    with steps.step(f"explain a row of {table}") as report, _without_logs():
        explained = explaining.explain(
            settings,
            pipeline,
            asked,
            max_records=max_records or explaining.MAX_RECORDS,
            max_changes=limit,
            report=report,
        )
    if as_deployed:
        _run_as_deployed(settings, explained.changes[0].code, explained.changes[0].batch)
    files = [] if write_test is None else written.write_test(explained, write_test)
    if as_json:
        from deltaworks.cli import listings

        print_json(listings.Explained.of(explained, files))
    else:
        show(explained, limit, settings)
        for file in files:
            out.print(f"wrote {file}")
    if not explained.reproduced:
        raise typer.Exit(1)


@contextmanager
def _without_logs() -> Iterator[None]:
    """What functions of the pipeline log, they have logged when the stream ran."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _question(table: str, key: list[str], window: str | None, source: str | None) -> Question:
    from deltaworks.explain.question import Question
    from deltaworks.lakehouse import catalog
    from deltaworks.topology.records import Coordinates

    try:
        place = None if source is None else Coordinates.of(source)
    except ValueError as error:
        raise ConfigurationError(f"--source: {error}.", hint="such as --source raw-orders-0@17") from None
    return Question(table, tuple(key), None if window is None else catalog.time_of(window), place)


def _run_as_deployed(settings: Settings, digest: str | None, batch: int) -> None:
    """Runs the same command from the archive of the code that ran a batch; returns if this process has done so."""
    import os
    import sys

    from deltaworks.control import code

    if settings.code is not None:
        return
    if digest is None:
        raise ConfigurationError(
            f"It is no longer known which code ran batch {batch}.",
            hint="the last batches say it; leave --as-deployed out to use the current code",
        )
    if digest == code.digest(settings):
        return
    found = code.find(settings, digest)
    if not (found.path / "deltaworks" / "explain").is_dir():
        raise ConfigurationError(
            f"The code that ran batch {batch}, {digest}, has no `deltaworks explain`.",
            hint="leave --as-deployed out to use the current code",
        )
    environment = {**os.environ, **settings.with_code(found.path).driver_environment()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def show(explained: Explanation, limit: int, settings: Settings) -> None:
    """Prints an explanation for people."""
    for name, cell in explained.row.items():
        out.print(f"{name:<20}{'' if cell is None else cell}", markup=False)
    out.print()
    columns = list(explained.changes[0].values)
    print_table(
        f"Batches that changed it: {explained.changes_in_all}, newest first",
        ("batch", "time", "code", *columns),
        (
            (str(each.batch), each.at, _code(each.code), *(each.values.get(name, "(deleted)") for name in columns))
            for each in explained.changes[:limit]
        ),
    )
    shown = explained.inputs[-limit:]
    print_table(
        f"Records that make it, in the order of processing: {len(explained.inputs)}"
        + (f", the last {limit}" if len(shown) < len(explained.inputs) else ""),
        ("record", "offset", "timestamp", "batch", "key", "value", "why"),
        (
            (
                f"{each.record.topic}-{each.record.partition}",
                str(each.record.offset),
                _time(each.record.timestamp_ms),
                str(each.record.batch),
                bytes_text(each.record.key, _TEXT),
                bytes_text(each.record.value, _TEXT),
                _ROLES[each.role],
            )
            for each in shown
        ),
    )
    for line in verdict(explained):
        out.print(line, markup=False)
    _show_code(explained, settings)
    for note in explained.notes:
        err.print(f"Note: {note}", markup=False)


def verdict(explained: Explanation) -> list[str]:
    """Whether the records give the row."""
    count = f"{len(explained.inputs)} of {explained.records_read:,} records read"
    if not explained.reproduced:
        lines = [f"not reproduced: {count}, run alone in the test driver, give another row"]
        lines += [
            f"  {name}: the table has {cell}, the records give {other}" for name, (cell, other) in _differing(explained)
        ]
        return lines if explained.found is not None else [f"not reproduced: {count} give no such row"]
    lines = [f"reproduced: {count}, run alone in the test driver, give exactly this row"]
    if not explained.is_minimal:
        lines.append("The limit of attempts was reached: some of the records may not be needed.")
    if explained.masked:
        lines.append("Secret fields are replaced.")
    if explained.masking_changes:
        changed = ", ".join(explained.masking_changes)
        lines.append(f"With the replacements the records no longer give the row of the table: {changed}")
    return lines


def _differing(explained: Explanation) -> list[tuple[str, tuple[object, object]]]:
    return list(explained.differing.items())


def _show_code(explained: Explanation, settings: Settings) -> None:
    from deltaworks.control import code

    wrote = explained.changes[0]
    if wrote.code is not None and wrote.code != (now := code.digest(settings)):
        err.print(f"Note: batch {wrote.batch} ran with code {wrote.code}; this is {now} (--as-deployed runs that one)")


def _code(digest: str | None) -> str:
    return "unknown" if digest is None else digest[:12]


def _time(timestamp_ms: int) -> str:
    from deltaworks.testing.clocks import instant_at

    try:
        return instant_at(timestamp_ms).replace(tzinfo=None).isoformat(" ")
    except OverflowError:
        return str(timestamp_ms)
