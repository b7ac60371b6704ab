"""A day that closes, in a real Airflow: its event, an analyst's report, a batch job that waits for it, a backfill."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from deltaworks.airflow.days import DAG_ID as DAYS
from deltaworks.airflow.events import TableEvent
from deltaworks.errors import StackError
from tests.integration.own_stack.conftest import NewPipeline
from tests.system.replays.rest import ReplayApi

TABLE = "enriched_orders"
JOB = '''"""Orders per item and day."""

from datetime import date

import msgspec

from deltaworks.batch import BatchJob


class ItemsOfDay(msgspec.Struct, frozen=True):
    day: date
    item: str
    orders: int


def items_of_day(day, enriched_orders):
    from pyspark.sql import functions as F

    of_day = enriched_orders.where(F.to_date("timestamp") == F.lit(day))
    return of_day.groupBy("item").agg(F.count("*").alias("orders")).withColumn("day", F.lit(day))


job = BatchJob(
    name="items_of_day",
    pipelines=["orders"],
    compute=items_of_day,
    row=ItemsOfDay,
    key=["day", "item"],
    doc="Orders per item",
    schedule="tables",
)
'''
BATCH, REPORT = "items_of_day__batch", "orders_report"


def today() -> date:
    """What counts as today for a day that closes five minutes after midnight."""
    return (datetime.now(UTC) - timedelta(minutes=5)).date()


def produce(bootstrap: str, days: dict[date, list[str]]) -> int:
    """A user, then one order per item at noon of each day; how many orders."""
    producer = Producer({"bootstrap.servers": bootstrap})

    def send(topic: str, at: datetime, **fields: Any) -> None:
        producer.produce(topic, json.dumps(fields), key="u-1", timestamp=int(at.timestamp() * 1000))

    sent = 0
    first = datetime.combine(min(days), time(), UTC)
    send("user-data", first, user_id="u-1", name="Ann", country="FR")
    assert producer.flush(30) == 0
    for day, items in sorted(days.items()):
        at = datetime.combine(day, time(12), UTC)
        for item in items:
            sent += 1
            order = {"order_id": f"o-{sent}", "user_id": "u-1", "amount": "2.50", "type": "STANDARD", "item": item}
            send("raw-orders", at, **order, location="FR/Paris", event_time=at.isoformat())
    assert producer.flush(30) == 0
    return sent


def told(airflow: ReplayApi) -> list[TableEvent]:
    """The events of the table, oldest first."""
    path = f"/api/v2/assets/events?source_dag_id={DAYS}&order_by=timestamp&limit=1000"
    found = [msgspec.convert(event["extra"], TableEvent) for event in airflow._get(path)["asset_events"]]
    return [event for event in found if event.table == TABLE]


def looked(airflow: ReplayApi) -> bool:
    """Has `streams__days` look once more, from the beginning to the end."""
    run = airflow.trigger(DAYS)
    return bool(airflow.wait("somebody looks", lambda: airflow.run(DAYS, run).ended, timeout_s=240))


def tells(airflow: ReplayApi) -> list[TableEvent] | None:
    looked(airflow)
    return told(airflow) or None


@pytest.fixture
def airflow(new_pipeline: NewPipeline) -> Iterator[ReplayApi]:
    """With the job, and the stream of the orders, which has read what there is."""
    job = new_pipeline.project / "jobs" / "batch" / "items_of_day.py"
    job.write_text(JOB)
    with ReplayApi.of(new_pipeline.settings) as airflow:
        airflow.wait("the job has a DAG", lambda: BATCH in {dag.dag_id for dag in airflow.dags()}, timeout_s=240)
        new_pipeline.deltaworks("deploy", "orders")
        try:
            yield airflow
        finally:
            new_pipeline.deltaworks("stop", "orders")
            job.unlink()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_day_that_closes_starts_who_waits_for_it_and_is_told_once(
    new_pipeline: NewPipeline, airflow: ReplayApi
) -> None:
    day = today() - timedelta(days=1)
    before = [day - timedelta(days=2), day - timedelta(days=1)]
    orders = produce(
        new_pipeline.settings.bootstrap, {before[0]: ["lamp"], before[1]: ["lamp", "sofa"], day: ["lamp", "lamp"]}
    )
    airflow.wait("the orders are in the table", lambda: len(new_pipeline.table(TABLE)) == orders, timeout_s=400)

    (event,) = airflow.wait("the day has closed", lambda: tells(airflow), timeout_s=300)

    assert (event.why, event.days, event.pipeline) == ("closed", [day], "orders")
    (run,) = airflow.wait("the job has run", lambda: ended(airflow, BATCH, "asset_triggered"), timeout_s=600)
    assert run == "success"
    assert rows(new_pipeline) == {(day, "lamp"): 2}
    (run,) = airflow.wait("the report was written", lambda: ended(airflow, REPORT, "asset_triggered"), timeout_s=240)
    assert run == "success"
    with (new_pipeline.settings.airflow / "reports" / f"orders-{day}.csv").open() as file:
        assert [(row["item"], row["orders"]) for row in csv.DictReader(file)] == [("lamp", "2")]

    looked(airflow)
    assert [each.days for each in told(airflow)] == [[day]], "nobody is told twice"

    backfill = airflow.backfill(BATCH, before[0].isoformat(), day.isoformat(), {})
    airflow.wait("the backfill has ended", lambda: airflow.backfill_ended(backfill), timeout_s=600)
    earlier = {(before[0], "lamp"): 1, (before[1], "lamp"): 1, (before[1], "sofa"): 1}
    assert rows(new_pipeline) == {(day, "lamp"): 2} | earlier
    assert ended(airflow, BATCH, "backfill") == ["success", "success"]


def ended(airflow: ReplayApi, dag_id: str, kind: str) -> list[str] | None:
    """How the runs of a kind have ended; None: none has, or one still runs."""
    try:
        runs = [run for run in airflow.runs(dag_id) if run.run_type == kind]
    except StackError:
        return None
    return [run.state for run in runs] if runs and all(run.ended for run in runs) else None


def rows(stack: NewPipeline) -> dict[tuple[object, object], object]:
    return {(row["day"], row["item"]): row["orders"] for row in stack.table("items_of_day")}
