"""The suite passes on what the job writes, and finds what somebody breaks."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from deltaworks.quality import Outcome, validate
from deltaworks.testing.recorded import run_recorded
from jobs.fraud import pipeline
from jobs.quality.fraud import suites
from jobs.sample_data.fraud import MAIN_TOPIC, records
from jobs.sample_data.kafka import MINUTE
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


@pytest.fixture(scope="module")
def clean() -> Tables:
    rows = rows_of(records(5_000))
    cuts = random_cuts(rows, batches=20, rng=random.Random(0))
    batches = micro_batches(rows, cuts, clock=[number * MINUTE for number in range(20)])
    return tables_of(pipeline, run_recorded(pipeline.plan(), {MAIN_TOPIC: 4}, batches, errors=pipeline.errors), cuts)


def test_what_the_job_writes_passes(clean: Tables) -> None:
    verdicts = validate(clean, suites)

    assert [(v.table, v.expects, v.error, v.sample) for v in verdicts if not v.passed] == []
    assert all(verdict.why and verdict.rows for verdict in verdicts)


HIGH, BURST, GEO = (f"rule = '{rule}'" for rule in ("HIGH_AMOUNT", "HIGH_VELOCITY", "GEO_ANOMALY"))


def first(condition: str) -> str:
    return f"rowid = (SELECT min(rowid) FROM {{}} WHERE {condition})"


@pytest.mark.parametrize(
    ("name", "statement", "found_by"),
    [
        ("fraud_alerts", "DELETE FROM {}", "there are alerts where"),
        (
            "fraud_alerts",
            f"INSERT INTO {{}} SELECT * FROM {{}} WHERE {first(BURST)}",
            "ExpectCompoundColumnsToBeUnique",
        ),
        ("fraud_alerts", f"UPDATE {{}} SET total = NULL WHERE {first(HIGH)}", "ExpectColumnValuesToNotBeNull"),
        ("fraud_alerts", f"UPDATE {{}} SET rule = 'UGLY' WHERE {first(GEO)}", "ExpectColumnValuesToBeInSet"),
        ("fraud_alerts", f"UPDATE {{}} SET amount = amount / 9 WHERE {first(HIGH)}", "what HIGH_AMOUNT says"),
        ("fraud_alerts", f"UPDATE {{}} SET payments = 4 WHERE {first(HIGH)}", "what HIGH_AMOUNT says"),
        ("fraud_alerts", f"UPDATE {{}} SET country = last_country WHERE {first(GEO)}", "what GEO_ANOMALY says"),
        ("fraud_alerts", f"UPDATE {{}} SET last_ms = 7 WHERE {first(GEO)}", "what GEO_ANOMALY says"),
        ("fraud_alerts", f"UPDATE {{}} SET in_five_minutes = 4 WHERE {first(BURST)}", "what HIGH_VELOCITY says"),
        ("fraud_alerts", f"UPDATE {{}} SET last_country = 'XX' WHERE {first(HIGH)}", "breaks GEO_ANOMALY and another"),
        ("fraud_alerts", f"UPDATE {{}} SET country = 'fr' WHERE {first(GEO)}", "ExpectColumnValuesToMatchRegex"),
        ("fraud_alerts", f"UPDATE {{}} SET amount = amount + 0.000001 WHERE {first(HIGH)}", "whole cents"),
        ("fraud_alerts", f"UPDATE {{}} SET total = 0 WHERE {first(BURST)}", "empty or whole"),
        ("fraud_alerts", f"UPDATE {{}} SET in_five_minutes = payments + 2 WHERE {first(BURST)}", "seen every payment"),
        ("fraud_alerts", f"UPDATE {{}} SET source_offset = 7 WHERE {first(BURST)}", "come from the clock"),
        ("fraud_alerts", f"UPDATE {{}} SET source_topic = '' WHERE {first(HIGH)}", "come from the clock"),
        ("fraud_alerts", f"UPDATE {{}} SET total = 1000000 + rowid WHERE {BURST} AND rowid % 2 = 0", "sum grows"),
        (
            "fraud_alerts",
            "DELETE FROM {} WHERE timestamp > (SELECT max(timestamp) FROM {}) - INTERVAL 3 DAY",
            "as long as there are payments",
        ),
        (
            "fraud_alerts",
            f"UPDATE {{}} SET payments = 7, total = 7.01, last_ms = 7, user_id = 'u-001' WHERE {HIGH}",
            "never find the same profile",
        ),
        (
            "fraud_alerts",
            f"INSERT INTO {{}} SELECT * REPLACE ('GEO_ANOMALY' AS rule, amount + 1 AS amount) FROM {{}} WHERE {HIGH}",
            "alerts of one payment say the same",
        ),
        ("fraud_alerts", f"UPDATE {{}} SET user_id = 'u-001' WHERE {HIGH}", "in one partition"),
        ("fraud_alerts", "UPDATE {} SET total = trunc(total)", "sums have cents"),
        ("fraud_alerts", f"DELETE FROM {{}} WHERE {GEO}", "every rule has its alerts"),
        ("fraud_dead_letters", "INSERT INTO {} SELECT * FROM {} LIMIT 1", "ExpectCompoundColumnsToBeUnique"),
        ("fraud_dead_letters", "UPDATE {} SET message = NULL WHERE rowid = 3", "ExpectColumnValuesToNotBeNull"),
        ("fraud_dead_letters", "UPDATE {} SET error_class = 'KeyError' WHERE rowid = 3", "where the pipeline can fail"),
        (
            "fraud_dead_letters",
            "UPDATE {} SET key = 'u-001'::BLOB WHERE TRY(decode(key)) IS NULL",
            "no readable key",
        ),
        (
            "fraud_dead_letters",
            """UPDATE {} SET value = '{"payment_id":"p","amount":"1.00","country":"DE"}'::BLOB WHERE rowid = 3""",
            "no good payment",
        ),
    ],
)
def test_what_somebody_breaks_is_found(clean: Tables, name: str, statement: str, found_by: str) -> None:
    suite = [each for each in suites[name] if found_by in f"{type(each).__name__} {getattr(each, 'description', '')}"]

    verdicts = validate(damaged(clean, name, statement), {name: suite})

    assert Outcome.FAILED in [verdict.outcome for verdict in verdicts]


def test_a_payment_that_was_judged_and_set_aside_is_found(clean: Tables) -> None:
    alerts = clean["fraud_alerts"].filter(pa.compute.equal(clean["fraud_alerts"]["source_topic"], "payments"))
    partition, offset = (alerts[column][0].as_py() for column in ("source_partition", "source_offset"))
    statement = f'UPDATE {{}} SET "partition" = {partition}, "offset" = {offset} WHERE rowid = 3'

    verdicts = validate(damaged(clean, "fraud_dead_letters", statement), suites)

    assert [v.expects for v in verdicts if not v.passed] == ["a payment is judged or set aside"]
