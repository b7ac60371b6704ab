"""The suite passes on what the job writes, and each planted defect is found by the rule that is there for it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from deltaworks.quality import validate
from deltaworks.testing.recorded import run_recorded
from jobs.customers import pipeline
from jobs.quality.customers import suites
from jobs.recomputed.customers import recomputation
from jobs.sample_data.customers import records
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


def written_by_the_job(count: int, batches: int, seed: int) -> Tables:
    rows = rows_of(records(count, seed))
    cuts = random_cuts(rows, batches, random.Random(seed))
    recording = run_recorded(
        pipeline.plan(), dict.fromkeys(recomputation.inputs, 4), micro_batches(rows, cuts), errors=pipeline.errors
    )
    return tables_of(pipeline, recording, cuts)


@pytest.fixture(scope="module")
def clean() -> Tables:
    return written_by_the_job(600, batches=8, seed=1)


@pytest.mark.parametrize(("count", "batches", "seed"), [(500, 1, 2), (1_200, 20, 3)])
def test_what_the_job_writes_passes(count: int, batches: int, seed: int) -> None:
    tables = written_by_the_job(count, batches, seed)

    verdicts = validate(tables, suites)

    assert [(v.table, v.expects, v.error, v.sample) for v in verdicts if not v.passed] == []
    assert suites.keys() == tables.keys() == {verdict.table for verdict in verdicts}
    assert [verdict.expects for verdict in verdicts if not verdict.why or not verdict.rows] == []


ONE = "(SELECT min(rowid) FROM {})"
DEFECTS = [
    ("customers_changelog", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together"),
    ("customers_changelog", "UPDATE {} SET name = 'Ada' WHERE op = 'delete'", "If op == delete"),
    ("customers_changelog", "UPDATE {} SET batch_id = -batch_id", "later batches have later"),
    (
        "customers_changelog",
        "INSERT INTO {} SELECT * REPLACE (source_offset + 1 AS source_offset) FROM {} WHERE op = 'delete' LIMIT 1",
        "deleted once",
    ),
    ("customers", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "customer_id values must be unique"),
    ("customers", f"UPDATE {{}} SET city = 'Nowhere' WHERE rowid = {ONE}", "that the changelog has"),
    ("customers", f"UPDATE {{}} SET since = DATE '2080-01-01' WHERE rowid = {ONE}", "a day that is to come"),
    ("customers_orders", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "order_id values must be unique"),
    ("customers_orders", f"UPDATE {{}} SET status = 'lost' WHERE rowid = {ONE}", "status values must belong"),
    ("customers_orders", f"UPDATE {{}} SET lines = 0, amount = 1 WHERE rowid = {ONE}", "costs nothing"),
    ("customers_orders", f"UPDATE {{}} SET customer_name = NULL, city = 'Ulm' WHERE rowid = {ONE}", "a guest neither"),
    (
        "customers_orders",
        f"UPDATE {{}} SET note = '__debezium_unavailable_value' WHERE rowid = {ONE}",
        "that was not sent",
    ),
    ("customers_orders", f"UPDATE {{}} SET amount = amount + 1 WHERE rowid = {ONE}", "that the changelog has"),
    ("customers_orders", "UPDATE {} SET ordered_at = ordered_at - INTERVAL 50 YEAR", "before there was the shop"),
    ("customers_orders", "UPDATE {} SET customer_name = NULL, city = NULL", "most customers are known"),
    ("customers_orders_changelog", "UPDATE {} SET city = 'Nowhere' WHERE city IS NOT NULL", "as its customer is"),
    ("customers_orders_changelog", "UPDATE {} SET lines = 3 WHERE op = 'delete'", "If op == delete"),
    ("customers_totals", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "customer_id values must be unique"),
    ("customers_totals", f"UPDATE {{}} SET amount = amount + 1 WHERE rowid = {ONE}", "that the changelog has"),
    ("customers_totals_changelog", f"UPDATE {{}} SET orders = 0 WHERE rowid = {ONE}", "has an order"),
    ("customers_totals_changelog", "UPDATE {} SET orders = orders + 1 WHERE op = 'upsert'", "are in the totals"),
    ("customers_dead_letters", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together"),
    ("customers_dead_letters", f"UPDATE {{}} SET error_class = 'KeyError' WHERE rowid = {ONE}", "does not decode"),
    (
        "customers_dead_letters",
        'INSERT INTO {} SELECT d.* REPLACE (-"offset" - 1 AS "offset") FROM {} d, range(30)',
        "rare",
    ),
]


@pytest.mark.parametrize(("name", "statement", "rule"), DEFECTS)
def test_a_defect_is_found_by_its_rule(clean: Tables, name: str, statement: str, rule: str) -> None:
    verdicts = validate(damaged(clean, name, statement), {name: suites[name]})

    failed = [verdict for verdict in verdicts if not verdict.passed]
    assert [verdict.error for verdict in verdicts if verdict.error] == []
    assert [verdict.expects for verdict in failed if rule in verdict.expects], [verdict.expects for verdict in failed]
