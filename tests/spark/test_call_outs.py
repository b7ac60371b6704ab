"""A live stream asks a real server that hangs, refuses, fails and comes back: each record has one answer."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control import batches, heartbeat
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.overview import overview
from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka import admin
from deltaworks.lakehouse.layout import LOG_FOLDER
from deltaworks.lakehouse.reading import dataset
from deltaworks.runtime.history import History
from deltaworks.runtime.replay.executors import InProcess
from deltaworks.runtime.replay.host import ReplayHost
from deltaworks.runtime.replay.steps import recorded_steps
from deltaworks.settings import Settings
from deltaworks.spark.streaming import request_stop
from deltaworks.topology.archives import Archives
from tests.spark.pipelines import PRICES_URL, pricing
from tests.spark.test_streaming import send
from tests.support.http_system import HttpSystem, http_system
from tests.support.live_stack import LiveStack
from tests.support.processes import running

WAIT_S, PART = 120.0, 40
pytestmark = pytest.mark.timeout(300)


class Stream:
    """The pipeline `pricing` in a home of its own."""

    def __init__(self, kafka: LiveStack, folder: Path, system: HttpSystem) -> None:
        self.kafka, self.log, self.system = kafka, folder / "log", system
        self.settings: Settings = replace(kafka.settings, home=folder / "home")
        self.paths = PipelinePaths.of(self.settings, "pricing")
        self.sent = 0

    def start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, **self.settings.process_environment(), PRICES_URL: self.system.url,
            "PYTHONPATH": ":".join(map(str, self.settings.python_path)),
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.spark.pipelines", "pricing"]
        return running(command, environment=environment, log=self.log)  # type: ignore[return-value]

    def send(self) -> None:
        """The next part of the words."""
        words = [(f"k{n}", f"w{n}", 1_000_000 + n) for n in range(self.sent, self.sent + PART)]
        send(self.kafka.bootstrap, "priced-words", words)
        self.sent += PART

    def rows(self, tables: Path | None = None) -> list[tuple[str, str]]:
        folder = (tables or self.settings.tables) / "priced"
        if not (folder / LOG_FOLDER / f"{0:020}.json").exists():
            return []
        return sorted((row["key"], row["value"]) for row in dataset(folder).to_table().to_pylist())

    def beat(self) -> Heartbeat:
        beat = heartbeat.read(self.paths.heartbeat)
        assert beat is not None
        return beat

    def until(self, fact: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not fact():
            assert process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def is_down(self) -> bool:
        return "prices" in self.beat().call_outs


def test_each_record_has_one_answer_while_the_system_misbehaves_and_in_a_replay(
    kafka: LiveStack, tmp_path: Path
) -> None:
    numbers, over = itertools.count(), threading.Event()

    def well(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return 200, str(next(numbers)).encode()

    def hanging(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        over.wait(WAIT_S)
        return 200, b"-1"

    admin.create_topics(kafka.bootstrap, admin.topic_specs(pricing.topics))
    with http_system(well) as system:
        stream = Stream(kafka, tmp_path, system)
        with stream.start() as process:
            stream.send()
            stream.until(lambda: len(stream.rows()) == stream.sent, process)

            system.answer = hanging
            stream.send()
            stream.until(stream.is_down, process)
            system.stop()  # it refuses now
            process.send_signal(signal.SIGKILL)
            process.wait()
        with stream.start() as process:
            stream.until(lambda: stream.beat().pid == process.pid and stream.is_down(), process)
            before = stream.beat().at
            stream.until(lambda: stream.beat().at > before, process)  # it waits, and says so
            (status,) = overview(stream.settings, "pricing").pipelines
            assert status.reason is not None and "down: the system of prices" in status.reason
            assert len(stream.rows()) == stream.sent - PART

            system.answer = lambda *_: (500, b"")
            system.start()
            stream.until(lambda: len(system.asked) > 2, process)
            system.answer = well
            stream.until(lambda: len(stream.rows()) == stream.sent, process)
            stream.until(lambda: not stream.is_down(), process)
            request_stop(stream.settings, "pricing")
            assert process.wait(timeout=WAIT_S) == 0, stream.log.read_text()[-3000:]
        over.set()

    rows = stream.rows()
    assert [key for key, _ in rows] == sorted(f"k{n}" for n in range(stream.sent))
    assert all(value.startswith(f"w{key[1:]}: ") and not value.endswith("-1") for key, value in rows)
    messages = [(message.key() or b"", message.value() or b"") for message in kafka.read("prices")]
    sent = sorted((key.decode(), value.decode()) for key, value in messages)
    assert sent == rows
    _replay(stream, tmp_path / "replay")
    assert stream.rows(tmp_path / "replay" / "tables") == rows


def _replay(stream: Stream, root: Path) -> None:
    """Replays all batches, while the system is gone."""
    checkpoint, plan = stored_plan(stream.paths.current.plan), pricing.plan()
    assert checkpoint is not None
    host = ReplayHost(
        pricing,
        tasks=checkpoint.tasks,
        exchange_partitions=plan.exchange_partitions(checkpoint.partitions),
        sink_partitions={"prices": 2},
        root=root,
        run_id="replay",
        clients=History(stream.kafka.bootstrap, stream.settings.tables, Archives.of(plan)),
        executor=InProcess(),
        answers=stream.paths.answers,
    )
    host.run(recorded_steps(batches.read(stream.paths.batches), {}))
