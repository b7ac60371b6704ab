"""Pipelines on real Spark: results, drain and restart, refusals, failures with their reason."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from deltaworks import exits
from deltaworks.control import heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from deltaworks.spark.streaming import request_stop
from tests.spark.pipelines import bereft, counting, failing, recreated, traced
from tests.support.live_stack import LiveStack
from tests.support.otlp import otlp_receiver
from tests.support.processes import running
from tests.support.recorded_batches import compare_stores, replay

WAIT_S = 180.0
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def settings(kafka: LiveStack, tmp_path: Path) -> Settings:
    return replace(kafka.settings, home=tmp_path)


def command(name: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "tests.spark.pipelines", name, *options]


def environment(kafka: LiveStack, settings: Settings) -> dict[str, str]:
    paths = ":".join(map(str, settings.python_path))
    return kafka.environment() | {"DELTAWORKS_HOME": str(settings.home), "PYTHONPATH": paths}


def beat_of(settings: Settings, name: str) -> Heartbeat | None:
    return heartbeat.read(settings.pipeline(name) / "heartbeat.json")


def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline, f"{what} within {WAIT_S:.0f} s"
        time.sleep(0.05)


def run(kafka: LiveStack, settings: Settings, name: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(command(name), environment=environment(kafka, settings), log=settings.home / f"{name}.log")


def send(bootstrap: str, topic: str, records: Sequence[tuple[str, str, int]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "log_level": 0})
    for key, value, timestamp_ms in records:
        producer.produce(topic, value.encode(), key.encode(), timestamp=timestamp_ms)
    producer.flush()


def hooks(settings: Settings, name: str) -> list[str]:
    """The calls of the pipeline's `on_start` and `on_stop`."""
    lines = (settings.home / f"{name}.log").read_text().splitlines()
    return [line.removeprefix("HOOK ") for line in lines if line.startswith("HOOK ")]


def test_a_stream_counts_across_an_exchange_drains_and_goes_on_where_it_stopped(
    kafka: LiveStack, settings: Settings
) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(counting.topics))
    words = [(f"k{i % 7}", "abcde"[i % 5], 1_000_000 + 40 * i) for i in range(2_000)]

    for half in (words[:1000], words[1000:]):
        with run(kafka, settings, "counting") as process:
            send(kafka.bootstrap, "words", half)

            def caught_up(process: subprocess.Popen[bytes] = process) -> bool:
                beat = beat_of(settings, "counting")
                assert process.poll() is None, (settings.home / "counting.log").read_text()[-3000:]
                mine = beat is not None and beat.pid == process.pid
                return mine and beat is not None and beat.records_total == 1000

            until(caught_up, "all records are processed")
            second = subprocess.run(
                command("counting"), env=environment(kafka, settings), capture_output=True, text=True, check=False
            )
            assert "LeaseError" in second.stderr and f"pid {process.pid}" in second.stderr
            request_stop(settings, "counting")
            assert process.wait(timeout=WAIT_S) == exits.OK

    beat = beat_of(settings, "counting")
    assert beat is not None and beat.state == "stopped" and beat.error is None
    assert hooks(settings, "counting") == ["started", "stopped orderly"] * 2
    recording = replay(settings, counting)
    assert compare_stores(settings, counting) == []
    counts = {(row.key, row.start_ms): row.value for task in recording.tasks.values()
              for row in task.rows.get("word_counts", []) if row.kind == "window"}  # fmt: skip
    rows = DeltaTable(settings.tables / "word_counts").to_pyarrow_table().to_pylist()
    assert {(row["key"], int(row["window_start"].timestamp() * 1000)): row["value"] for row in rows} == counts
    assert sum(counts.values()) + beat.late_records >= 1000
    users = DeltaTable(settings.tables / "last_words").to_pyarrow_table()
    assert sorted(users["key"].to_pylist()) == [f"k{i}" for i in range(7)]
    assert sorted((row["key"], row["value"]) for row in rows) == read_with_delta_spark(kafka, settings, "word_counts")


def read_with_delta_spark(kafka: LiveStack, settings: Settings, table: str) -> list[tuple[str, int]]:
    """Key and value of every row, as Spark's own reader sees them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.read_with_delta_spark", str(settings.tables / table)],
        env=environment(kafka, settings), capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [json.loads(line.removeprefix("ROW ")) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    return sorted((row["key"], row["value"]) for row in rows)


def test_a_record_that_fails_ends_the_stream_with_its_reason(kafka: LiveStack, settings: Settings) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(failing.topics))
    send(kafka.bootstrap, "numbers", [("a", "1", 1), ("a", "two", 2)])
    with run(kafka, settings, "failing") as process:
        assert process.wait(timeout=WAIT_S) == exits.DATA
    beat = beat_of(settings, "failing")
    assert beat is not None and beat.state == "failed" and beat.error is not None
    assert "StreamsError" in beat.error and "numbers-" in beat.error and "offset 1" in beat.error
    assert kafka.read("doubled") == []
    assert hooks(settings, "failing") == ["started", "stopped with an error"]


@pytest.mark.slow
def test_each_batch_of_a_stream_has_a_trace_and_the_one_that_fails_says_so(
    kafka: LiveStack, settings: Settings, tmp_path: Path
) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(traced.topics))
    with otlp_receiver() as received:
        (tmp_path / "deltaworks.toml").write_text(f'[traces]\nendpoint = "{received.endpoint}"\n')
        variables = environment(kafka, settings) | {"DELTAWORKS_PROJECT": str(tmp_path)}
        with running(command("traced"), environment=variables, log=settings.home / "traced.log") as process:
            for number in range(3):
                send(kafka.bootstrap, "traced-numbers", [("a", str(number), 1)])

                def is_read(number: int = number) -> bool:
                    beat = beat_of(settings, "traced")
                    return beat is not None and beat.records_total > number

                until(is_read, "it is read")
            send(kafka.bootstrap, "traced-numbers", [("a", "two", 2)])
            assert process.wait(timeout=WAIT_S) == exits.DATA
        spans = received.spans
    roots = [span for span in spans if not span.parent_id]
    assert [root.failed for root in roots] == [False] * (len(roots) - 1) + [True]
    assert sum(root.attributes["messaging.batch.message_count"] for root in roots[:-1]) == 3
    assert len({root.trace_id for root in roots}) == len(roots)
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        parent = by_id.get(span.parent_id, span)
        assert parent.begin_ns <= span.begin_ns <= span.end_ns <= parent.end_ns, (parent.name, span.name)
    names = {span.name for span in spans}
    assert {"latestOffset", "walCommit", "addBatch", "commitOffsets", "tasks", "tables", "after"} <= names
    assert {"poll traced-numbers", "process traced-numbers", "commit transaction"} <= names
    assert not any("two" in repr((span.message, span.attributes)) for span in spans), "the record that failed"


def test_a_stream_whose_jvm_was_killed_says_so(kafka: LiveStack, settings: Settings) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(bereft.topics))
    with run(kafka, settings, "bereft") as process:
        until(lambda: (beat := beat_of(settings, "bereft")) is not None and beat.state == "running", "it runs")
        (jvm,) = (child for child in psutil.Process(process.pid).children() if child.name() == "java")
        jvm.kill()
        assert process.wait(timeout=WAIT_S) == exits.UNAVAILABLE
    beat = beat_of(settings, "bereft")
    assert beat is not None and beat.state == "failed" and beat.error is not None
    assert beat.error.startswith(f"Spark's JVM (process {jvm.pid}) was ended by SIGKILL.")


def test_a_stream_that_refuses_what_it_finds_never_says_that_it_runs(kafka: LiveStack, settings: Settings) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(recreated.topics))
    send(kafka.bootstrap, "recreated-words", [("a", "1", 1)])

    def states(enough: Callable[[Heartbeat], bool]) -> list[str]:
        """What it is seen to say of itself until it ends, or until it is stopped."""
        said: list[str] = []
        with run(kafka, settings, "recreated") as process:

            def ended() -> bool:
                beat = beat_of(settings, "recreated")
                if beat is not None and beat.pid == process.pid:
                    if beat.state not in said:
                        said.append(beat.state)
                    if enough(beat):
                        request_stop(settings, "recreated")
                return process.poll() is not None

            until(ended, "an end")
            ended()
        return said

    assert "running" in states(lambda beat: beat.records_total == 1)
    admin.delete_topics(kafka.bootstrap, ["recreated-words"])
    admin.create_topics(kafka.bootstrap, admin.topic_specs(recreated.topics))
    assert "running" not in states(lambda beat: False)
    beat = beat_of(settings, "recreated")
    assert beat is not None and beat.error is not None and "recreated" in beat.error


def test_another_topology_is_refused_before_spark_starts(kafka: LiveStack, settings: Settings) -> None:
    """The plan of the first test's shape under the name of another."""
    from deltaworks.errors import IncompatibleCheckpointError
    from deltaworks.spark.streaming import run

    admin.create_topics(kafka.bootstrap, [*admin.topic_specs(counting.topics), *admin.topic_specs(failing.topics)])
    other = replace(failing, name="counting")
    from deltaworks.control.checkpoint import open_plan

    plan = counting.plan()
    open_plan(settings.pipeline("counting") / "plan.json", "counting", plan.fingerprint(), {"words": 3}, (3, 3), 2)
    with pytest.raises(IncompatibleCheckpointError, match="word-counts"):
        run(other, settings)
