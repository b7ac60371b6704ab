"""The gate on what is damaged, and on what is not."""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltaworks.quality import Outcome, Suites, Verdict
from deltaworks.quality.gate import gate
from tests.planted_defects.defect import Defect, planted
from tests.planted_defects.run import Run, run


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


def check_defects(job: str, home: Path, defects: Sequence[Defect], *, records: int, seed: int) -> Iterator[Checked]:
    """Plants one defect after the other into the tables of one run."""
    made = run(job, home, records=records, seed=seed)
    clean = home / "production"
    shutil.copytree(made.tables, clean)
    suites = suites_of(job)
    before = blocking(made, made.tables, clean, suites)
    assert not before, f"{job} is not clean before anything is planted: {before}"
    for each in defects:
        with planted(made.tables, made.names, each):
            found = blocking(made, made.tables, clean, about(suites, each.tables))
            correction = blocking(made, clean, made.tables, {})
        yield Checked(each, found, correction)


def check_clean(job: str, home: Path, *, records: int, seed: int) -> tuple[Verdict, ...]:
    """What would stop a run without defects."""
    made = run(job, home, records=records, seed=seed)
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
        table: [
            expectation
            for expectation in suite
            if table in tables or mentioned.search(str(getattr(expectation, "unexpected_rows_query", "")))
        ]
        for table, suite in suites.items()
    }
    return {table: suite for table, suite in seen.items() if suite}
