"""The suite of every job gives the same verdicts on tables that fit as data frames and on tables that do not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.lakehouse.sandbox import Limits
from deltaworks.quality import parts, validate
from deltaworks.quality.table_snapshots import TableSnapshots
from tests.support.data_defects import planted
from tests.system.data_defects.checking import RECORDS, suites_of
from tests.system.data_defects.defects import DEFECTS
from tests.system.data_defects.run import run

FEW = 600
PART_ROWS = 40


@pytest.mark.slow
@pytest.mark.parametrize("job", DEFECTS)
def test_suites_of_jobs_do_not_depend_on_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    monkeypatch.setattr(parts, "ROWS", PART_ROWS)
    made, suites = run(job, tmp_path, records=RECORDS.get(job, FEW), seed=1), suites_of(job)
    failed = 0

    for defect in random.Random(1).sample(list(DEFECTS[job]), 3):
        with planted(made.tables, made.names, defect):
            sources = TableSnapshots.below(made.tables, made.schemas).sources
            whole, divided = (validate(sources, suites, limits=Limits(frame_mb=size)) for size in (10_000, 0))
        for one, other in zip(whole, divided, strict=True):
            if one.expectation == "UnexpectedRowsExpectation":  # DuckDB on both ways, and in any order
                one, other = replace(one, sample=()), replace(other, sample=())
            assert other == one
        failed += sum(bool(verdict.sample) for verdict in whole)

    assert failed, "defects make samples to compare"
