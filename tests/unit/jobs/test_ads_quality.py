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
from jobs.ads import pipeline
from jobs.quality.ads import suites
from jobs.sample_data.ads import records
from tests.unit.jobs.recomputing import damaged, micro_batches, random_cuts, rows_of, tables_of

Tables = dict[str, pa.Table]


def written_by_the_job(count: int, batches: int, seed: int) -> Tables:
    rows = rows_of(records(count, seed))
    cuts = random_cuts(rows, batches, random.Random(seed))
    inputs = dict.fromkeys(("ads-impressions", "ads-clicks", "ads-campaigns"), 4)
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


@pytest.fixture(scope="module")
def rules(clean: Tables) -> dict[tuple[str, str], Expectation | Check]:
    """Table and what is expected in words -> an expectation, which the tables meet as they are."""
    verdicts = validate(clean, suites)
    assert [verdict.expects for verdict in verdicts if not verdict.passed] == []
    return {(v.table, v.expects): e for v, e in zip(verdicts, chain(*suites.values()), strict=True)}


ONE = "rowid = (SELECT min(rowid) FROM {})"
AD = "rowid = (SELECT min(rowid) FROM {} WHERE campaign IS NOT NULL)"
DEFECTS = [
    ("ads_clicks", f"UPDATE {{}} SET price = NULL WHERE {ONE}", "price values must never be null"),
    ("ads_clicks", f"UPDATE {{}} SET impression_id = '' WHERE {ONE}", "impression_id values must match"),
    ("ads_clicks", f"UPDATE {{}} SET click_id = 'click' WHERE {ONE}", "click_id values must match"),
    ("ads_clicks", f"UPDATE {{}} SET price = price / 3 WHERE {ONE}", "in whole cents"),
    ("ads_clicks", f"UPDATE {{}} SET delay_ms = 1800001 WHERE {ONE}", "delay_ms values must be"),
    ("ads_clicks", f"UPDATE {{}} SET shown_at = shown_at - INTERVAL 1 SECOND WHERE {ONE}", "the delay is from"),
    ("ads_clicks", f"UPDATE {{}} SET clicked_at = shown_at WHERE {ONE} OR delay_ms > 0", "clicked_at and timestamp"),
    ("ads_clicks", f"UPDATE {{}} SET advertiser = NULL WHERE {AD}", "a name and an advertiser, or there was none"),
    ("ads_clicks", f"UPDATE {{}} SET campaign = 'winter' WHERE {AD}", "the name is that of the campaign"),
    ("ads_clicks", f"UPDATE {{}} SET source_topic = 'ads' WHERE {ONE}", "source_topic values must belong"),
    (
        "ads_clicks",
        """UPDATE {} SET price = price + 1 WHERE rowid = (SELECT min(rowid) FROM {} WHERE impression_id IN
        (SELECT impression_id FROM {} GROUP BY impression_id HAVING count(*) > 1))""",
        "an impression was shown once",
    ),
    ("ads_clicks", "UPDATE {} SET click_id = 'c-0000001'", "a click is on one impression"),
    ("ads_clicks", "INSERT INTO {} FROM {} LIMIT 100", "few clicks are there more than once"),
    ("ads_clicks", "UPDATE {} SET campaign = NULL, advertiser = NULL", "most campaigns are known"),
    ("ads_late", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "campaign_id source_topic source_partition source_offset"),
    ("ads_late", f"UPDATE {{}} SET click_id = NULL WHERE {ONE}", "click_id values must never be null"),
    ("ads_late", f"UPDATE {{}} SET source_topic = 'ads-clicks' WHERE {ONE}", "source_topic values must belong"),
    ("ads_late", f"UPDATE {{}} SET click_id = 'c-9999999' WHERE {ONE}", "a late click is a click"),
    (
        "ads_late",
        f"UPDATE {{}} SET timestamp = (SELECT max(timestamp) FROM ads_hours) WHERE {ONE}",
        "an hour or more behind the newest",
    ),
    ("ads_bursts", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "user_id window_start"),
    ("ads_bursts", f"UPDATE {{}} SET window_date = window_date + 1 WHERE {ONE}", "window_date is the day"),
    ("ads_bursts", f"UPDATE {{}} SET user_id = '' WHERE {ONE}", "1 characters long"),
    ("ads_bursts", f"UPDATE {{}} SET clicks = 4 WHERE {ONE}", "clicks values must be greater than or equal to 5"),
    (
        "ads_bursts",
        f"UPDATE {{}} SET window_start = window_start - INTERVAL 1 SECOND WHERE {ONE}",
        "windows are a minute long",
    ),
    (
        "ads_bursts",
        "UPDATE {} SET window_start = window_start + INTERVAL 1 SECOND, window_end = window_end + INTERVAL 1 SECOND",
        "ends with a click, or begins right after one",
    ),
    ("ads_bursts", f"UPDATE {{}} SET user_id = 'u-000' WHERE {ONE}", "that of its last click"),
    ("ads_bursts", f"UPDATE {{}} SET clicks = clicks + 20 WHERE {ONE}", "are clicks of its user"),
    ("ads_bursts", "DELETE FROM {}", "minutes with many clicks are here"),
    ("ads_bursts", "UPDATE {} SET is_final = true, window_end = now()", "final minutes ended"),
    ("ads_hours", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "campaign_id window_start"),
    ("ads_hours", f"UPDATE {{}} SET spent = NULL WHERE {ONE}", "spent values must never be null"),
    ("ads_hours", f"UPDATE {{}} SET impressions = -1 WHERE {ONE}", "impressions values must be greater"),
    ("ads_hours", f"UPDATE {{}} SET impressions = 0, clicks = 0 WHERE {ONE}", "an impression or a click"),
    ("ads_hours", f"UPDATE {{}} SET spent = spent + 0.01 WHERE {ONE}", "are in it, or late"),
    ("ads_hours", "DELETE FROM {} WHERE rowid = (SELECT min(rowid) FROM {} WHERE clicks > 0)", "are in it, or late"),
    ("ads_hours", "UPDATE {} SET impressions = 0 WHERE hash(campaign_id) % 2 = 0", "nearly every hour"),
    ("ads_hours", "UPDATE {} SET clicks = 9 * clicks", "not many more clicks"),
    ("ads_hours", "UPDATE {} SET is_final = true", "final windows ended 1:00:00 or more"),
    ("ads_dead_letters", f"INSERT INTO {{}} FROM {{}} WHERE {ONE}", "topic partition offset"),
    ("ads_dead_letters", f"UPDATE {{}} SET message = NULL WHERE {ONE}", "message values must never be null"),
    ("ads_dead_letters", f"UPDATE {{}} SET operator = 'names' WHERE {ONE}", "what is set aside does not decode"),
    (
        "ads_dead_letters",
        """UPDATE {} SET topic = source_topic, "partition" = source_partition, "offset" = source_offset
        FROM (FROM ads_clicks LIMIT 1) WHERE operator = 'clicks'""",
        "in no other table",
    ),
    (
        "ads_dead_letters",
        'INSERT INTO {} SELECT d.* REPLACE (-"offset" - n AS "offset") FROM {} d, range(1, 20) t(n)',
        "dead letters are rare",
    ),
]


@pytest.mark.parametrize(("name", "statement", "rule"), DEFECTS)
def test_a_defect_is_found_by_its_rule(
    clean: Tables, rules: dict[tuple[str, str], Expectation | Check], name: str, statement: str, rule: str
) -> None:
    (expectation,) = [found for (table, expects), found in rules.items() if table == name and rule in expects]

    (verdict,) = validate(damaged(clean, name, statement), {name: [expectation]})

    assert verdict.outcome is Outcome.FAILED, verdict.error
    assert verdict.unexpected and verdict.sample


def test_clicks_without_a_row_are_found(clean: Tables) -> None:
    verdicts = validate(damaged(clean, "ads_clicks", "DELETE FROM {}"), {"ads_clicks": suites["ads_clicks"]})

    assert [verdict.expects for verdict in verdicts if not verdict.passed] == [
        "Must have greater than or equal to 1 rows."
    ]
