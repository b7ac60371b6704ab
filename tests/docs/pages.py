"""The code on the pages of the documentation: finds it, runs it, and compares what it prints with what the page shows.

- `python`: the blocks of a page are one module, run in order, in a project whose home has the tables that
  `jobs/orders.py` makes of its sample data. What a block prints is in the `text` block below it.
- `sql`: a query over the same tables, with its result below it.
- `console`: commands; those of `deltaworks` and `make` are checked for their names, arguments and options.

`python -m tests.docs` runs all pages and writes the results into them.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pyarrow as pa
import typer.main
from deltalake import DeltaTable, write_deltalake

from deltaworks.cli.app import app
from deltaworks.clock import wall_ms
from deltaworks.lakehouse.cuts import Cut, CutWriter
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.schema import plan_schemas
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
            with _project(block.code), contextlib.redirect_stdout(printed):
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), vars(module))
            yield block, printed.getvalue()
        elif block.language == "sql":
            yield block, answer(block.code)


def answer(query: str) -> str:
    """The result of a query over the tables of the orders, as text."""
    found = _connection().execute(query)
    lines = [[column[0] for column in found.description], *([cell(value) for value in row] for row in found.fetchall())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)


def rows(query: str) -> list[tuple[Any, ...]]:
    """The rows of a query over the tables of the orders."""
    return _connection().execute(query).fetchall()


def cell(value: Any) -> str:
    """A cell of a result as text; a time is in UTC."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
    return "NULL" if value is None else str(value)


@cache
def _tables() -> dict[str, pa.Table]:
    rows = rows_of(records(_ORDERS, 1))
    cuts = random_cuts(rows, 8, random.Random(1))
    topics = {"raw-orders": 4, "user-data": 4}
    recording = run_recorded(orders.plan(), topics, micro_batches(rows, cuts), errors=orders.errors)
    return tables_of(orders, recording, cuts)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, table in _tables().items():
        connection.register(name, table)
    return connection


@contextlib.contextmanager
def _project(code: str) -> Iterator[None]:
    """The working directory is a project with the tables in its home, if the code opens any."""
    if "tables" not in code:
        yield
        return
    with tempfile.TemporaryDirectory() as folder, in_project(Path(folder)) as home:
        root, versions = home / "tables", {}
        for schema in plan_schemas(orders.plan().tables, orders.dead_letters.table):
            log = DeltaLog.create_or_open(root, schema, query_id="docs", properties={})
            write_deltalake(log.path, _tables()[schema.name], mode="append")
            versions[schema.name] = DeltaTable(log.path).version()
        cut = Cut(pipeline=orders.name, query="docs", batch_id=7, at_ms=wall_ms(), tables=versions)
        CutWriter(root, orders.name).write(cut)
        yield


@contextlib.contextmanager
def in_project(folder: Path) -> Iterator[Path]:
    """Works in a folder as its project; gives the home of it."""
    before, home = os.environ.get("DELTAWORKS_HOME"), folder / ".deltaworks"
    try:
        os.environ["DELTAWORKS_HOME"] = str(home)
        with contextlib.chdir(folder):
            yield home
    finally:
        os.environ.pop("DELTAWORKS_HOME")
        os.environ |= {} if before is None else {"DELTAWORKS_HOME": before}


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
