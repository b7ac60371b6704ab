"""The gate on what is damaged, and on what is not."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltaworks.lakehouse.schema import changelog_name
from deltaworks.quality import Outcome, Suites, Verdict, invariants, validate
from deltaworks.quality.gate import gate
from deltaworks.quality.table_snapshots import TableSnapshots
from tests.support.data_defects import Defect, planted
from tests.system.data_defects.run import Run, run

RECORDS = {"fraud": 6_000}
"""Where one record in a hundred gives a row, a run needs more of them."""
PER_BATCH = {"clicks": 12}
"""Where clicks are far apart, partitions must not run away from each other: most clicks would be late."""
IN_ONE_BATCH = 1_000_000_000
"""As `per_batch`: what a stream does that begins long after its topics."""


@dataclass(frozen=True)
class Checked:
    """What became of one defect."""

    defect: Defect
    blocking: tuple[Verdict, ...]
    """Of the damaged tables, as staging beside a clean production."""
    against_the_correction: tuple[Verdict, ...]
    """Of the clean tables, as staging beside a production with this defect."""

    @property
    def caught(self) -> bool:
        """By something that was checked: what could not be checked says nothing about the data."""
        return any(verdict.outcome is Outcome.FAILED for verdict in self.blocking)


def suites_of(job: str) -> Suites:
    suites: Suites = importlib.import_module(f"jobs.quality.{job}").suites
    return suites


def check_defects(
    job: str,
    home: Path,
    defects: Sequence[Defect],
    *,
    records: int | None = None,
    seed: int = 1,
    thorough: bool = False,
) -> Iterator[Checked]:
    """Plants one defect after the other into the tables of one run.

    Args:
        job: name of the pipeline.
        home: an empty folder.
        defects: what to plant.
        records: of the run; None: enough.
        seed: of the run.
        thorough: find everything that catches a defect; else stop at the first.
    """
    made = run(job, home, records=records or RECORDS.get(job, 2_000), seed=seed, per_batch=PER_BATCH.get(job))
    suites = suites_of(job)
    before = blocking(made, made.tables, made.tables, suites)
    assert not before, f"{job} is not clean before anything is planted: {before}"
    clean = TableSnapshots.below(made.tables, made.schemas)
    for each in defects:
        with planted(made.tables, made.names, each):
            changed = [schema for schema in made.schemas if schema.name in each.tables]
            damaged = TableSnapshots({**clean.by_name, **TableSnapshots.below(made.tables, changed).by_name}, ())
            found: list[Verdict] = []
            for verdicts in _what_can_see(each, damaged, clean, suites, made):
                found += [verdict for verdict in verdicts if verdict.blocks]
                if found and not thorough:
                    break
            correction = invariants.of_replay(clean, damaged, made.scope, each.tables)
        yield Checked(each, tuple(found), tuple(verdict for verdict in correction if verdict.blocks))


def _what_can_see(
    planted: Defect, damaged: TableSnapshots, clean: TableSnapshots, suites: Suites, made: Run
) -> Iterator[list[Verdict]]:
    """The parts of the gate, the fast ones first: rules in SQL, invariants, and Great Expectations on pandas."""
    concerned = about(suites, planted.tables)
    yield validate(damaged.sources, _chosen(concerned, in_sql=True), order="recorded", samples=2)
    snapshots = {name for name in damaged.by_name if changelog_name(name) in planted.tables}
    names = {*planted.tables, *snapshots, *map(changelog_name, planted.tables)}
    part = TableSnapshots({name: table for name, table in damaged.by_name.items() if name in names}, ())
    yield invariants.alone(part, samples=2)
    yield invariants.of_replay(damaged, clean, made.scope, planted.tables, samples=2)
    yield validate(damaged.sources, _chosen(concerned, in_sql=False), order="recorded", samples=2)


def _chosen(suites: Suites, *, in_sql: bool) -> Suites:
    chosen = {table: [each for each in suite if _is_sql(each) is in_sql] for table, suite in suites.items()}
    return {table: suite for table, suite in chosen.items() if suite}


def _text_of(expectation: object) -> str:
    """Where an expectation names other tables."""
    return f"{getattr(expectation, 'unexpected_rows_query', '')} {getattr(expectation, 'other', '')}"


def _is_sql(expectation: object) -> bool:
    return hasattr(expectation, "unexpected_rows_query")


def check_clean(job: str, home: Path, *, records: int, seed: int, per_batch: int | None = None) -> tuple[Verdict, ...]:
    """What would stop a run without defects."""
    made = run(job, home, records=records, seed=seed, per_batch=per_batch)
    return blocking(made, made.tables, made.tables, suites_of(job))


def blocking(made: Run, staging: Path, production: Path, suites: Suites) -> tuple[Verdict, ...]:
    """The verdicts that stop a publish."""
    verdicts = gate(
        staging, production, schemas=made.schemas, suites=suites, scope=made.scope, published=made.names, samples=2
    )
    return tuple(verdict for verdict in verdicts if verdict.blocks)


def about(suites: Suites, tables: Collection[str]) -> Suites:
    """The expectations that can see one of the tables; what the others say does not change."""
    mentioned = re.compile("|".join(rf"\b{re.escape(table)}\b" for table in tables))
    seen = {
        table: [expectation for expectation in suite if table in tables or mentioned.search(_text_of(expectation))]
        for table, suite in suites.items()
    }
    return {table: suite for table, suite in seen.items() if suite}
