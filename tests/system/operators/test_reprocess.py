"""Reprocessing by schedule in a real Airflow: equal, within the limit under kills, over it and rejected; a backfill; a
hand-over in its window.

The jobs have a bug that is repaired under the running stream; only the one that is handed over goes on without it. A
batch job behind each of them is part of all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.own_stack.conftest import NewPipeline, new_pipeline, write_job
from tests.system.operators.conftest import counted
from tests.system.replays.rest import ReplayApi

__all__ = ["new_pipeline"]

pytestmark = pytest.mark.timeout(3_000)
NAME = "amounts"
DAG_ID = f"{NAME}__reprocess"
JOB = '''"""Amounts per account and hour."""

from datetime import timedelta

from deltaworks import ChangeLimit, Corrections, Pipeline, Reprocess, StreamsBuilder, TimeWindows, Topic


def topology(builder: StreamsBuilder) -> None:
    amounts = builder.stream("amounts", key=str, value=int)
    amounts.to_delta("amounts_read")
    hours = amounts.group_by_key().windowed_by(TimeWindows(size=timedelta(hours=1), grace=timedelta(0)))
    hours.reduce(lambda total, amount: total + amount, store="totals").to_delta("amount_totals")
    hours.count(store="counts").to_delta("amount_counts")


pipeline = Pipeline(
    name="amounts",
    topology=topology,
    topics=(Topic("amounts", partitions=1), Topic("amount_corrections", partitions=1)),
    reprocess=Reprocess("SCHEDULE", days=3, limit=ChangeLimit(rows=LIMIT), cascade=True),
    corrections=Corrections("amount_corrections"),
)
'''
BALANCES = '''"""Balances of accounts."""

from datetime import time

from deltaworks import HandOver, Pipeline, Reprocess, StreamsBuilder, Topic


def topology(builder: StreamsBuilder) -> None:
    payments = builder.stream("payments", key=str, value=int).map_values(lambda amount: AMOUNT, value=int)
    payments.group_by_key().reduce(lambda total, amount: total + amount, store="balances").to_delta("balances")


pipeline = Pipeline(
    name="balances",
    topology=topology,
    topics=(Topic("payments", partitions=1),),
    reprocess=Reprocess("SCHEDULE", hand_over=HandOver(window=(time(0), time(23, 59))), cascade=True),
)
'''
BATCH = '''"""Totals of a day."""

from datetime import date
from typing import NamedTuple

from deltaworks.batch import BatchJob


class Total(NamedTuple):
    day: date
    account: str
    total: int


def daily(day, TABLE):
    from pyspark.sql import functions as F

    rows = WHERE
    return rows.groupBy(F.col("key").alias("account")).agg(F.sum("value").alias("total")).withColumn("day", F.lit(day))


job = BatchJob(
    name="NAME", pipelines=["PIPELINE"], compute=daily, row=Total, key=["day", "account"], doc="Totals", schedule=None
)
'''
HOURS = (8, 12, 16)
ODD = 7
"""The amount that the repaired code reads differently; two hours of yesterday have it."""
Totals = dict[tuple[date, int], int]


class Amounts:
    """The job, its topic and what it has written."""

    def __init__(self, stack: NewPipeline, airflow: ReplayApi) -> None:
        self.stack, self.airflow = stack, airflow
        self.days = [datetime.now(UTC).date() - timedelta(days=number) for number in (3, 2, 1)]

    def write(self, *, schedule: str = "* * * * *", limit: int = 5, amount: str = "amount") -> None:
        text = JOB.replace("SCHEDULE", schedule).replace("LIMIT", str(limit))
        text = text.replace(
            "key=str, value=int)", f"key=str, value=int).map_values(lambda amount: {amount}, value=int)"
        )
        write_job(self.stack.project, NAME, text)

    def produce(self) -> int:
        """Two amounts per hour and day, and one of today, which closes the days."""
        producer = Producer({"bootstrap.servers": self.stack.settings.bootstrap})
        sent = 0
        for day in self.days:
            for hour in HOURS:
                for amount in (10, ODD if day == self.days[2] and hour > 8 else 20):
                    self._send(producer, amount, datetime.combine(day, time(hour), UTC))
                    sent += 1
        self._send(producer, 1, datetime.now(UTC))
        assert producer.flush(30) == 0
        return sent + 1

    @staticmethod
    def _send(producer: Producer, amount: int, at: datetime) -> None:
        producer.produce("amounts", amount.to_bytes(8, "big"), b"a", timestamp=int(at.timestamp() * 1000))

    def totals(self) -> Totals:
        """Of the days that have closed."""
        found: dict[tuple[date, int], int] = {}
        for row in self.stack.table("amount_totals"):
            start: Any = row["window_start"]
            if start.date() in self.days:
                assert (start.date(), start.hour) not in found, "a window twice"
                found[start.date(), start.hour] = int(str(row["value"]))
        return found

    def compute(self) -> None:
        """Lets the batch job compute all days."""
        write_batch(self.stack, "daily_amounts", NAME, "amount_totals", 'TABLE.where(F.to_date("window_start") == day)')
        self.stack.deltaworks("batch", "daily_amounts", *(word for day in self.days for word in ("--day", str(day))))

    def is_daily(self) -> bool:
        """Whether the batch job's table has what the windows add up to."""
        sums: dict[date, int] = {}
        for (day, _), total in self.totals().items():
            sums[day] = sums.get(day, 0) + total
        return {row["day"]: row["total"] for row in self.stack.table("daily_amounts")} == sums

    def expected(self, *, odd: int = ODD) -> Totals:
        yesterday = self.days[2]
        return {(day, hour): 10 + (odd if day == yesterday and hour > 8 else 20) for day in self.days for hour in HOURS}

    def corrections(self) -> list[dict[str, Any]]:
        """What consumers of committed records are told, as of now."""
        place, found = TopicPartition("amount_corrections", 0, 0), list[dict[str, Any]]()
        settings = {"bootstrap.servers": self.stack.settings.bootstrap, "group.id": "check"}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
        consumer.assign([place])
        while (message := consumer.poll(30.0)) is not None and message.error() is None:
            found.append(json.loads(message.value() or b""))
        consumer.close()
        return found

    def publications(self) -> list[dict[str, Any]]:
        listed = json.loads(self.stack.deltaworks("replays", NAME, "--json"))["publications"]
        return [each for each in listed if each["state"] == "published"]

    def ended_after(self, earlier: set[str], kind: str = "scheduled") -> str | None:
        """The first run of a kind that has ended since."""
        runs = [run for run in self.airflow.runs(DAG_ID) if run.run_type == kind and run.dag_run_id not in earlier]
        return next((run.dag_run_id for run in reversed(runs) if run.ended), None)

    def known(self) -> set[str]:
        return {run.dag_run_id for run in self.airflow.runs(DAG_ID)}

    def states(self, run: str) -> dict[str, str | None]:
        return {task.task_id: task.state for task in self.airflow.tasks(DAG_ID, run)}

    def next_run(self, what: str, *, timeout_s: float = 600) -> dict[str, str | None]:
        """The tasks of the first run that begins from now on, once it has ended."""
        known = self.known()
        run = self.airflow.wait(what, lambda: self.ended_after(known), timeout_s=timeout_s)
        return self.states(run)


def write_batch(stack: NewPipeline, name: str, pipeline: str, table: str, rows: str) -> None:
    """Writes a batch job with totals of a table."""
    text = BATCH.replace("WHERE", rows)
    for word, meant in (("TABLE", table), ("NAME", name), ("PIPELINE", pipeline)):
        text = text.replace(word, meant)
    write_job(stack.project, f"batch/{name}", text)


@pytest.fixture
def amounts(new_pipeline: NewPipeline) -> Iterator[Amounts]:
    with ReplayApi.of(new_pipeline.settings) as airflow:
        found = Amounts(new_pipeline, airflow)
        found.write()
        airflow.wait("the job has a DAG", lambda: DAG_ID in {dag.dag_id for dag in airflow.dags()}, timeout_s=240)
        yield found
        new_pipeline.deltaworks("stop", NAME)


def skipped(states: dict[str, str | None]) -> set[str]:
    return {task for task, state in states.items() if state == "skipped"}


def test_days_are_reprocessed_on_schedule_within_the_limit_and_by_backfill(amounts: Amounts) -> None:
    airflow, stack = amounts.airflow, amounts.stack

    states = amounts.next_run("a run before the stream has ever run")
    assert set(states.values()) == {"skipped"}

    stack.deltaworks("deploy", NAME)
    count = amounts.produce()
    airflow.wait("all is in the table", lambda: len(stack.table("amounts_read")) == count, timeout_s=300)
    airflow.wait("the days have closed", lambda: amounts.totals() == amounts.expected(), timeout_s=120)

    states = amounts.next_run("a run whose result equals production")
    assert (states["unchanged"], states["publish"], states["approve"]) == ("success", "skipped", "skipped")
    assert amounts.publications() == []
    amounts.compute()
    assert amounts.is_daily()

    known = amounts.known()
    amounts.write(amount=f"8 if amount == {ODD} else amount")
    run = airflow.wait("a run of the repaired code", lambda: publishing(amounts, known), timeout_s=600)
    stack.kill("airflow-scheduler", "airflow-triggerer")
    stack.kill_driver(NAME)
    airflow.wait("it has ended in spite of the kills", lambda: airflow.run(DAG_ID, run).ended, timeout_s=900)
    assert airflow.run(DAG_ID, run).state == "success"
    assert amounts.totals() == amounts.expected(odd=8)
    (done,) = amounts.publications()
    assert set(done["tables"]) == {"amounts_read", "amount_totals"}, "the counts are equal"
    assert done["approved_by"].startswith(f"reprocess= of {NAME}: 5 rows differ")
    assert skipped(amounts.states(run)) == {"approve", "discard", "unchanged"}
    assert amounts.is_daily(), "the cascade has followed"

    states = amounts.next_run("a run after it, which finds nothing")
    assert states["unchanged"] == "success"

    known = amounts.known()
    amounts.write(amount="amount * 2")
    run = airflow.wait("a run that asks", lambda: asking(amounts, known), timeout_s=600)
    body = airflow.question(DAG_ID, run)["body"]
    assert "You are asked because 30 rows differ" in body
    assert "30 rows of at most 5" in body
    assert "| `daily_amounts` | 3 | 3 | 0 | 3 | 0 | 0 |" in body
    amounts.write(amount=f"8 if amount == {ODD} else amount", schedule="0 0 * * *", limit=100)
    airflow.noted()
    airflow.answer(DAG_ID, run, "Reject")
    airflow.wait("it was rejected", lambda: airflow.run(DAG_ID, run).ended, timeout_s=240)
    assert amounts.states(run)["publish"] == "skipped"
    assert amounts.totals() == amounts.expected(odd=8) and amounts.is_daily()
    assert len(amounts.publications()) == 1

    quiet(amounts)
    amounts.write(amount=f"9 if amount == {ODD} else amount", schedule="0 0 * * *", limit=100)
    first, last = amounts.days[0], amounts.days[2]
    backfill = airflow.backfill(DAG_ID, first.isoformat(), last.isoformat(), {})
    airflow.wait("the backfill has ended", lambda: airflow.backfill_ended(backfill), timeout_s=900)
    ends = [run for run in airflow.runs(DAG_ID) if run.run_type == "backfill"]
    assert [run.state for run in ends] == ["success"] * 3
    decided = sorted(next(iter({"publish", "unchanged"} - skipped(amounts.states(run.dag_run_id)))) for run in ends)
    assert decided == ["publish", "unchanged", "unchanged"], "only yesterday has the amount"
    assert amounts.totals() == amounts.expected(odd=9) and amounts.is_daily()
    corrected = all_told_once(amounts)
    counted(f"{len(airflow.runs(DAG_ID))} runs by schedule and backfill, {len(amounts.publications())} publications")
    counted(f"{corrected} corrections, each once, 9 windows equal each time")


def all_told_once(amounts: Amounts) -> int:
    """Compares the corrections with the publications, and what they lead to with the table; how many there are."""
    told = amounts.corrections()
    runs = {publication["run_id"] for publication in amounts.publications()}
    assert {each["run"] for each in told} == runs
    for run in runs:
        of_run = [each for each in told if each["run"] == run]
        (end,) = (each for each in of_run if each["kind"] == "end")
        assert [each["sequence"] for each in of_run if each["kind"] == "row"] == list(range(1, end["count"] + 1))
    totals = amounts.expected()
    for each in told:
        if each["kind"] == "row" and each["table"] == "amount_totals":
            start = datetime.fromisoformat(each["after"]["window_start"])
            assert totals[start.date(), start.hour] == int(each["before"]["value"]), "they begin where the table did"
            totals[start.date(), start.hour] = int(each["after"]["value"])
    assert totals == amounts.totals(), "they end where the table is"
    return sum(each["kind"] == "row" for each in told)


def publishing(amounts: Amounts, known: set[str]) -> str | None:
    """A new run that has found the difference, and is about to publish it."""
    for run in amounts.airflow.runs(DAG_ID):
        if run.dag_run_id not in known and amounts.states(run.dag_run_id).get("compare") == "success":
            return run.dag_run_id
    return None


def asking(amounts: Amounts, known: set[str]) -> str | None:
    """A new run that waits for a person, as the scheduler knows."""
    for run in amounts.airflow.runs(DAG_ID):
        if run.dag_run_id not in known and amounts.airflow.asks(DAG_ID, run.dag_run_id):
            return run.dag_run_id
    return None


def quiet(amounts: Amounts) -> None:
    """Waits until the DAG has the new schedule, and none of its runs is under way."""

    def settled() -> bool:
        airflow = amounts.airflow
        facts = airflow._get(f"/api/v2/dags/{DAG_ID}/details")
        return "0 0 * * *" in str(facts["timetable_summary"]) and all(run.ended for run in airflow.runs(DAG_ID))

    amounts.airflow.wait("the schedule is daily and no run is under way", settled, timeout_s=600)


def test_a_table_without_windows_is_handed_over_on_schedule(new_pipeline: NewPipeline) -> None:
    stack, dag_id = new_pipeline, "balances__reprocess"

    def write(amount: str, schedule: str) -> None:
        write_job(stack.project, "balances", BALANCES.replace("AMOUNT", amount).replace("SCHEDULE", schedule))

    def balances(name: str, column: str) -> dict[Any, int]:
        return {row[column]: int(str(row["value" if column == "key" else "total"])) for row in stack.table(name)}

    def produce() -> None:
        producer = Producer({"bootstrap.servers": stack.settings.bootstrap})
        for number in range(20):
            producer.produce("payments", number.to_bytes(8, "big"), b"ab"[number % 2 : number % 2 + 1])
        assert producer.flush(30) == 0

    def paid(odd: int, times: int = 1) -> dict[Any, int]:
        return {"a": 90 * times, "b": (100 + odd - 7) * times}

    write("amount", "0 0 * * *")
    with ReplayApi.of(stack.settings) as airflow:
        airflow.wait("the job has a DAG", lambda: dag_id in {dag.dag_id for dag in airflow.dags()}, timeout_s=240)
        stack.deltaworks("deploy", "balances")
        produce()
        airflow.wait("all is in the table", lambda: balances("balances", "key") == paid(7), timeout_s=300)
        write_batch(stack, "daily_balances", "balances", "balances", "balances")
        today = str(datetime.now(UTC).date())
        stack.deltaworks("batch", "daily_balances", "--day", today)
        assert balances("daily_balances", "account") == paid(7)

        write(f"8 if amount == {ODD} else amount", "* * * * *")
        airflow.wait("the stream is handed over", lambda: balances("balances", "key") == paid(8), timeout_s=900)
        write(f"8 if amount == {ODD} else amount", "0 0 * * *")
        airflow.wait(
            "the cascade has followed", lambda: balances("daily_balances", "account") == paid(8), timeout_s=600
        )
        airflow.wait("all runs have ended", lambda: all(run.ended for run in airflow.runs(dag_id)), timeout_s=600)
        assert {run.state for run in airflow.runs(dag_id)} == {"success"}
        listed = json.loads(stack.deltaworks("replays", "balances", "--json"))["handovers"]
        assert [each["state"] for each in listed] == ["handed over"], "once"
        assert listed[0]["approved_by"].startswith("reprocess= of balances: ")
        produce()
        airflow.wait("it goes on", lambda: balances("balances", "key") == paid(8, times=2), timeout_s=300)
        stack.deltaworks("stop", "balances")
