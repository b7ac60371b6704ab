"""The gate: checks tables before anybody relies on them.

`gate` checks the staging tables of a replay against production; `judge` checks the current tables of a pipeline.
Both run the job's suite (Great Expectations, `jobs/quality/<name>.py`) and our own invariants. The caller goes on only
if no verdict blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.later_begin import LaterBegin
from deltaworks.lakehouse.publish.scope import LETTER_SOURCE, ROW_SOURCE, Scope
from deltaworks.lakehouse.sandbox import Limits
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.quality import invariants
from deltaworks.quality.progress import Progress
from deltaworks.quality.table_snapshots import TableSnapshots
from deltaworks.quality.validation import Suites, validate
from deltaworks.quality.verdict import Outcome, Verdict


def gate(
    staging: Path,
    production: Path,
    *,
    schemas: Sequence[TableSchema],
    suites: Suites,
    scope: Scope,
    published: Collection[str] | None = None,
    begin: LaterBegin | None = None,
    order: str = "recorded",
    samples: int = 5,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Checks the tables that a replay wrote.

    Args:
        staging: folder of the replay's tables, which are complete.
        production: folder of the tables that the replay would change.
        schemas: all tables of the pipeline, published or not: rules between tables need both.
        suites: suites of the job; may be empty.
        scope: what the replay has read, and which days it would publish.
        published: names of the tables that it would publish; None: all.
        begin: where the replay began; None: with the first batch.
        order: order of the replay, `recorded` or `time`.
        samples: maximum number of rows that a verdict shows.
        limits: limits of each check in SQL; None: the defaults.

    Returns:
        A verdict per expectation and invariant; publish only if none `blocks`.
    """
    new, old = TableSnapshots.below(staging, schemas), TableSnapshots.below(production, schemas)
    chosen = new.by_name.keys() if published is None else published
    return [
        *validate(_in_step(new, begin), suites, order=order, samples=samples, limits=limits),
        *_missing(new),
        *invariants.alone(new, samples=samples, limits=limits),
        *invariants.of_replay(new, old, scope, chosen, begin, samples=samples, limits=limits),
    ]


def judge(
    tables: Path,
    *,
    schemas: Sequence[TableSchema],
    suites: Suites,
    last_batch: int | None = None,
    progress: Progress | None = None,
    samples: int = 5,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Checks the current tables of a pipeline.

    Args:
        tables: folder of all tables.
        schemas: tables of the pipeline.
        suites: suites of the job; may be empty.
        last_batch: the last batch in the record of a stream that may be running; None: nobody writes.
        progress: of the stream; None: nothing is known.
        samples: maximum number of rows that a verdict shows.
        limits: limits of each check in SQL; None: the defaults.
    """
    opened = TableSnapshots.below(tables, schemas, last_batch)
    return [
        *validate(opened.sources, suites, progress=progress, samples=samples, limits=limits),
        *_missing(opened),
        *invariants.alone(opened, samples=samples, limits=limits),
    ]


def _in_step(tables: TableSnapshots, begin: LaterBegin | None) -> dict[str, Any]:
    """The tables that a suite sees: without rows of records so old that the other topics have no matching ones."""
    sources = tables.sources
    if begin is None or not begin.topics:
        return sources
    since = pa.scalar(begin.since_ms * 1000, pa.int64()).cast(TIMESTAMP)
    for name, table in tables.by_name.items():
        source = {Role.APPEND: ROW_SOURCE, Role.DEAD_LETTERS: LETTER_SOURCE}.get(table.schema.role)
        if source is not None:
            alone = pc.field(source[0]).isin(begin.topics) & (pc.field("timestamp") < since)
            sources[name] = sources[name].filter(~pc.coalesce(alone, pa.scalar(False)))
    return sources


def _missing(tables: TableSnapshots) -> Iterator[Verdict]:
    """Reports missing tables, which nothing else would do without a suite."""
    for name in tables.missing:
        yield Verdict(
            table=name,
            expectation="TableExists",
            expects="the table exists",
            why="The pipeline creates all of its tables before its first batch.",
            severity="critical",
            outcome=Outcome.ERROR,
            rows=None,
            error=f"There is no table '{name}'.",
        )
