"""What a replay would change in the table of a batch job: its rows of some days, in production and as rehearsed."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import duckdb

from deltaworks.batch.definition import KIND, definition
from deltaworks.batch.job import DAY, BatchJob
from deltaworks.lakehouse import catalog
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.publish.comparison import Limits, Sample, TableComparison, day_counts, shown, total
from deltaworks.lakehouse.publish.differences import CONDITION, KINDS, Kind, copies_for, engine, rows_of, unordered
from deltaworks.lakehouse.sandbox import identifier


def changes(
    job: BatchJob, production: Path, rehearsed: Path, days: Collection[dt.date], limits: Limits | None = None
) -> TableComparison:
    """Compares the rows of some days, one day at a time; two rows of one key are one row that has changed.

    Args:
        job: has made both tables, so each key is there once.
        production: folder of the live tables.
        rehearsed: folder of tables with the job's rows after a replay.
        days: the days.
        limits: memory, temporary files, samples.
    """
    limits = limits or Limits()
    before, after = (catalog.log_of(root, job.name) for root in (production, rehearsed))
    rows: Counter[dt.date] = Counter()
    kinds: dict[dt.date, Counter[Kind]] = defaultdict(Counter)
    columns: Counter[str] = Counter(dict.fromkeys((c.name for c in job.columns if c.name not in job.key), 0))
    samples: dict[Kind, list[Sample]] = {kind: [] for kind in KINDS}
    with engine(limits.memory_mb, limits.folder) as duck:
        copies = copies_for(duck)
        for day in sorted(days):
            sides = _of_day(before, day), _of_day(after, day)
            copies.fetch([path for side in sides for path in side])
            pairs = _Pairs(duck, job, day, *map(copies.of, sides))
            if (count := pairs.before()) + sum((differing := pairs.kinds()).values()):
                rows[day] = count
                kinds[day].update(differing)
            columns.update(pairs.columns())
            for kind, found in samples.items():
                found += pairs.samples(kind, limits.samples - len(found))
    compared = day_counts(rows, kinds)
    return TableComparison(
        table=job.name,
        role=KIND,
        rows=total(compared),
        days=compared,
        columns=dict(columns),
        samples=tuple(sample for kind in KINDS for sample in samples[kind]),
        production_version=before.version,
        staging_version=after.version,
    )


class _Pairs:
    """The rows of a day that differ: before beside after."""

    def __init__(
        self, duck: duckdb.DuckDBPyConnection, job: BatchJob, day: dt.date, before: list[Path], after: list[Path]
    ) -> None:
        self._duck = duck
        self._cells = {column.name: number for number, column in enumerate(job.columns)}
        self._keys = [self._cells[name] for name in job.key]
        self._values = {name: number for name, number in self._cells.items() if name not in job.key}
        types = {each.name: each.type for each in definition(job).columns}
        for name, paths in (("before_rows", before), ("after_rows", after)):
            cells = ", ".join(
                f"{f'DATE {day.isoformat()!r}' if column == DAY else unordered(identifier(column), types[column])} "
                f"AS c{number}"
                for column, number in self._cells.items()
            )
            source = rows_of(paths) if paths else f"(SELECT {self._nothing(job)} WHERE FALSE)"
            duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {cells}, TRUE AS there FROM {source}")
        both = [f"b.c{number} AS b{number}, a.c{number} AS a{number}" for number in self._cells.values()]
        same_key = " AND ".join(f"b.c{number} IS NOT DISTINCT FROM a.c{number}" for number in self._keys)
        differ = [f"b.c{number} IS DISTINCT FROM a.c{number}" for number in self._values.values()]
        duck.execute(
            f"CREATE OR REPLACE TEMP TABLE pairs AS "
            f"SELECT {', '.join(both)}, b.there IS NOT NULL AS in_before, a.there IS NOT NULL AS in_after "
            f"FROM before_rows b FULL JOIN after_rows a ON {same_key} "
            f"WHERE b.there IS NULL OR a.there IS NULL OR {' OR '.join(differ) or 'FALSE'}"
        )

    def before(self) -> int:
        """Rows in production."""
        return int(self._row("SELECT count(*) FROM before_rows")[0])

    def kinds(self) -> dict[Kind, int]:
        """Rows that differ, by kind."""
        counts = ", ".join(f"count(*) FILTER ({CONDITION[kind]})" for kind in KINDS)
        return dict(zip(KINDS, self._row(f"SELECT {counts} FROM pairs"), strict=True))

    def columns(self) -> dict[str, int]:
        """Column -> changed rows in which it differs."""
        if not self._values:
            return {}
        counts = ", ".join(f"count(*) FILTER (b{n} IS DISTINCT FROM a{n})" for n in self._values.values())
        found = self._row(f"SELECT {counts} FROM pairs WHERE {CONDITION['changed']}")
        return dict(zip(self._values, found, strict=True))

    def samples(self, kind: Kind, limit: int) -> list[Sample]:
        """The first rows of a kind, by their key."""
        order = ", ".join(f"coalesce(b{number}, a{number})" for number in self._keys)
        found = self._duck.sql(f"FROM pairs WHERE {CONDITION[kind]} ORDER BY {order} LIMIT {max(limit, 0)}")
        return [
            Sample(
                kind=kind,
                before=shown(self._side("b", row)) if row["in_before"] else None,
                after=shown(self._side("a", row)) if row["in_after"] else None,
            )
            for row in found.to_arrow_table().to_pylist()
        ]

    def _side(self, side: str, row: dict[str, Any]) -> dict[str, Any]:
        return {column: row[f"{side}{number}"] for column, number in self._cells.items()}

    def _nothing(self, job: BatchJob) -> str:
        """A row of nulls with the types of the table."""
        empty = self._duck.from_arrow(definition(job).columns.empty_table())
        return ", ".join(
            f"NULL::{kind} AS {identifier(name)}" for name, kind in zip(empty.columns, empty.types, strict=True)
        )

    def _row(self, sql: str) -> Sequence[Any]:
        (found,) = self._duck.execute(sql).fetchall()
        return list(found)


def _of_day(log: DeltaLog, day: dt.date) -> list[Path]:
    """The files with the rows of a day."""
    return [
        log.path / path
        for path, entry in sorted(log.files.items())
        if entry.partition_of(path).get(DAY) == day.isoformat()
    ]
