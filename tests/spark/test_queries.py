"""A stream is asked all the time while it runs, and every answer is what its records up to the answer's batch give."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from deltaworks import exits
from deltaworks.errors import ConfigurationError, StoreUnavailableError
from deltaworks.kafka import admin
from deltaworks.kafka.ranges import Offsets
from deltaworks.queries.answers import AsOf
from deltaworks.queries.kinds import Stream
from deltaworks.settings import Settings
from deltaworks.spark.streaming import request_stop
from tests.spark.pipelines import asked
from tests.spark.test_streaming import WAIT_S, run, send
from tests.support.live_stack import LiveStack

pytestmark = pytest.mark.timeout(600)
RECORDS, PORTIONS = 3_000, 30
Read = dict[int, list[tuple[str, str]]]
"""Partition -> key and value of its records, by offset."""


@pytest.fixture
def settings(kafka: LiveStack, tmp_path: Path) -> Settings:
    return replace(kafka.settings, home=tmp_path)


def read_all(bootstrap: str, topic: str, partitions: int, count: int) -> Read:
    found: Read = {p: [] for p in range(partitions)}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle", "log_level": 0})
    consumer.assign([TopicPartition(topic, p, 0) for p in found])
    try:
        while sum(map(len, found.values())) < count:
            for message in consumer.consume(1_000, timeout=1):
                key, value, partition = message.key(), message.value(), message.partition()
                assert message.error() is None and key is not None and value is not None and partition is not None
                found[partition].append((key.decode(), value.decode()))
    finally:
        consumer.close()
    return found


def expected(records: Read, offsets: Offsets, field: int) -> dict[str, int]:
    """The counts of keys (0) or of values (1) up to some offsets."""
    until = {p: offsets["asked-words"][str(p)] for p in records}
    return dict(Counter(record[field] for p, part in records.items() for record in part[: until[p]]))


def opened(settings: Settings, process: subprocess.Popen[bytes]) -> Stream:
    """The stream, as soon as it has a plan."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return Stream(asked, settings, patience=timedelta(seconds=30))
        except ConfigurationError:
            assert process.poll() is None, (settings.home / "asked.log").read_text()[-3000:]
            assert time.monotonic() < deadline, "the stream has no plan"
            time.sleep(0.05)


def portions() -> Iterator[list[tuple[str, str, int]]]:
    words = [(f"k{i % 41}", f"w{i * i % 23}", 1_000_000 + i) for i in range(RECORDS)]
    size = RECORDS // PORTIONS
    return (words[begin : begin + size] for begin in range(0, RECORDS, size))


def test_every_answer_of_a_running_stream_is_of_the_batch_that_it_names(kafka: LiveStack, settings: Settings) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(asked.topics))
    pages: list[tuple[int, AsOf, dict[str, int]]] = []
    single: list[tuple[int, AsOf, str, int | None]] = []
    busy = 0
    with run(kafka, settings, "asked") as process:
        with opened(settings, process) as stream:
            for number, portion in enumerate(portions()):
                send(kafka.bootstrap, "asked-words", portion)
                until_s = time.monotonic() + 0.3
                while time.monotonic() < until_s:
                    try:
                        for field, name in enumerate(("asked-keys", "asked-words")):
                            page = stream.store(name).all()
                            pages.append((field, page.as_of, {row.key: row.value for row in page.rows}))
                            key = f"{'kw'[field]}{number % 20}"
                            found = stream.store(name).get(key)
                            single.append((field, found.as_of, key, found.value))
                    except StoreUnavailableError:
                        busy += 1
            last = 0
            deadline = time.monotonic() + WAIT_S
            while sum(stream.store("asked-keys").all().as_of.offsets["asked-words"].values()) < RECORDS:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            page = stream.store("asked-words").all()
            last = page.as_of.batch
            assert stream.store("asked-words").get("w0", min_batch=last).as_of.batch >= last
        request_stop(settings, "asked")
        assert process.wait(timeout=WAIT_S) == exits.OK
    with Stream(asked, settings) as stream:  # it has ended, and is still there to be read
        ended = stream.store("asked-words").all()

    records = read_all(kafka.bootstrap, "asked-words", 3, RECORDS)
    pages.append((1, ended.as_of, {row.key: row.value for row in ended.rows}))
    for field, as_of, found in pages:
        assert found == expected(records, as_of.offsets, field), f"batch {as_of.batch}"
    for field, as_of, key, value in single:
        assert value == expected(records, as_of.offsets, field).get(key), f"batch {as_of.batch}, {key}"
    assert len({as_of.batch for _, as_of, _ in pages}) > 5, "answers of many batches were compared"
    assert sum(pages[-1][2].values()) == RECORDS
    assert busy < len(pages) / 10
