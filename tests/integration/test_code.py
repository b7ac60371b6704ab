"""Which code a stream runs, on real Spark, Kafka and PostgreSQL: edits reach it by a deployment and in no other way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from deltaworks import exits
from deltaworks.control import code, fence, retention
from deltaworks.control.intents import Intent
from deltaworks.control.opening import finish_with
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import StreamsError
from deltaworks.kafka.admin import TopicSpec, create_topics, delete_topics
from deltaworks.settings import Settings
from tests.support.live_stack import LiveStack

pytestmark = pytest.mark.timeout(600)

JOB = '''"""Numbers times a factor that is looked up as late as can be."""

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, Topic


def multiplied(number: int) -> int:
    from jobs.model.factors import factor

    if number < 0:
        raise ValueError("it is negative")
    return number * factor


def topology(builder: StreamsBuilder) -> None:
    builder.stream("numbered", key=str, value=int).map_values(multiplied, value=int).to_delta("multiplied")


pipeline = Pipeline(
    name="numbers",
    topology=topology,
    topics=(Topic("numbered", partitions=1),),
    dead_letters=DeadLetters(table="numbers_failed"),
)
'''


@dataclass(frozen=True)
class Numbers:
    """A project with one job, and the commands of its people."""

    settings: Settings

    def write(self, factor: int, more: str = "") -> None:
        """The code as it is in the project."""
        folder = self.settings.project / "jobs"
        (folder / "model").mkdir(parents=True, exist_ok=True)
        (folder / "model" / "factors.py").write_text(f"factor = {factor}\n")
        (folder / "numbers.py").write_text(JOB + more)

    def send(self, *numbers: int) -> None:
        producer = Producer({"bootstrap.servers": self.settings.bootstrap, "log_level": 0})
        for number in numbers:
            producer.produce("numbered", number.to_bytes(8, "big", signed=True), b"k")
        assert producer.flush(30) == 0

    def deltaworks(self, *arguments: str, code: int = exits.OK) -> str:
        """What the command line says."""
        done = subprocess.run(
            [sys.executable, "-m", "deltaworks.cli", *arguments], capture_output=True, text=True, check=False,
            cwd=self.settings.project, env={**os.environ, **self.settings.process_environment()},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def rows(self, table: str) -> list[dict[str, Any]]:
        folder = self.settings.tables / table
        return DeltaTable(folder).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(folder)) else []

    def results(self) -> list[int]:
        """In the order of the records."""
        return [row["value"] for row in sorted(self.rows("multiplied"), key=lambda row: row["source_offset"])]

    def await_results(self, count: int, timeout_s: float = 120) -> list[int]:
        end = time.monotonic() + timeout_s
        while len(found := self.results()) < count:
            log = self.settings.logs / "numbers.log"
            assert time.monotonic() < end, log.read_text()[-3_000:] if log.exists() else "it never started"
            time.sleep(0.1)
        return found

    def await_end(self, generation: int, timeout_s: float = 120) -> None:
        """Until that driver has left its word."""
        end = time.monotonic() + timeout_s
        while not PipelinePaths.of(self.settings, "numbers").outcome(generation).exists():
            assert time.monotonic() < end, "it runs on"
            time.sleep(0.1)


@pytest.fixture
def numbers(kafka: LiveStack, postgres: LiveStack, tmp_path: Path) -> Iterator[Numbers]:
    project = tmp_path / "project"
    package, *_ = kafka.settings.python_path
    found = Numbers(replace(kafka.settings, project=project, python_path=(package, project), cores=1))
    found.write(1)
    create_topics(kafka.bootstrap, [TopicSpec(name="numbered", partitions=1)])
    try:
        yield found
    finally:
        found.deltaworks("stop", "numbers", "--timeout", "20")
        delete_topics(kafka.bootstrap, ["numbered"])


@pytest.mark.slow
def test_a_stream_runs_the_code_that_was_deployed_until_other_code_is(numbers: Numbers) -> None:
    numbers.deltaworks("deploy", "numbers")
    numbers.write(1_000, "raise SystemExit('this was never deployed')\n")
    numbers.send(1, 2)  # the factor is looked up now
    assert numbers.await_results(2) == [1, 2]

    numbers.deltaworks("restart", "numbers")
    numbers.send(3)
    assert numbers.await_results(3) == [1, 2, 3]

    numbers.write(1_000)
    numbers.deltaworks("deploy", "numbers")
    numbers.send(4)
    assert numbers.await_results(4) == [1, 2, 3, 4_000]

    # A record that always fails: the batch stays open, other code comes, and the old code finishes the batch.
    numbers.send(-5, 6)
    paths = PipelinePaths.of(numbers.settings, "numbers")
    generation = fence.read(paths.fence)
    numbers.await_end(generation)
    numbers.write(1_000_000)
    numbers.send(7)
    old = retention.code_of(paths, generation)
    assert old is not None and old != code.digest(replace(numbers.settings))
    begun = Intent(batch=3, lineage="", query="", generation=generation, code=old, clock_ms=0, tick=False, ranges=[],
                   end={}, previous="")  # fmt: skip
    with pytest.raises(StreamsError, match=r"`deltaworks set-aside numbers numbered-0@4` turns failing records"):
        finish_with(numbers.settings, "numbers", generation, begun)

    assert "Records set aside: 1 new" in numbers.deltaworks(
        "set-aside", "numbers", "numbered-0@4", "--reason", "negative"
    )
    assert finish_with(numbers.settings, "numbers", generation, begun)
    assert numbers.results() == [1, 2, 3, 4_000, 6_000]
    (letter,) = numbers.rows("numbers_failed")
    assert letter["error_class"] == "deltaworks.errors.SetAsideError" and letter["offset"] == 4
    numbers.deltaworks("set-aside", "numbers", "numbered-0@4", "--remove", code=exits.CONFLICT)

    numbers.deltaworks("deploy", "numbers")
    assert numbers.await_results(6) == [1, 2, 3, 4_000, 6_000, 7_000_000]
    assert len(numbers.rows("numbers_failed")) == 1
