"""The short version of `python -m tests.system.data_defects`: each kind of defect in some job, a clean run of each."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.data_defects import Defect, planted
from tests.system.data_defects.checking import IN_ONE_BATCH, RECORDS, blocking, check_clean, check_defects, suites_of
from tests.system.data_defects.defects import DEFECTS
from tests.system.data_defects.run import run

KINDS = (
    "state lost",
    "lost",
    "twice",
    "shifted",
    "wrong join",
    "stale",
    "one bad partition",
    "truncated day",
    "wrong rounding",
    "wrong limit",
    "key mixed up",
    "late",
    "premature",
    "never final",
    "not merged",
    "set aside",
)
"""Words in the names of defects; the first one counts."""
SEED = 1
FEW = 600


def spread(seed: int) -> Mapping[str, Sequence[Defect]]:
    """Job -> two of its defects or more: one of each kind, the kinds spread evenly over the jobs."""
    rng = random.Random(seed)
    chosen: dict[str, list[Defect]] = {job: [] for job in DEFECTS}
    for kind in KINDS:
        of_kind = {job: [each for each in DEFECTS[job] if kind_of(each) == kind] for job in DEFECTS}
        job = min((job for job in DEFECTS if of_kind[job]), key=lambda job: (len(chosen[job]), rng.random()))
        chosen[job].append(rng.choice(of_kind[job]))
    for job, some in chosen.items():
        rest = [each for each in DEFECTS[job] if each not in some]
        some.extend(rng.sample(rest, max(0, 2 - len(some))))
    return chosen


def kind_of(defect: Defect) -> str | None:
    return next((kind for kind in KINDS if kind in defect.name), None)


@pytest.mark.parametrize(("job", "defects"), spread(SEED).items(), ids=DEFECTS)
def test_defects_are_caught_and_their_correction_is_not_refused(
    job: str, defects: Sequence[Defect], tmp_path: Path
) -> None:
    checked = list(check_defects(job, tmp_path, defects, records=max(FEW, RECORDS.get(job, 0))))

    assert len(checked) >= 2
    assert [each.defect.name for each in checked if not each.caught] == []
    assert [each.defect.name for each in checked if each.against_the_correction] == []


@pytest.mark.parametrize("job", DEFECTS)
def test_a_run_without_defects_passes_also_in_one_batch(job: str, tmp_path: Path) -> None:
    assert check_clean(job, tmp_path, records=FEW, seed=5, per_batch=IN_ONE_BATCH) == ()


def test_the_whole_gate_stops_a_defect_and_lets_its_correction_through(tmp_path: Path) -> None:
    made = run("invoices", tmp_path, records=FEW, seed=3)
    clean = shutil.copytree(made.tables, tmp_path / "clean")
    (lost,) = [each for each in DEFECTS["invoices"] if each.name == "one bad partition: its items are not there"]
    suites = suites_of("invoices")

    with planted(made.tables, made.names, lost):
        assert "what is credited was sold" in str(blocking(made, made.tables, clean, suites))
        assert blocking(made, clean, made.tables, suites) == ()


@pytest.mark.parametrize("job", DEFECTS)
def test_every_job_has_defects_of_every_table(job: str) -> None:
    names = [each.name for each in DEFECTS[job]]

    assert len(names) == len(set(names)) >= 12
    assert {table for each in DEFECTS[job] for table in each.tables} == suites_of(job).keys()
