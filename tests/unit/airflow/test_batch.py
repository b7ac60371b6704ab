"""The DAG of a batch job: which day a run computes, and what becomes of its child process."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.serialization.serialized_objects import DagSerialization
from deltalake import CommitProperties, write_deltalake

from deltaworks.airflow import batch
from deltaworks.airflow.assets import table_asset
from deltaworks.airflow.batch import BatchOperator, batch_dag
from deltaworks.airflow.dags import batch_dags
from deltaworks.airflow.events import TableEvent
from deltaworks.batch import history, jobs
from deltaworks.control import closed_days
from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import cuts
from deltaworks.settings import Settings
from tests.unit.airflow.replays import project_settings
from tests.unit.airflow.since import BY_HAND

NAME = "daily_sales"
RUN_AFTER = datetime(2026, 11, 24, 2, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return project_settings(tmp_path, monkeypatch)


class Runs:
    """Runs the task; a script stands in for the command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.code = ""
        self.events: dict[Any, Any] = {table_asset(NAME): SimpleNamespace(extra={})}
        monkeypatch.setattr(batch, "command", self._command)

    def _command(self, *arguments: str) -> list[str]:
        self.asked.append(arguments)
        return [sys.executable, "-c", self.code]

    def run(
        self,
        *,
        day: str | None = None,
        key: str | None = None,
        kind: str = "manual",
        waits_for: Iterable[str] = (),
        events: Iterable[TableEvent] = (),
    ) -> Any:
        with DAG("batch"):
            operator = BatchOperator(
                task_id="compute",
                job=NAME,
                pipelines=["orders", "inventory"],
                waits_for=list(waits_for),
                outlets=[table_asset(NAME)],
            )
        dag_run = SimpleNamespace(run_id="scheduled__1", partition_key=key, run_after=RUN_AFTER, run_type=kind)
        given: dict[Any, list[Any]] = {}
        for number, event in enumerate(events):
            seen = SimpleNamespace(extra=event.extra, timestamp=RUN_AFTER + timedelta(seconds=number))
            given.setdefault(table_asset(event.table), []).append(seen)
        context: Any = {
            "dag_run": dag_run,
            "params": {"day": day},
            "outlet_events": self.events,
            "triggering_asset_events": given,
        }
        return operator.execute(context)

    @property
    def days(self) -> list[str]:
        """Of the last command."""
        (asked,) = self.asked
        return [word for word, before in zip(asked[1:], asked, strict=False) if before == "--day"]


@pytest.fixture
def runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


@pytest.mark.parametrize(
    ("given", "day"),
    [
        ({"key": "2026-11-20"}, "2026-11-20"),
        ({"day": "2026-11-21"}, "2026-11-21"),
        ({}, "2026-11-23"),
    ],
)
def test_a_run_is_for_the_day_of_its_key_or_of_the_form_or_for_yesterday(
    runs: Runs, given: dict[str, Any], day: str
) -> None:
    assert runs.run(**given) == [day]

    assert runs.asked == [("batch", NAME, "--day", day, "--run-id", "scheduled__1")]
    (event,) = [msgspec.convert(event.extra, TableEvent) for event in runs.events.values()]
    assert event == TableEvent(why="computed", table=NAME, days=[date.fromisoformat(day)], run="scheduled__1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": "2026-11-20", "day": "2026-11-21"}, "leave Day empty"),
        ({"key": "20th of November"}, "is not a day, such as 2026-11-22"),
    ],
)
def test_a_day_that_cannot_be_told_fails_before_anything_runs(runs: Runs, given: dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        runs.run(**given)

    assert runs.asked == []


@pytest.mark.parametrize(
    ("code", "is_final"),
    [(1, True), (65, True), (78, True), (69, False), (75, False), (-9, False)],
    ids=["checks", "Spark cannot compute it", "settings", "unavailable", "conflict", "killed"],
)
def test_what_a_repetition_cannot_help_is_not_repeated(runs: Runs, code: int, is_final: bool) -> None:
    how = f"raise SystemExit({code})" if code > 0 else "import os; os.kill(os.getpid(), 9)"
    runs.code = f"print('error: it is so', flush=True)\n{how}"

    with pytest.raises(AirflowException, match=r"daily_sales for 2026-11-23 .*:\n.*it is so") as raised:
        runs.run()

    assert isinstance(raised.value, AirflowFailException) == is_final
    assert [event.extra for event in runs.events.values()] == [{}]


BOTH = ["enriched_orders", "inventory_customer_orders"]
LAST = date(2026, 11, 23)


def closed(monkeypatch: pytest.MonkeyPatch, orders: date | None = LAST, inventory: date | None = LAST) -> None:
    marks = {"orders": (BOTH[0], orders), "inventory": (BOTH[1], inventory)}

    def through(settings: Settings, pipeline: str) -> dict[str, date]:
        table, day = marks[pipeline]
        return {} if day is None else {table: day, f"{table}_dead": date(2000, 1, 1)}

    monkeypatch.setattr(closed_days, "through", through)


def told(table: str, *days: date, **other: Any) -> TableEvent:
    return TableEvent(**{"why": "closed", "table": table, "days": list(days), **other})


def test_events_start_it_for_the_days_that_they_name(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    closed(monkeypatch)
    before = LAST - timedelta(days=1)

    done = runs.run(
        kind="asset_triggered",
        waits_for=BOTH,
        events=[told(BOTH[0], LAST), told(BOTH[1], before, LAST), told(BOTH[0], before, why="published")],
    )

    assert done == runs.days == ["2026-11-22", "2026-11-23"]


@pytest.mark.parametrize("behind", [LAST - timedelta(days=1), None])
def test_a_day_waits_for_the_last_table_in_which_it_closes(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, behind: date | None
) -> None:
    closed(monkeypatch, inventory=behind)
    with pytest.raises(AirflowSkipException):
        runs.run(kind="asset_triggered", waits_for=BOTH, events=[told(BOTH[0], LAST)])
    assert runs.asked == []

    closed(monkeypatch)
    runs.run(kind="asset_triggered", waits_for=BOTH, events=[told(BOTH[1], LAST)])
    assert runs.days == ["2026-11-23"]


def test_tables_that_it_does_not_wait_for_hold_nothing_up(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    closed(monkeypatch, inventory=None)

    runs.run(kind="asset_triggered", waits_for=BOTH[:1], events=[told(BOTH[0], LAST)])

    assert runs.days == ["2026-11-23"]


def test_what_a_replay_publishes_without_days_is_computed_for_all_days_of_the_table(
    runs: Runs, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(monkeypatch)
    event = TableEvent(why="published", table=BOTH[0], days=None)
    with pytest.raises(AirflowSkipException, match="no day to compute"):
        runs.run(kind="asset_triggered", waits_for=BOTH, events=[event])
    rows = pa.table({"day": [LAST, date(2026, 11, 2), date(2026, 11, 24)], "orders": [1, 2, 3]})
    write_deltalake(settings.tables / NAME, rows, partition_by=["day"])

    runs.run(kind="asset_triggered", waits_for=BOTH, events=[event])

    assert runs.days == ["2026-11-02", "2026-11-23"], "a day that is not closed has its own event"
    (told_others,) = [msgspec.convert(event.extra, TableEvent) for event in runs.events.values()]
    assert told_others.version == 0


def test_an_event_that_names_no_day_starts_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    closed(monkeypatch)

    with pytest.raises(AirflowSkipException, match="no day to compute"):
        runs.run(kind="asset_triggered", waits_for=BOTH, events=[told(BOTH[0])])


def test_at_noon_a_day_is_computed_that_no_event_has_brought(
    runs: Runs, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "latest", lambda *_: "a cut")
    closed(monkeypatch, inventory=LAST - timedelta(days=1))
    with pytest.raises(AirflowSkipException, match="no day to compute"):
        runs.run(kind="scheduled", waits_for=BOTH)
    closed(monkeypatch)

    assert runs.run(kind="scheduled", waits_for=BOTH) == ["2026-11-23"]

    note = history.Note(job=NAME, day=LAST, run="asset", read={}).text
    rows = pa.table({"day": pa.array([], pa.date32())})
    write_deltalake(settings.tables / NAME, rows, commit_properties=CommitProperties({"userMetadata": note}))
    with pytest.raises(AirflowSkipException, match="2026-11-23 was computed when it closed"):
        runs.run(kind="scheduled", waits_for=BOTH)
    assert len(runs.asked) == 1


def test_without_tables_a_run_by_schedule_is_skipped_and_one_by_hand_says_what_is_missing(runs: Runs) -> None:
    with pytest.raises(AirflowSkipException, match="orders and inventory have no tables yet"):
        runs.run(kind="scheduled")
    assert runs.asked == []

    runs.run(kind="manual")
    assert len(runs.asked) == 1


def scheduled(**given: Any) -> Any:
    """The DAG as the scheduler has it."""
    dag = batch_dag(NAME, **given)
    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


@pytest.fixture
def on_assets(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(jobs.load(settings, NAME), schedule="tables")
    monkeypatch.setattr(jobs, "load", lambda settings, name: job)


def test_by_its_schedule_it_computes_the_day_before() -> None:
    info = scheduled().next_dagrun_info(last_automated_run_info=None)

    assert (info.run_after.hour, info.partition_key) == (2, None)
    assert (info.run_after.date() - info.logical_date.date()).days == 1


def test_a_backfill_has_a_run_per_day_up_to_the_day_before_its_end() -> None:
    first, end = (datetime(2026, 11, day, tzinfo=UTC) for day in (10, 13))

    infos = list(scheduled().iter_dagrun_infos_between(first, end))

    days = [(info.run_after.date() - timedelta(days=1)).isoformat() for info in infos]
    assert days == ["2026-11-10", "2026-11-11", "2026-11-12"]
    assert [info.logical_date.date().isoformat() for info in infos] == days
    assert {info.partition_key for info in infos} == {None}, "else nobody who waits for plain assets is started"


@pytest.mark.usefixtures("on_assets")
def test_a_job_that_waits_for_tables_is_started_by_any_of_them_and_has_backfills() -> None:
    dag = scheduled()

    assert sorted(asset.uri for _, asset in dag.timetable.asset_condition.iter_assets()) == sorted(
        table_asset(table).uri for table in BOTH
    )
    assert type(dag.timetable.asset_condition).__name__.endswith("AssetAny")
    assert {"asset_triggered", "backfill", "scheduled", "manual"} <= {str(kind) for kind in dag.allowed_run_types}
    first, end = (datetime(2026, 11, day, tzinfo=UTC) for day in (10, 12))
    days = [info.run_after.date() - timedelta(days=1) for info in dag.iter_dagrun_infos_between(first, end)]
    assert (dag.timetable.periodic, days) == (True, [date(2026, 11, 10), date(2026, 11, 11)])
    assert "`enriched_orders`" in dag.doc_md and "or was published" in dag.doc_md


@pytest.mark.usefixtures("on_assets")
def test_a_job_waits_for_the_assets_that_the_team_has_named() -> None:
    dag = scheduled(asset_uri="s3://lake/{table}")

    assert {asset.uri for _, asset in dag.timetable.asset_condition.iter_assets()} == {f"s3://lake/{t}" for t in BOTH}
    with pytest.raises(ConfigurationError, match="waits for tables, but asset_uri=None"):
        batch_dag(NAME, asset_uri=None)


def test_who_may_start_it_and_what_it_updates() -> None:
    dag = batch_dag(NAME, heavy_pool="heavy", owner="sales")
    (task,) = dag.tasks

    kinds = [kind.value for kind in dag.allowed_run_types or ()]  # type: ignore[attr-defined]
    assert sorted(kinds) == sorted([*BY_HAND, "backfill", "scheduled"])
    assert (task.pool, task.owner, task.outlets) == ("heavy", "sales", [table_asset(NAME)])
    assert "enriched_orders" in str(dag.doc_md)


def test_a_project_has_a_dag_per_batch_job() -> None:
    assert list(batch_dags()) == ["daily_sales__batch"]
    with pytest.raises(ConfigurationError, match="There is no batch job 'weekly'"):
        batch_dags(["weekly"])
