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
from jobs.deliveries import pipeline
from jobs.quality.deliveries import suites
from jobs.sample_data.deliveries import MAIN_TOPIC, records
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
LAST = "(SELECT max(source_offset) FROM deliveries_scans WHERE source_partition = 1)"
CHANGELOG = "deliveries_parcels_changelog"


@pytest.mark.parametrize(
    ("name", "statement", "rule"),
    [
        ("deliveries_scans", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "source_topic source_partition source_offset"),
        ("deliveries_scans", f"UPDATE {{}} SET fee = NULL WHERE {ONE}", "fee values must never be null"),
        ("deliveries_scans", f"UPDATE {{}} SET scan_id = '7' WHERE {ONE}", "scan_id values must match"),
        ("deliveries_scans", f"UPDATE {{}} SET status = 'lost' WHERE {ONE}", "status values must belong"),
        (
            "deliveries_scans",
            f"UPDATE {{}} SET scanned_at = scanned_at + INTERVAL 1 MILLISECOND WHERE {ONE}",
            "scanned_at and timestamp must always be equal",
        ),
        (
            "deliveries_scans",
            f"UPDATE {{}} SET destination = {{'country': 'NL', 'city': NULL}} WHERE {ONE}",
            "has both of its parts",
        ),
        ("deliveries_scans", "UPDATE {} SET status = 'unknown' WHERE status = 'accepted'", "that the job knows"),
        ("deliveries_scans", "UPDATE {} SET fee = 0", "fees are there"),
        (CHANGELOG, f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "parcel_id batch_id"),
        (CHANGELOG, f"UPDATE {{}} SET op = 'delete' WHERE {ONE}", "op values must belong to this set"),
        (CHANGELOG, f"UPDATE {{}} SET scans = scans + 1 WHERE {ONE}", "what its scans say"),
        (CHANGELOG, f"UPDATE {{}} SET fees = fees + 0.01 WHERE {ONE}", "what its scans say"),
        (
            CHANGELOG,
            f"UPDATE {{}} SET scanned_at = scanned_at - INTERVAL 1 SECOND WHERE {ONE}",
            "what its scans say",
        ),
        (
            CHANGELOG,
            f"UPDATE {{}} SET destination = {{'country': 'NL', 'city': 'Gouda'}} WHERE {ONE}",
            "those of a scan",
        ),
        ("deliveries_parcels", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "parcel_id values must be unique"),
        ("deliveries_parcels", f"UPDATE {{}} SET fees = fees + 1 WHERE {ONE}", "as the changelog says"),
        ("deliveries_parcels", f"DELETE FROM {{}} WHERE {ONE}", "missing or behind"),
        ("deliveries_parcels", f"DELETE FROM {{}} WHERE {ONE}", "has all of its scans"),
        ("deliveries_dead_letters", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "topic partition offset"),
        ("deliveries_dead_letters", f"UPDATE {{}} SET operator = 'parcel-of' WHERE {ONE}", "does not decode"),
        ("deliveries_dead_letters", f"UPDATE {{}} SET value = NULL WHERE {ONE}", "value values must never be null"),
        (
            "deliveries_dead_letters",
            f'UPDATE {{}} SET "partition" = 1, "offset" = {LAST} WHERE {ONE}',
            "set aside or in its table",
        ),
        (
            "deliveries_dead_letters",
            'INSERT INTO {} SELECT {}.* REPLACE ("offset" + 10000 * n AS "offset") FROM {}, range(1, 5) t(n)',
            "dead letters are rare",
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
