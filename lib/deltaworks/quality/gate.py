"""The gate: everything that is known to hold, asked of tables before anybody relies on them.

`gate` judges the staging tables of a replay beside production; `judge` the tables of a pipeline as they are.
Both run the job's suite (Great Expectations, `jobs/quality/<name>.py`) and our own invariants; whoever has the verdicts
goes on only if none of them blocks.
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
    """Judges what a replay wrote.

    Args:
        staging: folder of its tables, which nobody writes any more.
        production: folder of the tables that it would change.
        schemas: all tables of the pipeline, published or not: rules between tables need both.
        suites: of the job; may be empty.
        scope: what the replay has read, and which days it would publish.
        published: names of the tables that it would publish; None: all.
        begin: where the replay began; None: with the first batch.
        order: in which it went, `recorded` or `time`.
        samples: how many rows a verdict shows at most.
        limits: of each check in SQL; None: the defaults.

    Returns:
        A verdict per expectation and invariant; publish only if none of them `blocks`.
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
    samples: int = 5,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Judges tables as they are.

    Args:
        tables: folder of all tables.
        schemas: those of the pipeline.
        suites: of the job; may be empty.
        last_batch: the last batch in the record of a stream that may be running; None: nobody writes.
        samples: how many rows a verdict shows at most.
        limits: of each check in SQL; None: the defaults.
    """
    opened = TableSnapshots.below(tables, schemas, last_batch)
    return [
        *validate(opened.sources, suites, samples=samples, limits=limits),
        *_missing(opened),
        *invariants.alone(opened, samples=samples, limits=limits),
    ]


def _in_step(tables: TableSnapshots, begin: LaterBegin | None) -> dict[str, Any]:
    """As a suite shall see them: without rows of records so old that the other topics have none to go with them."""
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
    """Without a suite, nothing else would say so."""
    for name in tables.missing:
        yield Verdict(
            table=name,
            expectation="TableExists",
            expects="the table is there",
            why="The pipeline creates all of its tables before its first batch.",
            severity="critical",
            outcome=Outcome.ERROR,
            rows=None,
            error=f"There is no table '{name}'.",
        )
