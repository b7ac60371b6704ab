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
from jobs.clicks import pipeline
from jobs.quality.clicks import suites
from jobs.sample_data.clicks import MAIN_TOPIC, records
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
        ("clicks_visits", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "user_id window_start"),
        ("clicks_visits", "UPDATE {} SET clicks = 2 * clicks", "the clicks that the pages have"),
        ("clicks_visits", "DELETE FROM {} WHERE user_id <> 'bot'", "clicks of each day are in its visits"),
        ("clicks_visits", f"UPDATE {{}} SET user_id = '' WHERE {ONE}", "1 characters long"),
        ("clicks_visits", f"UPDATE {{}} SET clicks = NULL WHERE {ONE}", "clicks values must never be null"),
        ("clicks_visits", "UPDATE {} SET clicks = 1 WHERE user_id = 'bot'", "enough clicks for the duration"),
        (
            "clicks_visits",
            f"UPDATE {{}} SET clicks = 0 WHERE {ONE}",
            "clicks values must be greater than or equal to 1",
        ),
        ("clicks_visits", f"UPDATE {{}} SET duration_ms = duration_ms + 1 WHERE {ONE}", "the duration is from"),
        (
            "clicks_visits",
            "UPDATE {} SET ended = started WHERE user_id = 'bot'",
            "ended and window_end must always be equal",
        ),
        ("clicks_visits", "UPDATE {} SET last_page = '/elsewhere' WHERE clicks = 1", "a visit of one click"),
        ("clicks_visits", f"UPDATE {{}} SET first_page = 'item 1' WHERE {ONE}", "first_page values must match"),
        (
            "clicks_visits",
            f"UPDATE {{}} SET window_end = window_start + INTERVAL 25 HOUR WHERE {ONE}",
            "no session is longer than 1 day",
        ),
        (
            "clicks_visits",
            "UPDATE {} SET window_start = window_start - INTERVAL 50 MINUTE WHERE user_id = 'bot'",
            "do not overlap",
        ),
        ("clicks_visits", "UPDATE {} SET is_final = true", "final sessions ended"),
        (
            "clicks_visits",
            "DELETE FROM {} WHERE timestamp > (SELECT max(timestamp) FROM {}) - INTERVAL 3 HOUR",
            "of the last hour",
        ),
        ("clicks_late", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "source_topic source_partition source_offset"),
        (
            "clicks_late",
            f"UPDATE {{}} SET behind_ms = 1799999 WHERE {ONE}",
            "behind_ms values must be greater than or equal",
        ),
        (
            "clicks_late",
            f"UPDATE {{}} SET behind_ms = behind_ms + 864000000 WHERE {ONE}",
            "later than the newest visit",
        ),
        ("clicks_late", f"UPDATE {{}} SET user_id = NULL WHERE {ONE}", "user_id values must never be null"),
        ("clicks_late", f"UPDATE {{}} SET request_id = '' WHERE {ONE}", "request_id values must match"),
        ("clicks_pages", f"UPDATE {{}} SET clicks = 0 WHERE {ONE}", "clicks values must be greater than or equal to 1"),
        ("clicks_pages", f"UPDATE {{}} SET window_date = window_date + 1 WHERE {ONE}", "window_date is the day"),
        ("clicks_pages", f"UPDATE {{}} SET page = NULL WHERE {ONE}", "page values must never be null"),
        ("clicks_dead_letters", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "topic partition offset"),
        (
            "clicks_dead_letters",
            f"UPDATE {{}} SET error_class = 'KeyError' WHERE {ONE}",
            "what is set aside does not decode",
        ),
        (
            "clicks_dead_letters",
            'INSERT INTO {} SELECT {}.* REPLACE (-"offset" - n AS "offset") FROM {}, range(1, 9) t(n)',
            "are rare",
        ),
    ],
)
def test_a_defect_is_found_by_its_rule(
    clean: Tables, rules: dict[tuple[str, str], Expectation | Check], name: str, statement: str, rule: str
) -> None:
    (expectation,) = [found for (table, expects), found in rules.items() if table == name and rule in expects]

    (verdict,) = validate(damaged(clean, name, statement), {name: [expectation]})

    assert verdict.outcome is Outcome.FAILED, verdict.error
    assert verdict.unexpected and verdict.sample
