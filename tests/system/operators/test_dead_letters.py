"""Poisoned records in a real Airflow: found, repaired, sent again from a DAG and from a killed command, each once.

The topology counts all records in one branch and adds up their prices in another, so a record that went the whole way
again would show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from deltaworks.topology.resend import HEADER
from tests.integration.own_stack.conftest import NewPipeline, new_pipeline
from tests.system.replays.rest import ReplayApi

__all__ = ["new_pipeline"]

pytestmark = pytest.mark.timeout(3_000)
NAME, DAG_ID, TOPIC = "prices", "streams__dead_letters", "prices"
JOB = '''"""Prices per key and hour."""

from datetime import timedelta

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, TimeWindows, Topic


def price(text: str) -> int:
    return int(REPAIRED)


def topology(builder: StreamsBuilder) -> None:
    lines = builder.stream("prices", key=str, value=str, name="lines")
    windows = TimeWindows(size=timedelta(hours=1), grace=timedelta(days=2))
    lines.group_by_key().windowed_by(windows).count(store="all").to_delta("all_prices")
    prices = lines.map_values(price, value=int, name="price")
    prices.to_delta("prices_read")
    sums = prices.group_by_key().windowed_by(windows)
    sums.reduce(lambda total, price: total + price, store="sums").to_delta("price_sums")


pipeline = Pipeline(
    name="prices",
    topology=topology,
    topics=(Topic("prices", partitions=2),),
    on_error="continue",
    dead_letters=DeadLetters(table="prices_dead", keep_bytes=True),
)
'''
WORSE, BETTER = "text", 'text.removeprefix("EUR ").replace(",", "")'
PRICES = ["12", "EUR 3", "7", "1,000", "EUR 5", "none"]
"""The first code fails on four of them, the repaired one on the last."""
KEYS = [f"k{number}" for number in range(30)]
BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=3)


class Prices:
    """The job, its topic, and what it has written."""

    def __init__(self, stack: NewPipeline, airflow: ReplayApi) -> None:
        self.stack, self.airflow = stack, airflow

    def write(self, repaired: str) -> None:
        file = self.stack.project / "jobs" / f"{NAME}.py"
        file.with_suffix(".tmp").write_text(JOB.replace("REPAIRED", repaired))
        file.with_suffix(".tmp").replace(file)

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.stack.settings.bootstrap})
        at_ms = int(BASE.timestamp() * 1000)
        for key in KEYS:
            for number, price in enumerate(PRICES):
                producer.produce(TOPIC, price.encode(), key.encode(), timestamp=at_ms + number)
        assert producer.flush(30) == 0

    def close_days(self) -> None:
        """A record of today in each partition."""
        producer = Producer({"bootstrap.servers": self.stack.settings.bootstrap})
        for partition in range(2):
            producer.produce(TOPIC, b"1", f"today-{partition}".encode(), partition=partition)
        assert producer.flush(30) == 0

    def letters(self) -> list[dict[str, Any]]:
        return self.stack.table("prices_dead")

    def sums(self, table: str) -> dict[str, int]:
        rows: list[dict[str, Any]] = self.stack.table(table)
        of_keys = [row for row in rows if row["key"] in KEYS]
        found = {row["key"]: int(row["value"]) for row in of_keys}
        assert len(found) == len(of_keys), "a window twice"
        return found

    def send(self, conf: dict[str, Any], answer: str) -> str:
        """A run of the DAG in which somebody answers; its id, once it has ended."""
        airflow = self.airflow
        run = airflow.trigger(DAG_ID, {"pipeline": NAME, "action": "send", **conf})
        waits = ("awaiting_input", "deferred")
        airflow.wait("it asks", lambda: airflow.task(DAG_ID, run, "approve").state in waits, timeout_s=300)
        noted = datetime.now(UTC) + timedelta(seconds=5)
        airflow.wait("the scheduler knows that it waits", lambda: airflow.scheduler_beat() > noted, timeout_s=120)
        airflow.answer(DAG_ID, run, answer)
        airflow.wait("it has ended", lambda: airflow.run(DAG_ID, run).ended, timeout_s=300)
        assert airflow.run(DAG_ID, run).state == "success"
        return run

    def sent_again(self) -> int:
        """Records of the topic with the header, committed ones only."""
        settings = {"bootstrap.servers": self.stack.settings.bootstrap, "group.id": "check"}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        found = 0
        for partition in range(2):
            at = TopicPartition(TOPIC, partition)
            _, end = consumer.get_watermark_offsets(at)
            consumer.assign([TopicPartition(TOPIC, partition, 0)])
            while consumer.position([at])[0].offset < end:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                found += any(header[0] == HEADER for header in message.headers() or ())
        consumer.close()
        return found


@pytest.fixture
def prices(new_pipeline: NewPipeline) -> Iterator[Prices]:
    with ReplayApi.of(new_pipeline.settings) as airflow:
        found = Prices(new_pipeline, airflow)
        found.write(WORSE)
        airflow.wait("the DAG is there", lambda: DAG_ID in {dag.dag_id for dag in airflow.dags()}, timeout_s=240)
        yield found
        new_pipeline.deltaworks("stop", NAME)


def killed_resend(stack: NewPipeline, point: str) -> None:
    """`deltaworks dead-letters resend`, which is killed at a point."""
    code = (
        "import os, signal, sys\n"
        "from deltaworks.control import resends\n"
        "from deltaworks.cli import app\n"
        f"resends.reach = lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == {point!r} else None\n"
        f"sys.argv = ['deltaworks', 'dead-letters', 'resend', {NAME!r}, '--yes']\n"
        "app.main()\n"
    )
    environment = {**os.environ, **stack.settings.process_environment()}
    done = subprocess.run([sys.executable, "-c", code], cwd=stack.project, env=environment, check=False)
    assert done.returncode == -9


def test_records_that_failed_are_sent_again_and_each_counts_once(prices: Prices) -> None:
    airflow, stack = prices.airflow, prices.stack
    stack.deltaworks("deploy", NAME)
    prices.produce()
    airflow.wait("they have failed", lambda: len(prices.letters()) == 4 * len(KEYS), timeout_s=300)
    assert prices.sums("price_sums") == dict.fromkeys(KEYS, 19)
    assert prices.sums("all_prices") == dict.fromkeys(KEYS, 6)

    prices.write(BETTER)
    stack.deltaworks("deploy", NAME)
    run = prices.send({"key": KEYS[0]}, "Reject")
    assert airflow.task(DAG_ID, run, "send").state == "skipped"
    run = prices.send({"key": KEYS[0]}, "Approve")
    assert airflow.xcom(DAG_ID, run, "send") == 4
    wanted = dict.fromkeys(KEYS, 19) | {KEYS[0]: 1027}
    airflow.wait("three of four count", lambda: prices.sums("price_sums") == wanted, timeout_s=300)
    airflow.wait("one has failed again", lambda: len(prices.letters()) == 4 * len(KEYS) + 1, timeout_s=120)

    for point in ("resends.noted", "resends.before_commit", "resends.committed"):
        killed_resend(stack, point)
    stack.deltaworks("dead-letters", "resend", NAME, "--yes")
    wanted = dict.fromkeys(KEYS, 1027)
    airflow.wait("all count", lambda: prices.sums("price_sums") == wanted, timeout_s=300)
    assert prices.sums("all_prices") == dict.fromkeys(KEYS, 6), "the branch that had them has not counted them again"
    assert len(stack.table("prices_read")) == 5 * len(KEYS)
    failures = json.loads(stack.deltaworks("dead-letters", "resend", NAME, "--dry-run", "--json"))
    again = {group["stays"]: group["again"] for group in failures["groups"]}
    assert again[None] >= 1, "those that failed again can be sent again"
    sent = prices.sent_again()
    prices.close_days()
    count = 5 * len(KEYS) + 2
    airflow.wait("the day has closed", lambda: len(stack.table("prices_read")) == count, timeout_s=120)

    stack.deltaworks("replay", NAME, "--only-different", "--yes", "--reason", "the repaired code")
    (done,) = json.loads(stack.deltaworks("replays", NAME, "--json"))["publications"]
    assert set(done["tables"]) == {"prices_read", "prices_dead"}, "other coordinates, and no failures any more"
    assert len(stack.table("prices_read")) == count
    assert prices.sums("price_sums") == wanted
    print(f"{len(prices.letters())} dead letters, {sent} sent again, 3 kills, {len(KEYS)} sums equal")
