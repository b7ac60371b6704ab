"""The gate: everything that is known to hold, asked of tables before anybody relies on them.

`gate` judges the staging tables of a replay beside production; `judge` the tables of a pipeline as they are.
Both run the job's suite (Great Expectations, `jobs/quality/<name>.py`) and our own invariants; whoever has the verdicts
goes on only if none of them blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.scope import Scope
from deltaworks.quality import invariants
from deltaworks.quality.opened import OpenedTables
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
    complete_from_ms: int | None = None,
    samples: int = 5,
) -> list[Verdict]:
    """Judges what a replay wrote.

    Args:
        staging: folder of its tables, which nobody writes any more.
        production: folder of the tables that it would change.
        schemas: all tables of the pipeline, published or not: rules between tables need both.
        suites: of the job; may be empty.
        scope: what the replay has read, and which days it would publish.
        published: names of the tables that it would publish; None: all.
        complete_from_ms: earlier days were not read whole; None: all were.
        samples: how many rows a verdict shows at most.

    Returns:
        A verdict per expectation and invariant; publish only if none of them `blocks`.
    """
    new, old = OpenedTables.below(staging, schemas), OpenedTables.below(production, schemas)
    chosen = new.by_name.keys() if published is None else published
    return [
        *validate(new.sources, suites, samples=samples),
        *_missing(new),
        *invariants.alone(new, samples=samples),
        *invariants.of_replay(new, old, scope, chosen, complete_from_ms, samples=samples),
    ]


def judge(
    tables: Path,
    *,
    schemas: Sequence[TableSchema],
    suites: Suites,
    last_batch: int | None = None,
    samples: int = 5,
) -> list[Verdict]:
    """Judges tables as they are.

    Args:
        tables: folder of all tables.
        schemas: those of the pipeline.
        suites: of the job; may be empty.
        last_batch: the last batch in the record of a stream that may be running; None: nobody writes.
        samples: how many rows a verdict shows at most.
    """
    opened = OpenedTables.below(tables, schemas, last_batch)
    return [
        *validate(opened.sources, suites, samples=samples),
        *_missing(opened),
        *invariants.alone(opened, samples=samples),
    ]


def _missing(tables: OpenedTables) -> Iterator[Verdict]:
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
