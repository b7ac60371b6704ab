"""Sinks of an author's own on real Spark: files and PostgreSQL are exact when workers and drivers are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from deltaworks.control import heartbeat
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from deltaworks.spark.streaming import request_stop
from tests.spark.pipelines import SINK_CONNINFO, SINK_FOLDER, SINK_PASSWORD, SINK_SEARCH, SINK_URL, sinking
from tests.spark.test_streaming import send
from tests.support.fake_search import FakeSearch, fake_search
from tests.support.fault_hooks import HOOK, VARIABLE
from tests.support.live_stack import LiveStack, password_of
from tests.support.own_sinks import SCHEMA, FolderSink
from tests.support.processes import running

WAIT_S, PART, WORDS = 180.0, 500, 13
pytestmark = pytest.mark.timeout(600)


class Stream:
    """The pipeline `sinking` in a home of its own."""

    def __init__(self, stack: LiveStack, folder: Path, search: FakeSearch) -> None:
        self.stack, self.files, self.faults, self.search = stack, folder / "files", folder / "faults", search
        self.settings: Settings = replace(stack.settings, home=folder / "home", fault_hook=HOOK)
        self.conninfo = (
            f"host=127.0.0.1 port={stack.settings.postgres_port} user=deltaworks dbname=deltaworks "
            f"passfile={stack.settings.pgpass}"
        )
        self.log = folder / "log"
        self.sent = 0

    def running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        paths = ":".join(map(str, self.settings.python_path))
        environment = {
            **os.environ, **self.settings.process_environment(), "PYTHONPATH": paths, VARIABLE: str(self.faults),
            SINK_FOLDER: str(self.files), SINK_CONNINFO: self.conninfo, SINK_SEARCH: self.search.url,
            SINK_URL: f"postgresql://127.0.0.1:{self.stack.settings.postgres_port}/deltaworks",
            SINK_PASSWORD: password_of(self.stack.settings, "deltaworks"),
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.spark.pipelines", "sinking"]
        return running(command, environment=environment, log=self.log)

    def send(self) -> None:
        """The next part of the words."""
        words = [(f"k{n}", f"w{n % WORDS}", 1_000_000 + n) for n in range(self.sent, self.sent + PART)]
        send(self.stack.bootstrap, "sunk-words", words)
        self.sent += PART

    def order(self, point: str) -> Path:
        """The first process that gets there is killed; the file is there when that has happened."""
        (self.faults / "inject").mkdir(parents=True, exist_ok=True)
        (self.faults / "done" / point).unlink(missing_ok=True)
        (self.faults / "inject" / point).write_text("kill")
        return self.faults / "done" / point

    def records(self) -> int:
        """Of all batches that are done."""
        return sum(len(file.read_text().splitlines()) for file in self.files.rglob("[0-9]*.jsonl"))

    def until(self, fact: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not fact():
            assert process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def rows(self) -> dict[str, tuple[str, int]]:
        with psycopg.connect(self.conninfo) as connection:
            return {key: (value, times) for key, value, times in connection.execute("SELECT * FROM totals")}


@pytest.fixture
def stream(kafka: LiveStack, postgres: LiveStack, tmp_path: Path) -> Iterator[Stream]:
    with fake_search() as search:
        stream = Stream(postgres, tmp_path, search)
        admin.create_topics(kafka.bootstrap, admin.topic_specs(sinking.topics))
        with psycopg.connect(stream.conninfo) as connection:
            connection.execute(SCHEMA)
        yield stream
        with psycopg.connect(stream.conninfo) as connection:
            connection.execute(
                "DROP TABLE totals, sink_progress; DROP TABLE IF EXISTS sunk_updates, sunk_counts, "
                "deltaworks_sink_progress"
            )


def test_files_and_rows_are_exact_through_kills_around_their_commits(stream: Stream) -> None:
    with stream.running() as process:
        stream.send()
        stream.until(lambda: stream.records() > 0, process)
        for point in ("sink.written", "sink.before_commit", "sink.after_commit"):  # of a worker, which Spark replaces
            killed = stream.order(point)
            stream.send()
            stream.until(killed.exists, process)
            stream.until(lambda: stream.records() == stream.sent, process)  # a third kill in one batch would end it
        stream.send()
        stream.until(lambda: stream.records() > stream.sent - PART, process)
        process.send_signal(signal.SIGKILL)  # in the middle of a batch, or between two
        process.wait()
    with stream.running() as process:
        stream.send()
        stream.until(lambda: stream.records() == stream.sent, process)
        request_stop(stream.settings, "sinking")
        assert process.wait(timeout=WAIT_S) == 0, stream.log.read_text()[-3000:]

    counts = Counter(n % WORDS for n in range(stream.sent))
    updates = Counter((f"w{word}", str(nth)) for word, count in counts.items() for nth in range(1, count + 1))
    assert Counter(FolderSink(str(stream.files)).lines()) == updates
    assert stream.rows() == {f"w{word}": (str(count), count) for word, count in counts.items()}
    with psycopg.connect(stream.conninfo) as connection:
        appended = connection.execute("SELECT key, value FROM sunk_updates").fetchall()
        kept = connection.execute("SELECT key, value FROM sunk_counts").fetchall()
    assert Counter(appended) == updates
    assert dict(kept) == {f"w{word}": count for word, count in counts.items()}
    assert stream.search.documents["sunk-counts"] == {f"w{word}": {"value": n} for word, n in counts.items()}
    beat = heartbeat.read(stream.settings.pipeline("sinking") / "heartbeat.json")
    assert beat is not None and beat.state == "stopped"
