"""The pipeline `prices`, whose first code fails on some records: counts in one branch, sums of prices in another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from deltaworks.topology.resend import HEADER
from tests.integration.own_stack.conftest import NewPipeline, write_job
from tests.system.replays.rest import ReplayApi

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
    on_error="ON_ERROR",
    dead_letters=DeadLetters(table="prices_dead", keep_bytes=True),
)
'''
WORSE, BETTER = "text", 'text.removeprefix("EUR ").replace(",", "")'
PRICES = ["12", "EUR 3", "7", "1,000", "EUR 5", "none"]
"""The first code fails on four of them, the repaired one on the last."""
KEYS = [f"k{number}" for number in range(30)]
BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=3)


def write(project: Path, repaired: str, on_error: str = "continue") -> None:
    """Writes the job, with this text of `price`'s argument."""
    write_job(project, NAME, JOB.replace("REPAIRED", repaired).replace("ON_ERROR", on_error))


class Prices:
    """The job, its topic, and what it has written."""

    def __init__(self, stack: NewPipeline, airflow: ReplayApi) -> None:
        self.stack, self.airflow = stack, airflow

    def write(self, repaired: str, on_error: str = "continue") -> None:
        write(self.stack.project, repaired, on_error)

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
        airflow.wait("it asks", lambda: airflow.asks(DAG_ID, run), timeout_s=300)
        airflow.noted()
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
