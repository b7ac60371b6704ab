"""The suite passes on what the job writes, and each planted defect is found by the rule that is there for it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from deltaworks.quality import validate
from deltaworks.testing.recorded import run_recorded
from jobs.inventory import pipeline
from jobs.quality.inventory import suites
from jobs.sample_data.inventory import records
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


def written_by_the_job(count: int, batches: int, seed: int) -> Tables:
    rows = rows_of(records(count, seed))
    cuts = random_cuts(rows, batches, random.Random(seed))
    inputs = {"inventory-orders": 4, "inventory-movements": 4}
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
FINAL = "(SELECT min(rowid) FROM {} WHERE is_final)"
DEFECTS = [
    (
        "inventory_stock_changelog",
        "DELETE FROM {} WHERE rowid = (SELECT min(rowid) FROM {} WHERE level <> was)",
        "at the level where one has ended",
    ),
    (
        "inventory_stock_changelog",
        "UPDATE {} SET counted_at = NULL WHERE batch_id = (SELECT max(batch_id) FROM {})",
        "never forgotten",
    ),
    ("inventory_customer_hours", f"UPDATE {{}} SET amount = amount / 3 WHERE rowid = {ONE}", "amounts are whole cents"),
    (
        "inventory_customer_orders",
        "UPDATE {} SET day = struct_pack(orders := 0, amount := day.amount)",
        "money and orders come together",
    ),
    ("inventory_stock_changelog", f"UPDATE {{}} SET op = 'delete' WHERE rowid = {ONE}", "op values must belong"),
    ("inventory_stock_changelog", "DELETE FROM {} WHERE batch_id > 8", "no shelf is behind its orders"),
    ("inventory_stock_changelog", f"UPDATE {{}} SET pieces = pieces - 100 WHERE rowid = {ONE}", "that of the pieces"),
    ("inventory_stock", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: store item"),
    ("inventory_stock", f"UPDATE {{}} SET level = 'full' WHERE rowid = {ONE}", "level values must belong to this set"),
    ("inventory_stock", f"UPDATE {{}} SET pieces = pieces + 1 WHERE rowid = {ONE}", "as the changelog says"),
    ("inventory_stock", "UPDATE {} SET counted_at = counted_at + INTERVAL 90 DAY", "before its last movement"),
    ("inventory_stock", "UPDATE {} SET pieces = -1, level = 'negative'", "half of the shelves owe"),
    (
        "inventory_customer_hours",
        f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}",
        "unique together: customer_id window_start",
    ),
    ("inventory_customer_hours", f"DELETE FROM {{}} WHERE rowid = {FINAL}", "final hours are those"),
    ("inventory_customer_hours", f"UPDATE {{}} SET amount = amount + 0.01 WHERE rowid = {FINAL}", "final hours are"),
    ("inventory_customer_hours", f"UPDATE {{}} SET amount = NULL WHERE rowid = {ONE}", "amount values must never be"),
    ("inventory_customer_hours", "UPDATE {} SET is_final = true", "final windows ended 1:00:00 or more"),
    (
        "inventory_customer_hours",
        f"UPDATE {{}} SET window_end = window_end + INTERVAL 23 HOUR WHERE rowid = {ONE}",
        "windows are 1:00:00 long",
    ),
    (
        "inventory_customer_hours",
        "DELETE FROM {} WHERE timestamp = (SELECT max(timestamp) FROM {})",
        "the newest order",
    ),
    ("inventory_customer_orders", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: source_topic"),
    ("inventory_customer_orders", f"UPDATE {{}} SET day = NULL WHERE rowid = {ONE}", "day values must never be null"),
    ("inventory_customer_orders", f"UPDATE {{}} SET pieces = -1 WHERE rowid = {ONE}", "pieces values must be"),
    (
        "inventory_customer_orders",
        "UPDATE {} SET day = {'orders': day.orders - 1, 'amount': day.amount - amount}",
        "in its own summary",
    ),
    (
        "inventory_customer_orders",
        f"UPDATE {{}} SET day = {{'orders': 1000, 'amount': day.amount}} WHERE rowid = {ONE}",
        "than the customer has ordered so far",
    ),
    (
        "inventory_customer_orders",
        """UPDATE {} SET day = {'orders': n, 'amount': day.amount} FROM (SELECT order_id AS last, count(*)
        OVER (PARTITION BY customer_id ORDER BY source_offset) AS n FROM {}) WHERE last = order_id""",
        "from before its 24 hours",
    ),
    (
        "inventory_customer_orders",
        "UPDATE {} SET ordered_at = ordered_at + INTERVAL 1 HOUR",
        "ordered_at and timestamp",
    ),
    ("inventory_dead_letters", f"INSERT INTO {{}} FROM {{}} WHERE rowid = {ONE}", "unique together: topic partition"),
    ("inventory_dead_letters", f"UPDATE {{}} SET error_class = 'KeyError' WHERE rowid = {ONE}", "pipeline can fail"),
    ("inventory_dead_letters", "UPDATE {} SET key = 'ann'::BLOB WHERE operator = 'last-day'", "without a customer"),
    (
        "inventory_dead_letters",
        """UPDATE {} SET "partition" = source_partition, "offset" = source_offset
        FROM (FROM inventory_customer_orders LIMIT 1) WHERE operator = 'orders-source'""",
        "set aside or joined",
    ),
    (
        "inventory_dead_letters",
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
