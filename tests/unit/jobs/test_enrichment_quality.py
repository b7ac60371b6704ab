"""The suite passes on what the job writes, and each planted defect is found by the rule that is there for it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from deltaworks.quality import validate
from deltaworks.testing.recorded import run_recorded
from jobs.enrichment import pipeline
from jobs.quality.enrichment import suites
from jobs.sample_data.enrichment import records
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


def written_by_the_job(count: int, batches: int, seed: int) -> Tables:
    rows = rows_of(records(count, seed))
    cuts = random_cuts(rows, batches, random.Random(seed))
    inputs = {"enrichment-orders": 4, "enrichment-customers": 4}
    recording = run_recorded(pipeline.plan(), inputs, micro_batches(rows, cuts), errors=pipeline.errors)
    return tables_of(pipeline, recording, cuts)


@pytest.fixture(scope="module")
def clean() -> Tables:
    return written_by_the_job(2_000, batches=12, seed=1)


@pytest.mark.parametrize(("count", "batches", "seed"), [(1_500, 1, 2), (2_000, 40, 3), (4_000, 20, 4)])
def test_what_the_job_writes_passes(count: int, batches: int, seed: int) -> None:
    tables = written_by_the_job(count, batches, seed)

    verdicts = validate(tables, suites)

    assert [(v.table, v.expects, v.error, v.sample) for v in verdicts if not v.passed] == []
    assert suites.keys() == tables.keys() == {verdict.table for verdict in verdicts}
    assert [verdict.expects for verdict in verdicts if not verdict.why or not verdict.rows] == []


ONE = "(SELECT min(rowid) FROM {})"
KNOWN = "(SELECT min(rowid) FROM {} WHERE tier <> 'unknown')"
DEFECTS = [
    ("enrichment_checked", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "by the exchange gave one row"),
    ("enrichment_checked", f"UPDATE {{}} SET tier = 'tin' WHERE rowid = {KNOWN}", "tier values must belong"),
    (
        "enrichment_checked",
        "UPDATE {} SET credit = 'approved' WHERE rowid = (SELECT min(rowid) FROM {} WHERE credit = 'rejected')",
        "approved up to the limit",
    ),
    ("enrichment_checked", f"UPDATE {{}} SET customer_name = NULL WHERE rowid = {KNOWN}", "unknown is who has no name"),
    ("enrichment_checked", f"UPDATE {{}} SET customer_id = NULL WHERE rowid = {KNOWN}", "a guest is unknown"),
    ("enrichment_checked", f"UPDATE {{}} SET amount = amount / 3 WHERE rowid = {ONE}", "whole cents"),
    (
        "enrichment_checked",
        f"UPDATE {{}} SET order_id = NULL WHERE rowid = {KNOWN}",
        "order_id values must never be null",
    ),
    (
        "enrichment_checked",
        "UPDATE {} SET order_id = 'x' || order_id WHERE rowid % 9 = 0",
        "checked is in the table of orders",
    ),
    (
        "enrichment_current_changelog",
        f"UPDATE {{}} SET amount = amount + 1 WHERE rowid = {KNOWN}",
        "in the table was checked when it came",
    ),
    ("enrichment_checked", f"UPDATE {{}} SET customer_id = 'c-900' WHERE rowid = {KNOWN}", "as the order found it"),
    (
        "enrichment_checked",
        f"UPDATE {{}} SET ordered_at = timestamp + INTERVAL 1 SECOND WHERE rowid = {ONE}",
        "timestamp must always be greater",
    ),
    (
        "enrichment_checked",
        "UPDATE {} SET tier = 'unknown', customer_name = NULL, credit_limit = NULL, credit = 'no credit'",
        "most customers are known",
    ),
    ("enrichment_customers_changelog", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together"),
    ("enrichment_customers_changelog", f"UPDATE {{}} SET tier = 'unknown' WHERE rowid = {KNOWN}", "tier values must"),
    ("enrichment_customers_changelog", "UPDATE {} SET name = 'Ada' WHERE op = 'delete'", "If op == delete"),
    ("enrichment_customers_changelog", "UPDATE {} SET batch_id = -batch_id", "later batches have later"),
    (
        "enrichment_customers_changelog",
        f"UPDATE {{}} SET credit_limit = -1 WHERE rowid = {KNOWN}",
        "limits are between",
    ),
    ("enrichment_customers", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "customer_id values must be unique"),
    ("enrichment_customers", f"UPDATE {{}} SET credit_limit = 1 WHERE rowid = {ONE}", "that the changelog has"),
    ("enrichment_current", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "order_key values must be unique"),
    ("enrichment_current", f"UPDATE {{}} SET credit = NULL WHERE rowid = {ONE}", "credit values must never be null"),
    ("enrichment_current", f"UPDATE {{}} SET amount = amount + 0.01 WHERE rowid = {ONE}", "that the changelog has"),
    (
        "enrichment_current_changelog",
        "DELETE FROM {} WHERE batch_id = 11 AND order_key IN (SELECT order_key FROM {} WHERE batch_id < 11)",
        "as its customer is",
    ),
    (
        "enrichment_current_changelog",
        "UPDATE {} SET credit_limit = credit_limit + 0.01 WHERE credit = 'approved'",
        "as its customer is",
    ),
    ("enrichment_tiers", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "tier values must be unique"),
    ("enrichment_tiers", "UPDATE {} SET tier = 'tin' WHERE tier = 'gold'", "tier values must belong"),
    ("enrichment_tiers", "UPDATE {} SET customers = NULL WHERE tier = 'gold'", "customers values must never be null"),
    ("enrichment_tiers", "UPDATE {} SET customers = customers + 10000 WHERE tier = 'gold'", "that the changelog has"),
    ("enrichment_tiers_changelog", f"UPDATE {{}} SET op = 'delete' WHERE rowid = {ONE}", "op values must belong"),
    ("enrichment_tiers_changelog", f"UPDATE {{}} SET customers = -1 WHERE rowid = {ONE}", "customers values must be"),
    (
        "enrichment_tiers_changelog",
        "UPDATE {} SET customers = customers + 1 WHERE tier = 'gold'",
        "tiers count the customers",
    ),
    ("enrichment_tiers_changelog", "DELETE FROM {} WHERE tier = 'silver'", "tiers count the customers"),
    ("enrichment_dead_letters", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: topic partition"),
    ("enrichment_dead_letters", f"UPDATE {{}} SET error_class = 'KeyError' WHERE rowid = {ONE}", "does not decode"),
    (
        "enrichment_dead_letters",
        'INSERT INTO {} SELECT d.* REPLACE (-"offset" - 1 AS "offset") FROM {} d, range(9)',
        "rare",
    ),
]


@pytest.mark.parametrize(("name", "statement", "rule"), DEFECTS)
def test_a_defect_is_found_by_its_rule(clean: Tables, name: str, statement: str, rule: str) -> None:
    verdicts = validate(damaged(clean, name, statement), {name: suites[name]})

    failed = [verdict for verdict in verdicts if not verdict.passed]
    assert [verdict.error for verdict in verdicts if verdict.error] == []
    assert [verdict.expects for verdict in failed if rule in verdict.expects], [verdict.expects for verdict in failed]
