"""Runs untrusted SQL: DuckDB with tables, but without files, network, extensions and settings.

A query of `deltaworks sql`, or of a suite, is text from a terminal, a script or a pull request. It sees only its
tables, which are Arrow datasets, so DuckDB itself needs no access to files. Three things confine it:

- statements that reach outside (COPY, ATTACH, INSTALL, SET ...) are refused by their kind;
- DuckDB is locked: no files, no extensions, no variables of Python, and no setting can be changed;
- memory, temporary files and time have limits.

DuckDB counts the memory of its operators, but not a single value that a function makes. It checks for an interruption
between functions, not within one. `limited_process` covers both in a process that does nothing else. The Python code of
a suite is not confined: it is code of the project.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil
from duckdb import StatementType

from deltaworks.errors import ConfigurationError
from deltaworks.names import hint_of
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
"""Statements that change a table can only change one in memory: a table of the lake is a view."""
_SPILL = 8
"""Temporary files may take so many times the memory."""
_MAPPED = 4
"""The process may map so many times the memory: allocators keep what they have freed, which counts but takes none."""
_BEYOND_MB = 512
"""Further memory of the process: Python, Arrow, stacks of threads."""
_MISSING = re.compile(r'Table with name "?(?P<table>\w+)"? does not exist')
"""In DuckDB's errors."""
_GRACE_S = 10.0
"""How long a function that cannot be interrupted may go on."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a query may use."""

    memory_mb: int = Settings.query_memory_mb
    """Temporary files may take eight times as much."""
    frame_mb: int = Settings.query_frame_mb
    """In a quality suite, a larger table is checked in parts, not as one data frame."""
    seconds: float = Settings.query_seconds
    """The time limit per query."""
    folder: Path | None = None
    """The folder of temporary files; None, or if it does not exist: the system's folder."""
    restricted: bool = True
    """False: plain DuckDB, with files, network and extensions, and without limits."""

    @classmethod
    def of(cls, settings: Settings, *, restricted: bool = True) -> Limits:
        """The limits that the environment sets."""
        return cls(
            memory_mb=settings.query_memory_mb,
            frame_mb=settings.query_frame_mb,
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
    """A DuckDB in memory for given tables. A context manager: it deletes its temporary files at the end.

    Args:
        limits: what a query may use; None: the defaults.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._names: set[str] = set()
        """The tables that there are."""
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
        self._names.add(name)

    def drop(self, name: str) -> None:
        """Removes what `add` has added."""
        self._connection.unregister(name)
        self._names.discard(name)

    def named(self, query: str, names: Collection[str]) -> set[str]:
        """Those of the tables that statements name; all of them if DuckDB cannot tell.

        Raises:
            ConfigurationError: as for `answer`.
        """
        self._names |= set(names)
        with self._within_limits():
            self._check(query, _STATEMENTS)
        found: set[str] = set()
        for statement in duckdb.extract_statements(query):
            try:
                found |= self._connection.get_table_names(statement.query)
            except duckdb.Error:
                return set(names)
        return found & set(names)

    def answer(self, query: str, at_most: int | None) -> Answer:
        """Runs statements, and returns the first rows of the last one; None: all of them.

        Raises:
            ConfigurationError: it reaches outside, exceeds the limits, or is not SQL that DuckDB can run.
        """
        with self._within_limits():
            self._check(query, _STATEMENTS)
            result = self._connection.execute(query)
            rows = result.fetchall() if at_most is None else result.fetchmany(at_most)
            return Answer(tuple((str(name), str(kind)) for name, kind, *_ in result.description or []), rows)

    def select(self, query: str, samples: int) -> tuple[int, tuple[dict[str, Any], ...]]:
        """How many rows a query selects, and the first of them.

        Raises:
            ConfigurationError: as for `answer`; or it is more than one query.
        """
        with self._within_limits():
            self._check(query, _QUERIES, single=True)
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE selected_rows AS {query}")
            found = self._connection.table("selected_rows")
            return len(found), tuple(found.limit(samples).to_arrow_table().to_pylist())

    def _lock(self) -> None:
        """Locks DuckDB. `lock_configuration` comes last: nothing can be set after it."""
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
        """Refuses what is not a query, with a clear message; the lock refuses what is dangerous."""
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
        """Rewords DuckDB's errors, and stops queries that take too long."""
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
        missing = _MISSING.search(str(error))
        hint = hint_of("" if missing is None else missing["table"], self._names, "tables")
        return ConfigurationError(f"DuckDB refuses the query: {error}", hint=hint)


def identifier(name: str) -> str:
    """A name as DuckDB reads it in SQL, whatever letters it has."""
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def limited_process(limits: Limits, fail: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds the whole process to the limits, even where DuckDB does not; for a process that runs one query.

    Args:
        limits: the limits of the sandbox.
        fail: ends the process after a function that cannot be interrupted; gets the message.
    """
    if not limits.restricted:
        yield
        return
    message = f"{_too_long(limits)}\n  Hint: {_TOO_LONG_HINT}"
    with (
        _data_limit(_MAPPED * limits.memory_mb + _BEYOND_MB),
        _alarm(limits.seconds + _GRACE_S, lambda: (fail or _end)(message)),
    ):
        yield


def _end(message: str) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(78)


@contextlib.contextmanager
def _data_limit(more_mb: int) -> Iterator[None]:
    """Limits the memory of the process; Linux only, as other systems do not measure it in these terms."""
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
    """The kind of a statement; None: DuckDB's Python has no name for it."""
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
