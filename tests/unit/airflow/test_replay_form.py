"""What the forms of the replays let through, and which day a run is for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from deltaworks.airflow.replay import replay_dag
from deltaworks.airflow.replay_form import Tables, replay_form
from deltaworks.dsl.builder import StreamsBuilder
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.serdes import String
from jobs.orders import pipeline
from tests.unit.airflow.since import AIRFLOW_3_3

TABLES = Tables.of(pipeline)


def scheduled() -> Any:
    """The DAG as the scheduler has it."""
    dag = replay_dag("orders")
    assert isinstance(dag, DAG)
    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


def test_tables_with_and_without_days_are_told_apart() -> None:
    expected = Tables(
        with_days=("enriched_orders", "order_counts", "user_revenue", "user_sessions", "dead_letters"),
        whole=("users", "users_changelog"),
    )
    assert expected == TABLES


def test_no_field_has_to_be_given() -> None:
    assert {name: field.resolve() for name, field in replay_form(TABLES).items()} == {
        "action": "replay",
        "run": None,
        "from": None,
        "to": None,
        "tables": [],
        "order": "recorded",
        "hand_over": False,
        "cascade": False,
        "approval": True,
        "reason": "",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("from", "2026-11-22"),
        ("to", None),
        ("tables", ["order_counts", "users"]),
        ("order", "time"),
        ("approval", False),
        ("reason", "prices were wrong"),
    ],
)
def test_what_makes_sense_is_taken(name: str, value: Any) -> None:
    assert replay_form(TABLES)[name].resolve(value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("from", day) for day in ("2026-11-31", "22.11.2026", "2026-11-22T00:00:00Z", "", 5)),
        *(("tables", tables) for tables in (["other"], ["users", "users"], "users")),
        ("order", "random"),
        ("approval", "yes"),
        ("reason", None),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        replay_form(TABLES)[name].resolve(value)


def test_every_field_has_a_title_and_a_description() -> None:
    fields = replay_form(TABLES)

    assert [name for name, field in fields.items() if not (field.schema.get("title") and field.description)] == []


def test_a_backfill_has_a_run_per_day_both_ends_included() -> None:
    days = scheduled().iter_dagrun_infos_between(datetime(2026, 11, 10, tzinfo=UTC), datetime(2026, 11, 12, tzinfo=UTC))

    assert [day.partition_key for day in days] == ["2026-11-10", "2026-11-11", "2026-11-12"]


@pytest.mark.skipif(not AIRFLOW_3_3, reason="Airflow 3.2 leaves the partition key to the first task")
def test_a_run_by_hand_is_for_a_day_and_for_nothing_else() -> None:
    timetable = scheduled().timetable

    assert timetable.resolve_partition_date("2026-11-22") == datetime(2026, 11, 22, tzinfo=UTC)
    with pytest.raises(ValueError, match="does not match"):
        timetable.resolve_partition_date("22.11.2026")


def test_midnight_starts_nothing_even_if_the_dag_is_not_paused() -> None:
    dag = scheduled()

    assert dag.next_dagrun_info(last_automated_run_info=None) is None
    assert dag.timetable.periodic


def test_a_pipeline_without_tables_has_nothing_to_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=String(), value=String()).to("out")

    monkeypatch.setattr("deltaworks.control.jobs.load", lambda settings, name: Pipeline(name="bare", topology=topology))

    assert replay_dag("bare") is None


def test_a_pipeline_of_ktables_only_has_no_days(monkeypatch: pytest.MonkeyPatch) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.table("in", key=String(), value=String(), store="latest").to_delta("latest")

    monkeypatch.setattr("deltaworks.control.jobs.load", lambda settings, name: Pipeline(name="bare", topology=topology))

    dag = replay_dag("bare")
    assert dag is not None
    serialized: Any = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert not serialized.timetable.periodic, "so that it cannot have a backfill"
    assert "backfill" not in (dag.doc_md or "")
