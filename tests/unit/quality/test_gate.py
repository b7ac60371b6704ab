"""The gate asks the suite and the invariants, of staging tables and of tables as they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import great_expectations.expectations as gxe
import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks.lakehouse.later_begin import LaterBegin
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.quality import Outcome, Suites, Verdict
from deltaworks.quality.gate import gate, judge
from tests.support.data_defects import defect, planted
from tests.unit.lakehouse.lake import DEAD, SINKS, run

SCHEMAS = plan_schemas(SINKS, DEAD)
NAMES = [schema.name for schema in SCHEMAS]
SUITES: Suites = {
    "orders": [
        gxe.ExpectColumnValuesToNotBeNull(column="name"),
        gxe.UnexpectedRowsExpectation(
            unexpected_rows_query="SELECT * FROM {batch} ANTI JOIN counts ON true", description="there are counts"
        ),
    ]
}


@pytest.fixture
def production(tmp_path: Path) -> Path:
    committer, _ = run(tmp_path / "production", 6)
    committer.refresh_snapshots(force=True)
    committer.close()
    return tmp_path / "production"


@pytest.fixture
def staging(production: Path) -> Path:
    return shutil.copytree(production, production.with_name("staging"))


def judged(staging: Path, production: Path, suites: Suites = SUITES, **options: Any) -> list[Verdict]:
    scope = Scope(end_offsets={"raw": {"0": 6000, "1": 6000}}, last_batch=5)
    return gate(staging, production, schemas=SCHEMAS, suites=suites, scope=scope, **options)


def test_good_tables_pass(staging: Path, production: Path) -> None:
    verdicts = judged(staging, production)

    assert [(verdict.table, verdict.expects) for verdict in verdicts if not verdict.passed] == []
    assert {verdict.expectation for verdict in verdicts} >= {"ExpectColumnValuesToNotBeNull", "KeysUnique", "Volume"}


def test_what_the_suite_finds_blocks(staging: Path, production: Path) -> None:
    with planted(staging, NAMES, defect("no name", "orders", "UPDATE {} SET name = NULL WHERE rowid = 0")):
        verdicts = judged(staging, production)

    assert [verdict.expectation for verdict in verdicts if verdict.blocks] == ["ExpectColumnValuesToNotBeNull"]


def test_a_suite_does_not_see_what_is_older_than_where_the_replay_began(staging: Path, production: Path) -> None:
    times = DeltaTable(staging / "orders").to_pyarrow_table()["timestamp"].to_pylist()
    since_ms = int(sorted(times)[len(times) // 2].timestamp() * 1000)
    rule = f"SELECT * FROM {{batch}} WHERE epoch_ms(timestamp) < {since_ms}"
    suites: Suites = {"orders": [gxe.UnexpectedRowsExpectation(unexpected_rows_query=rule)]}

    def blocking(begin: LaterBegin | None) -> list[str]:
        verdicts = judged(staging, production, suites, begin=begin)
        return [verdict.expectation for verdict in verdicts if verdict.blocks]

    begin = LaterBegin(batch=3, topics=("raw",), since_ms=since_ms, complete_from_ms=since_ms)
    assert blocking(begin) == []
    assert blocking(None) == ["UnexpectedRowsExpectation"]
    # Records of other topics were read from that batch on: what comes of them has all that it goes with.
    assert blocking(msgspec.structs.replace(begin, topics=("users",))) == ["UnexpectedRowsExpectation"]


def test_a_suite_can_ask_for_the_order_of_a_replay(staging: Path, production: Path) -> None:
    rule = gxe.UnexpectedRowsExpectation(unexpected_rows_query="FROM {batch} WHERE {order} IS DISTINCT FROM 'time'")

    def failed(verdicts: list[Verdict]) -> list[str]:
        return [verdict.expectation for verdict in verdicts if verdict.outcome is Outcome.FAILED]

    assert failed(judged(staging, production, {"orders": [rule]}, order="time")) == []
    assert failed(judged(staging, production, {"orders": [rule]})) == ["UnexpectedRowsExpectation"]
    assert failed(judge(production, schemas=SCHEMAS, suites={"orders": [rule]})) == ["UnexpectedRowsExpectation"]


def test_what_an_invariant_finds_blocks_without_a_suite_too(staging: Path, production: Path) -> None:
    with planted(staging, NAMES, defect("doubled", "counts", "INSERT INTO {} FROM {} LIMIT 1")):
        verdicts = judged(staging, production, {})

    assert [verdict.expectation for verdict in verdicts if verdict.blocks] == ["KeysUnique"]


def test_an_expectation_that_raises_blocks(staging: Path, production: Path) -> None:
    verdicts = judged(staging, production, {"orders": [gxe.ExpectColumnValuesToNotBeNull(column="lost")]})

    assert [verdict.outcome for verdict in verdicts if verdict.blocks] == [Outcome.ERROR]


def test_a_table_that_is_missing_blocks(staging: Path, production: Path) -> None:
    shutil.rmtree(staging / "counts")

    verdicts = judged(staging, production, {})

    assert [(verdict.table, verdict.expectation) for verdict in verdicts if verdict.blocks] == [
        ("counts", "TableExists")
    ]


def test_a_table_that_production_does_not_have_yet_can_be_published(staging: Path, production: Path) -> None:
    shutil.rmtree(production / "counts")

    assert [verdict.expects for verdict in judged(staging, production) if verdict.blocks] == []


def test_production_is_judged_as_it_is(production: Path) -> None:
    verdicts = judge(production, schemas=SCHEMAS, suites=SUITES, last_batch=5)

    assert [(verdict.table, verdict.expects) for verdict in verdicts if not verdict.passed] == []
    assert {verdict.expectation for verdict in verdicts}.isdisjoint({"OnlyWhatWasRead", "Volume", "EveryPartition"})
    with planted(production, NAMES, defect("doubled", "users", "INSERT INTO {} FROM {} LIMIT 1")):
        assert any(verdict.blocks for verdict in judge(production, schemas=SCHEMAS, suites={}))
