"""Up and down with the real broker."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from deltaworks import processes
from deltaworks.errors import StackError
from deltaworks.kafka.admin import TopicSpec, answers, create_topics, settled_end_offsets
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.lifecycle import down, log_of, status, up
from tests.live_stack import own_settings, read_all


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    settings = own_settings(tmp_path / "home")
    try:
        yield settings
    finally:
        down(settings)


def is_down(settings: Settings) -> bool:
    """Nothing of the stack runs, listens or lies about."""
    return (
        ports.is_free(settings.broker_port)
        and ports.is_free(settings.controller_port)
        and not settings.run.exists()
        and not settings.temporary.exists()
        and not [p for p in psutil.process_iter(["cmdline"]) if str(settings.home) in " ".join(p.info["cmdline"] or [])]
    )


def test_up_is_idempotent_status_tells_and_down_leaves_nothing(settings: Settings) -> None:
    told: list[str] = []
    first = up(settings, told.append, tethered=True)
    second = up(settings, tethered=True)

    assert (first.started_now, second.started_now, second.pid) == (True, False, first.pid)
    assert second.ready_s < 2
    assert any("starting" in line for line in told)
    (entry,) = status(settings)
    assert (entry.name, entry.state, entry.pid) == ("kafka", "running", first.pid)
    assert entry.ports == (settings.broker_port, settings.controller_port)
    assert 50 < entry.memory_mb < 1_000
    assert log_of(settings, "kafka").is_file()

    assert down(settings) == ["kafka"]
    assert is_down(settings)
    assert down(settings) == []


def test_a_broker_that_was_killed_comes_back_with_its_records(settings: Settings) -> None:
    killed = up(settings, tethered=True)
    create_topics(settings.bootstrap, [TopicSpec(name="old", partitions=1)])
    producer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("old", b"v", b"k", timestamp=1_000)
    producer.commit_transaction(30)
    settled_end_offsets(settings.bootstrap, ["old"])
    os.kill(killed.pid, signal.SIGKILL)
    told: list[str] = []

    again = up(settings, told.append, tethered=True)

    assert again.started_now
    assert told[0] == f"kafka: process {killed.pid} is gone (crash or restart of the machine), starting it again"
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in read_all(settings.bootstrap, "old")] == [
        (b"k", b"v", 1_000)
    ]


def test_a_port_that_is_taken_names_the_holder_and_starts_nothing(settings: Settings) -> None:
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", settings.broker_port))
        holder.listen()

        with pytest.raises(StackError) as raised:
            up(settings)

    assert f"Port {settings.broker_port}" in str(raised.value)
    assert f"process {os.getpid()}" in str(raised.value)
    assert "DELTAWORKS_BOOTSTRAP=" in str(raised.value)
    assert is_down(settings)


def test_a_broker_that_dies_at_once_shows_the_end_of_its_log(settings: Settings) -> None:
    with pytest.raises(StackError) as raised:
        up(replace(settings, broker_options=("-Xmx1k",)))

    assert "ended while it was starting" in str(raised.value)
    assert "Too small maximum heap" in str(raised.value)
    assert str(settings.logs / "kafka.log") in str(raised.value)
    assert not answers(settings.bootstrap, timeout_s=0.5)
    assert status(settings) == []


def test_a_full_disk_is_noticed_before_anything_starts(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(settings.project)._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(StackError, match=r"has 5 MB free; Kafka is not started with less than 1024 MB"):
        up(settings)

    assert is_down(settings)


def test_down_stops_pipelines_before_kafka_and_what_they_left_behind(settings: Settings) -> None:
    up(settings, tethered=True)
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    command = [sys.executable, "-c", child + "time.sleep(600)"]
    entry = processes.launch(
        settings.run, name="orders", kind="pipeline", command=command, log=settings.logs / "orders.log"
    )

    assert down(settings) == ["orders", "kafka"]
    assert entry.members() == []
    assert is_down(settings)


def test_down_can_delete_the_data(settings: Settings) -> None:
    up(settings, tethered=True)

    down(settings, delete_data=True)

    assert not settings.home.exists()
