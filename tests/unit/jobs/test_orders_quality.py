"""The suite passes on what the job writes, and each planted defect is found by the rule that is there for it."""

from __future__ import annotations

import random
from itertools import chain

import pyarrow as pa
import pytest
from great_expectations.expectations.expectation import Expectation

from deltaworks.quality import Outcome, Verdict, validate
from deltaworks.quality.checks import Check
from deltaworks.testing.recorded import run_recorded
from jobs.orders import pipeline
from jobs.quality.orders import suites
from jobs.sample_data.orders import records
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


def written_by_the_job(count: int, batches: int, seed: int) -> Tables:
    rows = rows_of(records(count, seed))
    cuts = random_cuts(rows, batches, random.Random(seed))
    recording = run_recorded(
        pipeline.plan(), {"raw-orders": 4, "user-data": 4}, micro_batches(rows, cuts), errors=pipeline.errors
    )
    return tables_of(pipeline, recording, cuts)


@pytest.fixture(scope="module")
def clean() -> Tables:
    return written_by_the_job(3_000, batches=12, seed=1)


@pytest.mark.parametrize(("count", "batches", "seed"), [(2_000, 1, 2), (5_000, 20, 4)])
def test_what_the_job_writes_passes(count: int, batches: int, seed: int) -> None:
    tables = written_by_the_job(count, batches, seed)

    verdicts = validate(tables, suites)

    assert [(v.table, v.expects, v.error, v.sample) for v in verdicts if not v.passed] == []
    assert suites.keys() == tables.keys() == {verdict.table for verdict in verdicts}
    assert [verdict.expects for verdict in verdicts if not verdict.why or not verdict.rows] == []


ONE = "(SELECT min(rowid) FROM {})"
FINAL = "(SELECT min(rowid) FROM {} WHERE is_final)"
OF_A_MERGE = "(SELECT max(rowid) FROM {} WHERE orders > 2 AND NOT is_final)"
DEFECTS = [
    ("enriched_orders", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: source_topic"),
    ("enriched_orders", f"UPDATE {{}} SET user_name = NULL WHERE rowid = {ONE}", "user_name values must never be null"),
    ("enriched_orders", f"UPDATE {{}} SET type = 'GOLD' WHERE rowid = {ONE}", "type values must belong to this set"),
    ("enriched_orders", f"UPDATE {{}} SET amount = -amount WHERE rowid = {ONE}", "positive and whole cents"),
    ("enriched_orders", f"UPDATE {{}} SET amount = amount + 0.000000000000000001 WHERE rowid = {ONE}", "whole cents"),
    ("enriched_orders", "UPDATE {} SET user_country = user_name", "user_country values must match"),
    ("enriched_orders", "UPDATE {} SET user_name = 'Ada 1', user_country = 'DE'", "orders know their users"),
    ("enriched_orders", f"UPDATE {{}} SET city = upper(city) WHERE rowid = {ONE}", "COUNTRY/City, taken apart"),
    ("enriched_orders", "UPDATE {} SET event_time = event_time + INTERVAL 1 HOUR", "event_time and timestamp"),
    (
        "enriched_orders",
        (
            "UPDATE {} SET amount = amount + 1 WHERE rowid = (SELECT max(rowid) FROM {} GROUP BY order_id "
            "HAVING count(*) > 1 LIMIT 1)"
        ),
        "deliveries of an order are equal",
    ),
    ("order_counts", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: user_id window_start"),
    ("order_counts", f"DELETE FROM {{}} WHERE rowid = {FINAL}", "final counts are those"),
    ("order_counts", f"UPDATE {{}} SET orders = orders - 1 WHERE rowid = {FINAL}", "final counts are those"),
    ("order_counts", f"UPDATE {{}} SET window_start = window_start + INTERVAL 1 MINUTE WHERE rowid = {ONE}", "1:00:00"),
    (
        "order_counts",
        f"UPDATE {{}} SET window_end = timestamp WHERE rowid = {ONE}",
        "window_end must always be greater",
    ),
    ("order_counts", f"UPDATE {{}} SET window_date = window_date + 1 WHERE rowid = {ONE}", "window_date is the day"),
    ("order_counts", "UPDATE {} SET is_final = true", "final windows ended 0:05:00 or more before"),
    ("order_counts", "DELETE FROM {} WHERE timestamp >= (SELECT max(timestamp) FROM {})", "newest order"),
    ("user_revenue", f"UPDATE {{}} SET revenue = -revenue WHERE rowid = {ONE}", "revenue is positive"),
    ("user_revenue", f"UPDATE {{}} SET revenue = revenue + 0.01 WHERE rowid = {FINAL}", "final revenue is that"),
    ("user_revenue", f"UPDATE {{}} SET revenue = NULL WHERE rowid = {ONE}", "revenue values must never be null"),
    ("user_revenue", f"UPDATE {{}} SET user_id = user_id || ' ' WHERE rowid = {FINAL}", "final revenue is that"),
    (
        "user_sessions",
        (
            f"INSERT INTO {{}} SELECT * REPLACE (window_end - INTERVAL 1 MINUTE AS window_start) FROM {{}} "
            f"WHERE rowid = {OF_A_MERGE}"
        ),
        "sessions of a key do not overlap",
    ),
    (
        "user_sessions",
        (
            "INSERT INTO {} SELECT * REPLACE (window_end + INTERVAL 29 MINUTE AS window_start, "
            f"window_end + INTERVAL 29 MINUTE AS window_end) FROM {{}} WHERE rowid = {OF_A_MERGE}"
        ),
        "open ones are more than 0:30:00 apart",
    ),
    (
        "user_sessions",
        f"UPDATE {{}} SET user_id = 'u-900' WHERE rowid = {ONE}",
        "begins and ends with an order of its user",
    ),
    ("user_sessions", f"UPDATE {{}} SET orders = orders + 100 WHERE rowid = {ONE}", "no more orders than lie between"),
    ("user_sessions", "DELETE FROM {} WHERE rowid = (SELECT max_by(rowid, timestamp) FROM {})", "of the last hour"),
    ("user_sessions", "DELETE FROM {} WHERE rowid % 4 = 0", "sum of orders is that of the rows"),
    ("users_changelog", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: user_id batch_id"),
    ("users_changelog", "UPDATE {} SET op = 'update' WHERE op = 'upsert'", "op values must belong to this set"),
    (
        "users_changelog",
        "UPDATE {} SET name = 'Ada 1' WHERE op = 'delete'",
        "If op == delete, then name values must be",
    ),
    (
        "users_changelog",
        "UPDATE {} SET name = NULL WHERE op = 'upsert'",
        "If op == upsert, then name values must never",
    ),
    ("users_changelog", "UPDATE {} SET batch_id = -batch_id", "later batches have later records"),
    (
        "users",
        (
            "INSERT INTO {} SELECT * EXCLUDE op FROM users_changelog WHERE op = 'upsert' "
            "AND user_id NOT IN (SELECT user_id FROM {}) LIMIT 1"
        ),
        "as of that change",
    ),
    (
        "users",
        "DELETE FROM {} WHERE batch_id = 0 AND user_id = (SELECT min(user_id) FROM {} WHERE batch_id = 0)",
        "as of that",
    ),
    ("users", f"UPDATE {{}} SET name = 'Ada 1000' WHERE rowid = {ONE}", "each user is as the changelog says"),
    ("users", f"UPDATE {{}} SET user_id = 'u-900' WHERE rowid = {ONE}", "each user is as the changelog says"),
    ("dead_letters", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: topic partition offset"),
    ("dead_letters", f"UPDATE {{}} SET value = NULL WHERE rowid = {ONE}", "value values must never be null"),
    ("dead_letters", f"UPDATE {{}} SET error_class = 'KeyError' WHERE rowid = {ONE}", "where the pipeline can fail"),
    ("dead_letters", "DELETE FROM {} WHERE operator = 'discount'", "a record is set aside or enriched"),
    (
        "dead_letters",
        (
            'UPDATE {} SET "partition" = source_partition, "offset" = source_offset FROM '
            "(FROM enriched_orders WHERE type = 'STANDARD' LIMIT 1) WHERE operator = 'join-user'"
        ),
        "a record is set aside or enriched",
    ),
    (
        "dead_letters",
        'INSERT INTO {} SELECT {}.* REPLACE (-"offset" - n AS "offset") FROM {}, range(1, 4) t(n)',
        "are rare",
    ),
]


@pytest.fixture(scope="module")
def rules(clean: Tables) -> list[tuple[Verdict, Expectation | Check]]:
    """Every expectation, and what was said of it before there were defects."""
    return list(zip(validate(clean, suites), chain(*suites.values()), strict=True))


@pytest.mark.parametrize(("name", "statement", "rule"), DEFECTS)
def test_a_defect_is_found_by_its_rule(
    clean: Tables, rules: list[tuple[Verdict, Expectation | Check]], name: str, statement: str, rule: str
) -> None:
    ((before, expectation),) = [(v, e) for v, e in rules if v.table == name and rule in v.expects]
    assert before.passed

    (verdict,) = validate(damaged(clean, name, statement), {name: [expectation]})

    assert verdict.outcome is Outcome.FAILED, verdict.error
    assert verdict.unexpected and verdict.sample


def test_an_order_that_changed_its_tier_contradicts_the_dead_letters(clean: Tables) -> None:
    statement = "UPDATE {} SET type = 'STANDARD' WHERE type = 'PREMIUM' AND item = 'gift card'"

    verdicts = validate(damaged(clean, "enriched_orders", statement), suites)

    assert [(v.table, v.expects) for v in verdicts if not v.passed] == [
        ("dead_letters", "a record is set aside or enriched; premium gift cards are both")
    ]


def test_orders_that_are_gone_are_missed_in_every_table_made_of_them(clean: Tables) -> None:
    statement = "DELETE FROM {} WHERE rowid % 10 = 0"

    verdicts = validate(damaged(clean, "enriched_orders", statement), suites)

    assert {v.table for v in verdicts if not v.passed} >= {"order_counts", "user_revenue", "user_sessions"}
