"""The suite passes on what the job writes, and each planted defect is found by the rule that is there for it."""

from __future__ import annotations

import random
from itertools import chain

import pyarrow as pa
import pytest
from great_expectations.expectations.expectation import Expectation

from deltaworks.quality import Outcome, validate
from deltaworks.quality.checks import Check
from deltaworks.testing.recorded import run_recorded
from jobs.quality.wordcount import suites
from jobs.sample_data.wordcount import MAIN_TOPIC, records
from jobs.wordcount import pipeline
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


def written_by_the_job(count: int, batches: int, seed: int) -> Tables:
    rows = rows_of(records(count, seed))
    cuts = random_cuts(rows, batches, random.Random(seed))
    recording = run_recorded(pipeline.plan(), {MAIN_TOPIC: 4}, micro_batches(rows, cuts), errors=pipeline.errors)
    return tables_of(pipeline, recording, cuts)


@pytest.fixture(scope="module")
def clean() -> Tables:
    return written_by_the_job(2_000, batches=12, seed=1)


@pytest.mark.parametrize(("count", "batches", "seed"), [(1_500, 1, 2), (4_000, 20, 4)])
def test_what_the_job_writes_passes(count: int, batches: int, seed: int) -> None:
    tables = written_by_the_job(count, batches, seed)

    verdicts = validate(tables, suites)

    assert [(v.table, v.expects, v.error, v.sample) for v in verdicts if not v.passed] == []
    assert suites.keys() == tables.keys()
    assert [verdict.expects for verdict in verdicts if not verdict.why or not verdict.rows] == []


@pytest.fixture(scope="module")
def rules(clean: Tables) -> dict[tuple[str, str], Expectation | Check]:
    """Table and what is expected in words -> an expectation, which the tables meet as they are."""
    verdicts = validate(clean, suites)
    assert all(verdict.passed for verdict in verdicts)
    return {(v.table, v.expects): e for v, e in zip(verdicts, chain(*suites.values()), strict=True)}


ONE = "rowid = (SELECT min(rowid) FROM {})"
FINAL = "rowid = (SELECT min(rowid) FROM {} WHERE is_final)"


@pytest.mark.parametrize(
    ("name", "statement", "rule"),
    [
        ("wordcount_counts", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "word values must be unique"),
        ("wordcount_counts", "UPDATE {} SET word = upper(word) WHERE word = 'the'", "in one spelling"),
        ("wordcount_counts", "UPDATE {} SET word = 'the,' WHERE word = 'the'", "in one spelling"),
        ("wordcount_counts", f"UPDATE {{}} SET word = '' WHERE {ONE}", "1 characters long"),
        ("wordcount_counts", f"UPDATE {{}} SET count = count + 1 WHERE {ONE}", "as the changelog says"),
        ("wordcount_counts", "DELETE FROM {} WHERE word = 'the'", "missing or behind"),
        ("wordcount_counts_changelog", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "word batch_id"),
        (
            "wordcount_counts_changelog",
            f"UPDATE {{}} SET count = 0 WHERE {ONE}",
            "values must be greater than or equal to 1",
        ),
        (
            "wordcount_counts_changelog",
            f"UPDATE {{}} SET op = 'delete' WHERE {ONE}",
            "op values must belong to this set",
        ),
        ("wordcount_counts_changelog", "UPDATE {} SET batch_id = -batch_id", "counts only grow"),
        (
            "wordcount_counts_changelog",
            "UPDATE {} SET source_offset = 7",
            "source_topic source_partition source_offset",
        ),
        ("wordcount_hours", f"UPDATE {{}} SET count = count + 1000 WHERE {ONE}", "no more in its hours than in all"),
        (
            "wordcount_hours",
            f"UPDATE {{}} SET window_end = window_end + INTERVAL 1 HOUR WHERE {ONE}",
            "windows are 1:00:00 long",
        ),
        ("wordcount_hours", "UPDATE {} SET is_final = true", "final windows ended 0:10:00 or more"),
        (
            "wordcount_hours",
            "UPDATE {} SET count = count + 20 WHERE is_final AND word IN ('of', 'and')",
            "counted in their time",
        ),
        ("wordcount_hours", "DELETE FROM {} WHERE word = 'the'", "surely on time is in its hour"),
        (
            "wordcount_hours",
            "DELETE FROM {} WHERE timestamp > (SELECT max(timestamp) FROM {}) - INTERVAL 1 HOUR",
            "the newest word",
        ),
        ("wordcount_dead_letters", f"UPDATE {{}} SET value = 'text'::BLOB WHERE {ONE}", "no UTF-8"),
        ("wordcount_dead_letters", f"UPDATE {{}} SET operator = 'words' WHERE {ONE}", "no UTF-8"),
        ("wordcount_dead_letters", f"UPDATE {{}} SET value = NULL WHERE {ONE}", "value values must never be null"),
    ],
)
def test_a_defect_is_found_by_its_rule(
    clean: Tables, rules: dict[tuple[str, str], Expectation | Check], name: str, statement: str, rule: str
) -> None:
    (expectation,) = [found for (table, expects), found in rules.items() if table == name and rule in expects]

    (verdict,) = validate(damaged(clean, name, statement), {name: [expectation]})

    assert verdict.outcome is Outcome.FAILED, verdict.error
    assert verdict.unexpected and verdict.sample
