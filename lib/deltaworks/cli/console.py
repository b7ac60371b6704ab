"""Output for the user: steps with their duration, tables, and errors as one message without a traceback.

On a terminal, a step shows its latest line next to a spinner. Elsewhere (a file, CI), it prints a line every second, or
every ten seconds if the line says nothing new.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deltaworks import clock
from deltaworks.errors import ConfigurationError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
"""The option of every listing; its documents are in `listings`."""
Force = Annotated[bool, typer.Option("--force", help="Replace files that say something else.")]
_WIDTH = None if sys.stdout.isatty() else 160
out = Console(highlight=False, soft_wrap=True, width=_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True, width=_WIDTH)
_LINE_S, _SAME_LINE_S = 1.0, 10.0
_JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


@dataclass
class Steps:
    """The steps of a command that takes a while."""

    silent: bool = False
    """Whether nothing is shown, because the command prints a document."""
    seconds: list[tuple[str, float]] = field(default_factory=list)
    """Title and duration of every finished step."""

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """One step; yields a function for lines of progress, of which the last one stays visible."""
        begun = printed = clock.ticks_s()
        last = ""

        if self.silent:
            yield lambda _: None
            return

        def seconds() -> str:
            return f"{clock.ticks_s() - begun:6.1f} s"

        if out.is_terminal:
            with out.status(Text(title)) as spinner:

                def report(line: str) -> None:
                    nonlocal last
                    last = line
                    spinner.update(Text(f"{title}  {line}"))

                yield report
        else:

            def report(line: str) -> None:
                nonlocal last, printed
                wait_s = _LINE_S if line != last else _SAME_LINE_S
                last = line
                if clock.ticks_s() - printed >= wait_s:
                    printed = clock.ticks_s()
                    out.print(Text(f"    {seconds()}  {line}"))

            out.print(Text(f"... {title}"))
            yield report
        self.seconds.append((title, clock.ticks_s() - begun))
        out.print(Text.assemble((" ok ", "green"), f"{seconds()}  {title}", (f"  {last}" if last else "", "dim")))


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """Prints a table; numbers get thousands separators and are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell_text(cell)) if not isinstance(cell, Text) else cell for cell in row))
    out.print(table)
    out.print()


def bytes_text(data: bytes | None, limit: int | None = None) -> str:
    """The text that shows bytes; one that is longer than `limit` is cut."""
    if data is None:
        return "null"
    text = data.decode(errors="backslashreplace")
    return text if limit is None else shortened(text, limit)


def size_text(size_bytes: int) -> str:
    """A number of bytes with its unit."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def lag_text(records: int | None, size_bytes: int | None) -> str:
    """How far a connector is behind: records of a sink, bytes of a source; empty if that is not known."""
    if records is not None:
        return f"{records:,}"
    return "" if size_bytes is None else size_text(size_bytes)


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters of a text, with three dots at the end if that is not all."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def cell_text(cell: object) -> str:
    """The text that shows a value."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, Decimal):
        return f"{cell.normalize():f}"
    if isinstance(cell, datetime):
        return cell.replace(tzinfo=None).isoformat(" ", "milliseconds" if cell.microsecond else "seconds")
    return str(cell)


def first_line(text: str) -> str:
    """The first line of a text."""
    return text.partition("\n")[0]


def print_json(document: Any) -> None:
    """Prints what is for scripts; numbers keep all their digits."""
    sys.stdout.write(msgspec.json.format(_JSON.encode(plain(document)), indent=2).decode() + "\n")


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes rows with a header; null is an empty field, bytes are hexadecimal, and what has parts is JSON."""
    import csv

    def field(cell: object) -> object:
        if isinstance(cell, list | dict | tuple):
            return _JSON.encode(plain(cell)).decode()
        if isinstance(cell, bytes):
            return cell.hex()
        if isinstance(cell, datetime):
            return cell.isoformat()
        return f"{cell:f}" if isinstance(cell, Decimal) else cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([field(cell) for cell in row] for row in rows)


def plain(value: Any) -> Any:
    """The value with integers of any size, bytes and keys as JSON can have them."""
    match value:
        case bool():
            return value
        case int() if not -(2**63) <= value < 2**63:
            return Decimal(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value


def require_agreement(question: str, what: str, *, hint: str, silent: bool = False) -> None:
    """Asks whether to go on; ends the command if the answer is no.

    Args:
        question: such as `Delete?`.
        what: what would be done, in an error.
        hint: how to do it without being asked.
        silent: nothing may be printed.

    Raises:
        ConfigurationError: there is nobody to ask.
    """
    if silent or not sys.stdin.isatty():
        raise ConfigurationError(f"Nobody can be asked whether to {what}.", hint=hint)
    typer.confirm(question, abort=True)


def print_error(message: str) -> None:
    """Prints an error as one message."""
    err.print(Text.assemble(("error: ", "bold red"), message))


def write_files(files: Mapping[Path, str], *, force: bool) -> None:
    """Writes all files; without `force`, none if one of them says something else.

    Raises:
        ConfigurationError: one of them says something else.
    """
    others = [str(file) for file, text in files.items() if file.exists() and file.read_text(encoding="utf-8") != text]
    if others and not force:
        raise ConfigurationError(
            f"{', '.join(others)}: what is there is something else.",
            hint="--force replaces it; --output writes elsewhere",
        )
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        out.print(Text(f"written: {file}"))
