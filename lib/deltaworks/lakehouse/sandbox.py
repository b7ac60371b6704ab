"""Where SQL that somebody writes runs: DuckDB with tables, and without files, network, extensions and settings.

A query of `deltaworks sql`, or of a suite, is text from a terminal, a script or a pull request. It sees the tables
that it is about, which come as Arrow datasets, so DuckDB itself needs no access to files. Three things keep it there:

- statements that reach outside (COPY, ATTACH, INSTALL, SET ...) are refused by their kind;
- DuckDB is locked: no files, no extensions, no variables of Python, and no setting can be changed any more;
- memory, temporary files and time have limits.

DuckDB counts what its operators hold, not a single value that a function makes, and looks for an interruption between
functions, not within one. `limited_process` covers both where a process has nothing else to do. What a suite does in
Python is not confined: it is code of the project.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil
from duckdb import StatementType

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

_QUERIES = frozenset({StatementType.SELECT, StatementType.MULTI})
"""MULTI: a PIVOT whose columns follow from the data."""
_STATEMENTS = _QUERIES | {
    StatementType.EXPLAIN,
    StatementType.CREATE,
    StatementType.INSERT,
    StatementType.UPDATE,
    StatementType.DELETE,
    StatementType.DROP,
}
"""What changes a table changes one in memory: a table of the lake is a view."""
_SPILL = 4
"""Temporary files may take as many times the memory."""
_BEYOND_MB = 512
"""What the process may need besides: Python, Arrow, stacks of threads."""
_GRACE_S = 10.0
"""A function that hears of no interruption may go on for so long."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a query may use."""

    memory_mb: int = Settings.query_memory_mb
    """Four times as much may lie in temporary files meanwhile."""
    seconds: float = Settings.query_seconds
    """Per query."""
    folder: Path | None = None
    """Where temporary files are; None, or no folder: where the system has them."""
    restricted: bool = True
    """False: DuckDB as it comes, with files, network and extensions, and without limits."""

    @classmethod
    def of(cls, settings: Settings, *, restricted: bool = True) -> Limits:
        """Those that the environment sets."""
        return cls(
            memory_mb=settings.query_memory_mb,
            seconds=settings.query_seconds,
            folder=settings.temporary,
            restricted=restricted,
        )


@dataclass(frozen=True)
class Answer:
    """What a query gave."""

    columns: tuple[tuple[str, str], ...]
    """Name and type."""
    rows: list[tuple[Any, ...]]


class Sandbox:
    """A DuckDB in memory for the tables that it is given. A context manager: its temporary files go with it.

    Args:
        limits: what a query may use; None: the defaults.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._names: list[str] = []
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        if self.limits.restricted:
            self._lock()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def add(self, name: str, rows: Any) -> None:
        """Makes an Arrow table or dataset a view; filters and columns are pushed down to it."""
        self._connection.register(name, rows)
        self._names.append(name)

    def answer(self, query: str, at_most: int) -> Answer:
        """Runs statements, and gives the first rows of the last one.

        Raises:
            ConfigurationError: it reaches outside, needs more than the limits, or is no SQL that DuckDB can run.
        """
        with self._within_limits():
            self._check(query, _STATEMENTS)
            result = self._connection.execute(query)
            rows = result.fetchmany(at_most)
            return Answer(tuple((str(name), str(kind)) for name, kind, *_ in result.description or []), rows)

    def select(self, query: str, samples: int) -> tuple[int, tuple[dict[str, Any], ...]]:
        """How many rows a query selects, and the first of them.

        Raises:
            ConfigurationError: as above, or it is more than one query.
        """
        with self._within_limits():
            self._check(query, _QUERIES, single=True)
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE selected_rows AS {query}")
            found = self._connection.table("selected_rows")
            return len(found), tuple(found.limit(samples).to_arrow_table().to_pylist())

    def _lock(self) -> None:
        """`lock_configuration` comes last: nothing can be set after it."""
        folder = self.limits.folder
        self._scratch = tempfile.TemporaryDirectory(
            prefix="query-", dir=folder if folder is not None and folder.is_dir() else None
        )
        memory_mb = self.limits.memory_mb
        settings: dict[str, str | bool] = {
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": self._scratch.name,
            "max_temp_directory_size": f"{memory_mb * _SPILL}MB",
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "enable_external_access": False,
            "lock_configuration": True,
        }
        for name, value in settings.items():
            self._connection.execute(f"SET {name} = ?", [value])

    def _check(self, query: str, allowed: frozenset[StatementType], *, single: bool = False) -> None:
        """The lock refuses what is dangerous, this refuses the rest of what is no query, and says so plainly."""
        if not self.limits.restricted:
            return
        statements = duckdb.extract_statements(query)
        if single and len(statements) != 1:
            raise ConfigurationError(
                f"A rule is one query; this has {len(statements)} statements: {query.strip()}",
                hint="make it a single SELECT",
            )
        for statement in statements:
            if _kind(statement) not in allowed:
                raise _outside(f"This statement is not allowed: {statement.query.strip()}")

    @contextlib.contextmanager
    def _within_limits(self) -> Iterator[None]:
        """DuckDB's errors in plain words, and an end to what takes too long."""
        over = threading.Event()
        with _alarm(self.limits.seconds, self._interrupt(over)) if self.limits.restricted else contextlib.nullcontext():
            try:
                yield
            except (duckdb.Error, MemoryError) as error:
                raise self._refusal(error, over.is_set()) from error

    def _interrupt(self, over: threading.Event) -> Callable[[], None]:
        def interrupt() -> None:
            over.set()
            self._connection.interrupt()

        return interrupt

    def _refusal(self, error: Exception, took_too_long: bool) -> ConfigurationError:
        if took_too_long:
            return ConfigurationError(_too_long(self.limits), hint=_TOO_LONG_HINT)
        if isinstance(error, duckdb.OutOfMemoryException | MemoryError):
            memory_mb = self.limits.memory_mb
            return ConfigurationError(
                f"The query needs more than {memory_mb} MB of memory and {memory_mb * _SPILL} MB of temporary files, "
                f"or a single value that is too large: {_first_line(error)}",
                hint="choose fewer rows or columns, or raise DELTAWORKS_QUERY_MEMORY_MB",
            )
        if isinstance(error, duckdb.PermissionException):
            return _outside(f"The query reaches outside its tables: {_first_line(error)}")
        names = ", ".join(self._names) or "none yet"
        return ConfigurationError(f"DuckDB refuses the query: {error}", hint=f"tables: {names}")


@contextlib.contextmanager
def limited_process(limits: Limits, fail: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds the whole process to the limits, also where DuckDB does not: for a process that runs one query.

    Args:
        limits: those of the sandbox.
        fail: ends the process after a function that cannot be interrupted; gets what to say.
    """
    if not limits.restricted:
        yield
        return
    message = f"{_too_long(limits)}\n  Hint: {_TOO_LONG_HINT}"
    with (
        _data_limit(2 * limits.memory_mb + _BEYOND_MB),
        _alarm(limits.seconds + _GRACE_S, lambda: (fail or _end)(message)),
    ):
        yield


def _end(message: str) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(78)


@contextlib.contextmanager
def _data_limit(more_mb: int) -> Iterator[None]:
    """Linux only; elsewhere the memory that a process has is not known in these terms."""
    data_bytes = getattr(psutil.Process().memory_info(), "data", None)
    if data_bytes is None:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = data_bytes + more_mb * 1024 * 1024
    fitting = min(limit for limit in (wanted, before, most) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (fitting, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


@contextlib.contextmanager
def _alarm(seconds: float, ring: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _kind(statement: duckdb.Statement) -> StatementType | None:
    """None: a kind that DuckDB's Python knows no name for."""
    try:
        return statement.type
    except ValueError:
        return None


def _outside(message: str) -> ConfigurationError:
    return ConfigurationError(
        message,
        hint="a query reads tables and nothing else: no files, network, extensions or settings. "
        "If you trust it: `deltaworks sql --unrestricted`, `deltaworks quality --unrestricted`",
    )


def _too_long(limits: Limits) -> str:
    return f"The query took longer than {limits.seconds:g} s and was stopped."


_TOO_LONG_HINT = "choose fewer rows, look for a join without a condition, or raise DELTAWORKS_QUERY_SECONDS"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
