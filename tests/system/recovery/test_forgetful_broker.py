"""A broker that forgets soon what stock brokers forget after seven days: a stream that was stopped for longer than that
writes nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.stack import kafka as broker
from deltaworks.stack.components import read_components
from tests.support.live_stack import LiveStack
from tests.system.recovery.homes import WAIT_S, Home
from tests.system.recovery.test_ways_out import home_of

pytestmark = pytest.mark.timeout(900)

_FORGETS = """
offsets.retention.minutes=1
offsets.retention.check.interval.ms=1000
transactional.id.expiration.ms=10000
transaction.remove.expired.transaction.cleanup.interval.ms=1000
producer.id.expiration.ms=10000
producer.id.expiration.check.interval.ms=1000
"""
_TETHER = (sys.executable, "-m", "deltaworks.stack.tether", "--signal", "SIGKILL")


@pytest.fixture
def forgetful() -> Iterator[LiveStack]:
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as folder:
        settings = own_settings(Path(folder))
        settings.temporary.mkdir()
        components = read_components(settings.infra)
        only = broker.only_broker(settings)
        broker.prepare(settings, components, only, lambda _: None)
        with (settings.kafka / "server.properties").open("a") as properties:
            properties.write(_FORGETS)
        with (Path(folder) / "broker.log").open("wb") as log:
            process = subprocess.Popen(
                [*_TETHER, str(os.getpid()), *broker.command(settings, components, only)], stdout=log, stderr=log
            )
        try:
            _until(lambda: broker.is_ready(only))
            yield LiveStack(settings)
        finally:
            process.kill()
            process.wait()


def test_a_stream_that_was_stopped_for_long_writes_nothing_twice(forgetful: LiveStack, tmp_path: Path) -> None:
    home = home_of(forgetful, tmp_path, "stopped")
    home.send("stopped-in", range(10))
    home.fail_at("driver.after_tasks")  # Kafka has the records, nothing else knows
    home.catch_up(code=-signal.SIGKILL)
    assert home.committed("stopped-out") == list(range(10))

    group = Consumer({"bootstrap.servers": forgetful.bootstrap, "group.id": "somebody", "log_level": 0})
    at = TopicPartition("stopped-in", 0, 7)
    group.commit(offsets=[at], asynchronous=False)
    assert _offset(group, at) == 7
    _until(lambda: _offset(group, at) < 0)
    group.close()

    home.send("stopped-in", range(10, 20))
    home.catch_up()
    assert home.committed("stopped-out") == list(range(20))
    assert _counted(home) == 20


def _offset(group: Consumer, at: TopicPartition) -> int:
    (found,) = group.committed([TopicPartition(at.topic, at.partition)], timeout=30)
    return int(found.offset)


def _counted(home: Home) -> int:

    (row,) = DeltaTable(home.settings.tables / "stopped_counts").to_pyarrow_table().to_pylist()
    return int(row["value"])


def _until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S

    while not fact():
        assert time.monotonic() < end
        time.sleep(0.2)
