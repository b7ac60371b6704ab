"""Compares the tables of a replay with those of production: what would the new code have written?

It compares exactly the rows that a publish would replace (`scope`). Days of a windowed table whose windows may still
change on either side are left out, and named. The snapshot of a KTable is compared as of the last batch of the replay:
both sides' changelogs up to it, reduced.

For the comparison of rows see `differences`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from deltalake import Schema

from deltaworks.clock import ticks_s, wall_ms
from deltaworks.errors import TableError
from deltaworks.lakehouse import layout, row_origins
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.publish.differences import KINDS, Differences, Kind, Side, engine
from deltaworks.lakehouse.publish.scope import Scope, open_days
from deltaworks.lakehouse.publish.windows import ALWAYS, early_windows, later_windows
from deltaworks.lakehouse.schema import Role, TableSchema, changelog_name

MEMORY_MB = 512
SLICE_ROWS = 4_000_000
"""Rows of both sides of a windowed table that are compared at a time, or those of a day if it has more."""
_MAX_TEXT = 1_000

SampleCell = None | bool | int | float | str | list[Any] | dict[str, Any]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One row that differs; money, times and bytes as text."""

    kind: Kind
    before: dict[str, SampleCell] | None
    """In production."""
    after: dict[str, SampleCell] | None
    """In staging."""


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the differences between the rows of two tables."""

    production: int
    staging: int
    equal: int
    changed: int
    """Rows that exist on both sides with different content."""
    only_production: int
    only_staging: int

    @property
    def different(self) -> int:
        """Changed, missing and additional rows."""
        return self.changed + self.only_production + self.only_staging


class Day(RowCounts, frozen=True, kw_only=True):
    """One UTC day, of window starts or else of timestamps; a changed row counts on the day it has in production."""

    day: str

    def __str__(self) -> str:
        """For people: how many of its rows in production change or go, and how many are new."""
        new = f", {self.only_staging:,} new" if self.only_staging else ""
        return f"{self.day} ({self.changed + self.only_production:,} of {self.production:,}{new})"


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of a column on the days that are compared; None: it is no finite number."""

    before: float | None
    """In production."""
    change: float | None
    """What the rows that differ add to it; exactly 0 if none does."""


class TableComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    table: str
    role: str
    rows: RowCounts
    days: tuple[Day, ...]
    """Days with rows on either side, in order."""
    columns: dict[str, int]
    """Column -> changed rows in which it differs; has all columns that are not part of a row's identity."""
    samples: tuple[Sample, ...]
    sums: dict[str, Sum] = {}
    """Of the columns whose sums somebody asked for."""
    open_days: tuple[str, ...] = ()
    """Days of windowed tables that are not compared, since they cannot be published yet."""
    new_columns: tuple[str, ...] = ()
    """Columns that production does not have; they count as null there."""
    gone_columns: tuple[str, ...] = ()
    """Columns that only production has; they are not compared."""
    production_version: int | None
    """The Delta version that was compared; None: there is no such table."""
    staging_version: int

    @property
    def equal(self) -> bool:
        """Whether no row is missing, additional or changed."""
        return self.rows.different == 0 and not self.new_columns and not self.gone_columns


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of a replay."""

    tables: tuple[TableComparison, ...]
    scope: Scope
    compared_ms: int
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether a publish would change nothing."""
        return all(table.equal for table in self.tables)

    @property
    def differences(self) -> int:
        """Rows that differ."""
        return sum(table.rows.different for table in self.tables)


@dataclass(frozen=True)
class Limits:
    """The resources of a comparison."""

    memory_mb: int = MEMORY_MB
    """Data that does not fit goes to `folder`."""
    folder: Path | None = None
    """The folder of temporary files; None: the system's."""
    samples: int = 5
    """Rows to keep per table and kind of difference."""
    parts: int = 1
    """The number of parts that rows are divided into at first; more if memory is short."""


def compare(
    schemas: Sequence[TableSchema],
    production_root: Path,
    staging_root: Path,
    *,
    from_ms: int | None,
    to_ms: int | None,
    end_offsets: Mapping[str, Mapping[str, int]],
    last_batch: int,
    tables: Sequence[str],
    ends_ms: Mapping[str, int | None] | None = None,
    same_batches: bool = True,
    summed: Mapping[str, Sequence[str]] | None = None,
    limits: Limits | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Compares tables of a replay with production, each at its current version; changes nothing.

    Args:
        schemas: every table of the replay's plan.
        production_root: folder of the live tables.
        staging_root: folder of the replay's tables.
        from_ms: the first UTC day; None: from the beginning.
        to_ms: the day after the last; None: to the end.
        end_offsets: per source topic and partition the next offset after the replay.
        last_batch: the last batch of the replay.
        tables: the tables to compare.
        ends_ms: table -> its end, in place of `to_ms`.
        same_batches: the replay ran the recorded batches; if it made its own, batch ids and offsets behind exchanges
            are not compared.
        summed: table -> columns of numbers to sum up.
        limits: memory, temporary files, samples.
        report: gets a line of progress per table.

    Raises:
        TableError: there is no such table in staging, a column has another type, or files of production were replaced
            and deleted meanwhile.
    """
    limits = limits or Limits()
    begun, now_ms = ticks_s(), wall_ms()
    scope = Scope(from_ms=from_ms, to_ms=to_ms, end_offsets=end_offsets, last_batch=last_batch)
    known = {schema.name: schema for schema in schemas}
    if unknown := [name for name in tables if name not in known]:
        raise TableError(f"There is no table {', '.join(unknown)} to compare.", hint=f"tables: {', '.join(known)}")
    compared = []
    for name in tables:
        report(name)
        schema = known[name]
        source = known[changelog_name(name)] if schema.role is Role.SNAPSHOT else schema
        pair = _Pair.open(schema, source, production_root, staging_root)
        end_ms = (ends_ms or {}).get(name, to_ms)
        of_table = msgspec.structs.replace(scope, to_ms=end_ms)
        compared.append(pair.compare(of_table, same_batches, (summed or {}).get(name, ()), limits))
    return Comparison(tables=tuple(compared), scope=scope, compared_ms=now_ms, seconds=round(ticks_s() - begun, 3))


@dataclass(frozen=True)
class _Pair:
    """One table, twice."""

    schema: TableSchema
    source: TableSchema
    """The schema of the files that are read."""
    production: DeltaLog | None
    staging: DeltaLog

    @classmethod
    def open(cls, schema: TableSchema, source: TableSchema, production_root: Path, staging_root: Path) -> _Pair:
        production, staging = _log(production_root / source.name), _log(staging_root / source.name)
        if staging is None:
            raise TableError(
                f"The replay has no Delta table '{source.name}' below {staging_root}.",
                hint="compare after the replay has run, with the code that it ran with",
            )
        for log in (production, staging):
            if log is not None:
                _require_types(log, source)
        return cls(schema, source, production, staging)

    def compare(self, scope: Scope, same_batches: bool, summed: Sequence[str], limits: Limits) -> TableComparison:
        left_out = self._unsettled_days(scope)
        before, after = (self._side(log, scope, left_out) for log in (self.production, self.staging))
        production_columns = after.columns if self.production is None else before.columns
        with engine(limits.memory_mb, limits.folder) as duck:
            differences = Differences(duck, self.schema, self.source, scope, same_batches=same_batches, summed=summed)
            try:
                found = differences.find(self._slices(before, after), limits.samples, limits.parts)
            except duckdb.IOException as error:
                raise TableError(
                    f"Files of the table '{self.source.name}' cannot be read: {error}",
                    hint="if the stream has replaced and deleted them meanwhile, compare again",
                ) from error
            except duckdb.OutOfMemoryException as error:
                raise TableError(
                    f"The comparison of '{self.schema.name}' needs more than {limits.memory_mb} MB: {error}",
                    hint="give it more memory, or compare fewer days",
                ) from error
        days = day_counts(found.before, found.kinds)
        return TableComparison(
            table=self.schema.name,
            role=self.schema.role.value,
            rows=total(days),
            days=days,
            columns=dict(found.columns),
            samples=tuple(Sample(kind=kind, before=shown(old), after=shown(new)) for kind, old, new in found.samples),
            sums={
                name: Sum(before=_finite(before), change=_finite(change))
                for name, (before, change) in found.sums.items()
            },
            open_days=tuple(sorted(left_out)),
            new_columns=tuple(field.name for field in self.source.file if field.name not in production_columns),
            gone_columns=tuple(sorted(production_columns - set(self.source.arrow.names))),
            production_version=None if self.production is None else self.production.version,
            staging_version=self.staging.version,
        )

    def _slices(self, before: Side, after: Side) -> list[tuple[Side, Side]]:
        """Both sides, of windowed tables some days at a time, so that little has to be held or written to disk."""
        if self.schema.role is not Role.WINDOWED:
            return [(before, after)]
        rows: Counter[str] = Counter()
        for log in (self.production, self.staging):
            for path, entry in () if log is None else log.files.items():
                rows[layout.partition_of(path)["window_date"]] += entry.rows
        return [(_of_days(before, days), _of_days(after, days)) for days in slices_of(rows)]

    def _unsettled_days(self, scope: Scope) -> set[str]:
        """Days whose windows may still change, or that one side has closed and the other has not."""
        if self.schema.role is not Role.WINDOWED:
            return set()
        days = set().union(*(open_days(log.files) for log in (self.production, self.staging) if log is not None))
        if self.production is not None:
            root = self.production.path.parent
            logs = self.production, self.staging
            days |= {day for day, _ in later_windows(root, self.schema, *logs, scope, ALWAYS)}
            days |= {day for day, _ in early_windows(*logs, scope, ALWAYS)}
        return {day for day in days if scope.holds_day(day)}

    def _side(self, log: DeltaLog | None, scope: Scope, left_out: set[str]) -> Side:
        if log is None:
            return Side([], frozenset(), frozenset(), "TRUE")
        paths = sorted(log.files, key=lambda path: (layout.batch_of(path) or (-1, ""), path))
        if self.schema.role is Role.WINDOWED:
            days = {path: layout.partition_of(path)["window_date"] for path in paths}
            paths = [path for path in paths if days[path] not in left_out and scope.holds_day(days[path])]
        condition = scope.condition(self.source)
        if self.schema.role in (Role.APPEND, Role.DEAD_LETTERS):
            paths, condition = self._written(log, paths, scope)
        return Side(
            [log.path / path for path in paths], frozenset(_types(log)), frozenset(log.added_columns), condition
        )

    def _written(self, log: DeltaLog, paths: Sequence[str], scope: Scope) -> tuple[list[str], str]:
        """The files with rows of the replay's batches, and a condition for those rows."""
        chosen, unknown, cases = list[str](), list[str](), list[str]()
        for path in paths:
            written = row_origins.of_file(log.path.parent, self.schema, path, log.files[path].rows)
            count = log.files[path].rows if written is None else row_origins.rows_up_to(written, scope.last_batch)
            if count == 0:
                continue
            if written is None:
                unknown.append(str(len(chosen)))
            elif count < log.files[path].rows:
                cases.append(f"WHEN file_index = {len(chosen)} THEN file_row_number < {count}")
            chosen.append(path)
        if unknown:
            cases.append(f"WHEN file_index IN ({', '.join(unknown)}) THEN {scope.condition(self.schema)}")
        of_batches = f" AND CASE {' '.join(cases)} ELSE TRUE END" if cases else ""
        return chosen, scope.time_condition("timestamp") + of_batches


def slices_of(rows: Mapping[str, int]) -> list[set[str]]:
    """The days of a windowed table that are compared at a time; takes the rows of each day, of both sides."""
    slices: list[set[str]] = [set()]
    held = 0
    for day in sorted(rows):
        if held and held + rows[day] > SLICE_ROWS:
            slices.append(set())
            held = 0
        slices[-1].add(day)
        held += rows[day]
    return slices


def _of_days(side: Side, days: set[str]) -> Side:
    """The files of some days of a windowed table."""
    chosen = [
        path for path in side.files if layout.partition_of(f"{path.parent.name}/{path.name}")["window_date"] in days
    ]
    return replace(side, files=chosen)


def _log(path: Path) -> DeltaLog | None:
    if not (path / layout.LOG_FOLDER).is_dir():
        return None
    log = DeltaLog(path)
    log.load()
    return log


def _types(log: DeltaLog) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(log.schema_text)["fields"]}


def _require_types(log: DeltaLog, schema: TableSchema) -> None:
    found = _types(log)
    wanted = json.loads(Schema.from_arrow(schema.arrow).to_json())["fields"]
    others = [
        f"{field['name']}: {found[field['name']]} -> {field['type']}"
        for field in wanted
        if field["name"] in found and found[field["name"]] != field["type"]
    ]
    if others:
        raise TableError(
            f"Columns of the Delta table at {log.path} have other types than in the code that was replayed "
            f"(table -> code): {'; '.join(others)}.",
            hint="such a table cannot be published into; write to a new table name",
        )


def day_counts(before: Mapping[date, int], differing: Mapping[date, Mapping[Kind, int]]) -> tuple[Day, ...]:
    """The days of a comparison, in order.

    Args:
        before: day -> rows in production.
        differing: day -> rows that differ, by kind.
    """
    none = dict.fromkeys(KINDS, 0)
    days = []
    for day in sorted(before.keys() | differing.keys()):
        kinds = differing.get(day, none)
        changed, gone, new = (kinds[kind] for kind in KINDS)
        production = before.get(day, 0)
        equal = production - changed - gone
        days.append(
            Day(
                day=day.isoformat(),
                production=production,
                staging=equal + changed + new,
                equal=equal,
                changed=changed,
                only_production=gone,
                only_staging=new,
            )
        )
    return tuple(days)


def total(days: Sequence[Day]) -> RowCounts:
    """The counts of all days together."""
    return RowCounts(**{name: sum(getattr(day, name) for day in days) for name in RowCounts.__struct_fields__})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def shown(row: Mapping[str, Any] | None) -> dict[str, SampleCell] | None:
    """A row as a sample can hold it."""
    return None if row is None else {name: _cell(cell) for name, cell in row.items()}


def _cell(cell: Any) -> SampleCell:
    """A cell as JSON can hold it, in readable form."""
    match cell:
        case None | bool() | int():
            return cell
        case float():
            return cell if math.isfinite(cell) else str(cell)
        case str():
            return cell if len(cell) <= _MAX_TEXT else f"{cell[:_MAX_TEXT]}... ({len(cell):,} characters)"
        case bytes():
            return _cell(cell.decode(errors="backslashreplace"))
        case Decimal():
            return f"{cell:f}"
        case datetime():
            return cell.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
        case date():
            return cell.isoformat()
        case dict():
            return {str(name): _cell(part) for name, part in cell.items()}
        case [*parts] if parts and all(isinstance(part, tuple) for part in parts):
            return {str(name): _cell(part) for name, part in parts}
        case [*parts]:
            return [_cell(part) for part in parts]
        case _:
            return str(cell)
