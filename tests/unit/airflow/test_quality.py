"""What the check of a pipeline's tables says, and when it fails."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.timetables import trigger
from airflow.timetables.base import TimeRestriction

from deltaworks.airflow.assets import checked_asset
from deltaworks.airflow.quality import check, quality_dag
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import Finding, Incident
from deltaworks.errors import ConfigurationError, ControlUnavailableError, TransientError
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.cuts import Cut
from deltaworks.quality import Outcome, Verdict, production

RUN = SimpleNamespace(run_id="scheduled__1")
PASSED = Verdict(
    table="users",
    expectation="KeysUnique",
    expects="one row per key",
    why="A later row replaces the earlier one.",
    severity="critical",
    outcome=Outcome.PASSED,
    rows=7,
    unexpected=0,
)
FAILED = replace(PASSED, table="orders", outcome=Outcome.FAILED, unexpected=2, sample=({"key": "a", "rows": 2},))
WARNING = replace(FAILED, severity="warning", expects="few are late", observed="half of them")
ERROR = replace(PASSED, outcome=Outcome.ERROR, unexpected=None, error="there is no column 'key'")


class Production:
    """Answers as it is told; takes notes of what it is asked."""

    def __init__(self) -> None:
        self.verdicts = [PASSED]
        self.there = True
        self.error: Exception | None = None
        self.asked: list[tuple[str, str]] = []
        self.incidents: list[list[Finding]] = []
        """What each check has found."""
        self.registry_error: Exception | None = None

    def settle(self, found: list[Finding], looked_at: Any) -> None:
        if self.registry_error is not None:
            raise self.registry_error
        of_another = Incident(id=1, pipeline="users", kind="quality_failed", what="w", opened_at=datetime.now(UTC))
        assert not looked_at(of_another)
        self.incidents.append(found)

    def check(self, settings: object, name: str, *, run_id: str) -> list[Verdict]:
        self.asked.append((name, run_id))
        if self.error is not None:
            raise self.error
        return self.verdicts

    def is_there(self, settings: object, name: str) -> bool:
        return self.there


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Production:
    tables = Production()
    for name in ("check", "is_there"):
        monkeypatch.setattr(production, name, getattr(tables, name))
    monkeypatch.setattr(IncidentBook, "of", lambda settings: tables)
    return tables


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_tables_that_are_as_they_should_be_pass(tables: Production, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        counts = check("orders", RUN)

    assert counts == {"passed": 1, "failed": 0, "error": 0}
    assert tables.asked == [("orders", "scheduled__1")]
    assert said(caplog, logging.INFO) == ["1 passed, 0 failed, 0 error"]


def test_a_check_that_has_passed_tells_what_it_has_checked(tables: Production, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut(pipeline="orders", query="q", batch_id=7, at_ms=1_790_000_000_000, tables={})
    monkeypatch.setattr(cuts, "latest", lambda root, name: cut)
    outlets = {checked_asset("orders"): SimpleNamespace(extra={})}
    tables.verdicts = [PASSED, WARNING]

    check("orders", RUN, outlet_events=outlets)

    assert [each.extra for each in outlets.values()] == [
        {
            "suite": "orders",
            "passed": 1,
            "warnings": 1,
            "run": "scheduled__1",
            "pipeline": "orders",
            "batch_id": 7,
            "at": "2026-09-21T14:13:20Z",
        }
    ]


def test_what_is_wrong_fails_the_run_and_is_in_the_log(tables: Production, caplog: pytest.LogCaptureFixture) -> None:
    tables.verdicts = [PASSED, FAILED, ERROR]

    with pytest.raises(AirflowFailException, match="orders: one row per key, and 1 more"):
        check("orders", RUN)

    assert said(caplog, logging.ERROR) == [
        "failed: orders: one row per key",
        "  | A later row replaces the earlier one.",
        "  | 2 of 7 rows, such as:",
        "  |   key=a, rows=2",
        "error: users: one row per key",
        "  | A later row replaces the earlier one.",
        "  | there is no column 'key'",
    ]


def test_what_is_wrong_is_an_incident_until_all_checks_pass(tables: Production) -> None:
    tables.verdicts = [PASSED, FAILED]
    with pytest.raises(AirflowFailException):
        check("orders", RUN)
    tables.verdicts = [PASSED, WARNING]
    check("orders", RUN)

    [[found], none] = tables.incidents
    assert (found.pipeline, found.kind, found.place) == (
        "orders",
        "quality_failed",
        "orders__quality/runs/scheduled__1",
    )
    assert "orders: one row per key" in found.what
    assert none == []


def test_a_check_needs_no_registry(tables: Production, caplog: pytest.LogCaptureFixture) -> None:
    tables.registry_error = ControlUnavailableError("away")

    assert check("orders", RUN)["passed"] == 1
    assert said(caplog, logging.WARNING) == ["this is not recorded as an incident: away"]


def test_a_warning_is_in_the_log_and_the_run_passes(tables: Production, caplog: pytest.LogCaptureFixture) -> None:
    tables.verdicts = [PASSED, WARNING]

    assert check("orders", RUN)["failed"] == 1
    assert said(caplog, logging.WARNING)[:3] == [
        "failed: orders: few are late",
        "  | A later row replaces the earlier one.",
        "  | half of them",
    ]
    assert said(caplog, logging.ERROR) == []


def test_before_the_first_batch_there_is_nothing_to_check(tables: Production) -> None:
    tables.there = False

    with pytest.raises(AirflowSkipException, match="orders has no tables yet"):
        check("orders", RUN)

    assert tables.asked == []


def test_a_suite_that_is_broken_is_not_tried_again(tables: Production) -> None:
    tables.error = ConfigurationError("jobs/quality/orders.py defines no suites.")

    with pytest.raises(AirflowFailException, match="defines no suites"):
        check("orders", RUN)


def test_what_may_be_gone_a_moment_later_is_tried_again(tables: Production) -> None:
    tables.error = TransientError("others are always first")

    with pytest.raises(TransientError):
        check("orders", RUN)


def test_each_pipeline_is_checked_every_hour_at_a_minute_of_its_own() -> None:
    dags: Any = [quality_dag("orders"), quality_dag("clicks")]

    minutes = {dag.schedule.expression.removesuffix(" * * * *"): dag.doc_md for dag in dags}
    assert len(minutes) == 2
    assert all(f"every hour at minute {int(minute)} (UTC)" in doc for minute, doc in minutes.items())


@pytest.mark.parametrize("after_s", [1, 299, 3_599])
def test_a_stack_that_starts_checks_nothing_before_the_next_minute_that_is_due(
    monkeypatch: pytest.MonkeyPatch, after_s: int
) -> None:
    dag: Any = quality_dag("orders")
    due = datetime(2026, 1, 1, 12, int(dag.schedule.expression.split()[0]), tzinfo=UTC)
    monkeypatch.setattr(trigger, "utcnow", lambda: due + timedelta(seconds=after_s))

    first = decode_timetable(encode_timetable(dag.schedule)).next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(earliest=None, latest=None, catchup=dag.catchup)
    )

    assert first is not None
    assert first.run_after == due + timedelta(hours=1)
