"""The code on the pages of the documentation: finds it, runs it, and compares what it prints with what the page shows.

- `python`: the blocks of a page are one module, run in order. What a block prints is in the `text` block below it.
- `sql`: a query over the tables that `jobs/orders.py` makes of its sample data, with its result below it.
- `console`: commands; those of `deltaworks` and `make` are checked for their names, arguments and options.

`python -m tests.docs` runs all pages and writes the results into them.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import typer.main

from deltaworks.cli.app import app
from deltaworks.testing.recorded import run_recorded
from jobs.orders import pipeline as orders
from jobs.sample_data.orders import records
from tests.unit.jobs.recomputing import micro_batches, random_cuts, rows_of, tables_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_ORDERS = 2_000


@dataclass
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    line: int
    shows: Block | None = None
    """The `text` block right below it."""
    start: int = 0
    stop: int = 0


def pages() -> list[Path]:
    """The pages that have code, and the README."""
    return [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if blocks(page.read_text())]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page that have a language, in order."""
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        block = Block(match[2], textwrap.dedent(match[3]), line, None, match.start(3), match.end(3))
        if block.language == "text" and found and not text[found[-1].stop + 3 : match.start()].strip():
            found[-1].shows = block
        else:
            found.append(block)
    return found


def run(page: Path) -> Iterator[tuple[Block, str]]:
    """Runs the Python and SQL of a page: each block with what it printed."""
    name = f"docs_{re.sub(r'[^a-z]', '_', page.stem)}"
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(page)
    for block in blocks(page.read_text()):
        if block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), vars(module))
            yield block, printed.getvalue()
        elif block.language == "sql":
            yield block, answer(block.code)


def answer(query: str) -> str:
    """The result of a query over the tables of the orders, as text."""
    found = _tables().execute(query)
    rows = [[column[0] for column in found.description], *([_cell(cell) for cell in row] for row in found.fetchall())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
    return "NULL" if value is None else str(value)


@cache
def _tables() -> duckdb.DuckDBPyConnection:
    rows = rows_of(records(_ORDERS, 1))
    cuts = random_cuts(rows, 8, random.Random(1))
    topics = {"raw-orders": 4, "user-data": 4}
    recording = run_recorded(orders.plan(), topics, micro_batches(rows, cuts), errors=orders.errors)
    connection = duckdb.connect()
    for name, table in tables_of(orders, recording, cuts).items():
        connection.register(name, table)
    return connection


def commands(block: Block) -> Iterator[str]:
    """The commands in a `console` block; a line that ends with a backslash goes on."""
    for line in block.code.replace("\\\n", " ").splitlines():
        for command in line.removeprefix("$ ").split("  #")[0].split("||"):
            if command.strip() and not command.startswith("#"):
                yield command.strip()


def problem(command: str) -> str | None:
    """What is wrong with a command; None: nothing, or it is not one of ours."""
    words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=.*|>\S+", word)]
    program, arguments = words[0].rpartition("/")[2], words[1:]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        unknown = [word for word in arguments if "=" not in word and word not in targets]
        return f"make has no target {unknown[0]}" if unknown else None
    if program != "deltaworks":
        return None
    found: Any = typer.main.get_command(app)
    while hasattr(found, "commands") and arguments and arguments[0] in found.commands:
        found, arguments = found.commands[arguments[0]], arguments[1:]
    if hasattr(found, "commands") and arguments and not arguments[0].startswith("-"):
        return f"deltaworks has no command {arguments[0]}"
    try:
        found.make_context(found.name, list(arguments), resilient_parsing=False)
    except SystemExit:
        return None
    except Exception as error:
        return f"{command}: {getattr(error, 'message', error)}"
    return None
