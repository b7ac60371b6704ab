"""The suite passes on what the job writes, and finds what somebody breaks."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from deltaworks.quality import Outcome, Verdict, validate
from deltaworks.testing.recorded import run_recorded
from jobs.invoices import pipeline
from jobs.quality.invoices import suites
from jobs.sample_data.invoices import records
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


@pytest.fixture(scope="module")
def clean() -> Tables:
    rows = rows_of(records(3_000))
    cuts = random_cuts(rows, batches=5, rng=random.Random(0))
    recording = run_recorded(
        pipeline.plan(),
        {"pos": 4},
        micro_batches(rows, cuts),
        errors=pipeline.errors,
        sink_partitions={"notification": 4},
    )
    return tables_of(pipeline, recording, cuts)


def not_passed(verdicts: list[Verdict]) -> list[tuple[str, str, str | None]]:
    return [(v.table, v.expects, v.error) for v in verdicts if not v.passed]


def test_what_the_job_writes_passes(clean: Tables) -> None:
    verdicts = validate(clean, suites)

    assert not_passed(verdicts) == []
    assert all(verdict.why for verdict in verdicts)
    assert all(verdict.rows for verdict in verdicts)


@pytest.mark.parametrize(
    ("name", "statement", "found_by"),
    [
        ("line_items", "INSERT INTO {} SELECT * FROM {} LIMIT 1", "ExpectCompoundColumnsToBeUnique"),
        ("line_items", "ALTER TABLE {} ADD COLUMN customer_card_no VARCHAR", "ExpectTableColumnsToMatchSet"),
        ("line_items", "UPDATE {} SET total_value = total_value + 0.01 WHERE rowid = 7", "price times quantity"),
        ("line_items", "UPDATE {} SET pin_code = '1067' WHERE pin_code = '01067'", "ExpectColumnValuesToMatchRegex"),
        ("line_items", "UPDATE {} SET city = NULL WHERE city = 'Dresden'", "a place is whole"),
        ("line_items", "UPDATE {} SET customer_type = 'GOLD' WHERE rowid = 7", "ExpectColumnValuesToBeInSet"),
        ("line_items", "UPDATE {} SET store_id = 'STR9' WHERE rowid = 7", "of one store"),
        ("line_items", "UPDATE {} SET item_qty = 0, total_value = 0 WHERE rowid = 7", "ExpectColumnValuesToNotBeInSet"),
        ("line_items", "UPDATE {} SET created_time = created_time - INTERVAL 1 DAY WHERE rowid = 7", "clocks"),
        ("loyalty_points", "INSERT INTO {} SELECT * FROM {} LIMIT 1", "ExpectCompoundColumnsToBeUnique"),
        ("loyalty_points", "UPDATE {} SET customer_card_no = '' WHERE rowid = 7", "ExpectColumnValueLengths"),
        ("loyalty_points", "UPDATE {} SET earned_loyalty_points = round(earned_loyalty_points, 1)", "two percent"),
        ("loyalty_points", "UPDATE {} SET total_loyalty_points = earned_loyalty_points", "one of the totals"),
        ("loyalty_points", "UPDATE {} SET total_loyalty_points = 1e9 WHERE rowid = 7", "follows from another"),
        ("loyalty_points", "UPDATE {} SET total_amount = total_amount + 1 WHERE rowid = 7", "for this amount"),
        ("loyalty_points", "DELETE FROM {} WHERE rowid = 7", "is credited"),
        ("dead_letters", "INSERT INTO {} SELECT * FROM {} LIMIT 1", "ExpectCompoundColumnsToBeUnique"),
        ("dead_letters", "UPDATE {} SET error_class = 'KeyError' WHERE rowid = 7", "where the pipeline can fail"),
        ("dead_letters", "UPDATE {} SET message = NULL WHERE rowid = 7", "ExpectColumnValuesToNotBeNull"),
        ("dead_letters", 'UPDATE {} SET "offset" = "offset" + 1 WHERE rowid = 7', "set aside or sold"),
        (
            "dead_letters",
            'INSERT INTO {} SELECT * EXCLUDE n REPLACE ("offset" + 100000 * n AS "offset") FROM {}, range(1, 3) s(n)',
            "dead letters are rare",
        ),
    ],
)
def test_a_defect_is_found(clean: Tables, name: str, statement: str, found_by: str) -> None:
    table = f"invoices_{name}"
    meant = [each for each in suites[table] if found_by in f"{type(each).__name__} {getattr(each, 'description', '')}"]

    verdicts = validate(damaged(clean, table, statement), {table: meant})

    assert Outcome.FAILED in {verdict.outcome for verdict in verdicts}
    assert Outcome.ERROR not in {verdict.outcome for verdict in verdicts}
