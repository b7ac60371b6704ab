"""On real Spark and Kafka: topics get partitions under a stream, which goes on, is rescaled, and is killed after it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable

from deltaworks import exits
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from tests.spark.pipelines import growing
from tests.spark.test_streaming import beat_of, environment, run, send, until
from tests.support.live_stack import LiveStack

pytestmark = pytest.mark.timeout(1800)
KEYS = [f"k{number}" for number in range(40)]


class Written:
    """What was written to the topics, and what follows from it."""

    def __init__(self, kafka: LiveStack) -> None:
        self.kafka = kafka
        self.visits: Counter[str] = Counter()
        self.pages: Counter[str] = Counter()
        self.named: Counter[str] = Counter()

    def users(self) -> None:
        send(self.kafka.bootstrap, "growing-users", [(key, f"user-{key}", 1_000_000) for key in KEYS])

    def visit(self, page: str, times: int) -> int:
        """Each key visits a page; all visits are in one window."""
        visits = [(key, page, 1_000_000 + number) for number, key in enumerate(KEYS * times)]
        send(self.kafka.bootstrap, "growing-visits", visits)
        for key, _, _ in visits:
            self.visits[key] += 1
            self.pages[page] += 1
            self.named[f"{page} user-{key}"] += 1
        return len(visits)

    def require(self, settings: Settings) -> None:
        """The tables and the topic have exactly that."""
        windows = DeltaTable(settings.tables / "growing_windows").to_pyarrow_table().to_pylist()
        assert (
            len({row["key"] for row in windows}) == len(windows)
            and {r["key"]: r["value"] for r in windows} == self.visits
        )
        pages = DeltaTable(settings.tables / "growing_pages").to_pyarrow_table().to_pylist()
        assert {row["key"]: row["value"] for row in pages} == self.pages
        assert Counter((message.value() or b"").decode() for message in self.kafka.read("growing-named")) == self.named


@pytest.mark.slow
def test_topics_get_partitions_under_a_stream(kafka: LiveStack, tmp_path: Path) -> None:
    settings = replace(kafka.settings, home=tmp_path)
    paths, written = PipelinePaths.of(settings, "growing"), Written(kafka)
    admin.create_topics(kafka.bootstrap, admin.topic_specs(growing.topics))
    written.users()

    with run(kafka, settings, "growing") as process:

        def has_read(count: int) -> None:
            def is_done() -> bool:
                beat = beat_of(settings, "growing")
                assert process.poll() is None, (settings.home / "growing.log").read_text()[-3000:]
                return beat is not None and beat.pid == process.pid and beat.records_total >= count

            until(is_done, f"{count} records are processed")

        first = len(KEYS) + written.visit("home", 3)
        has_read(first)
        client = admin.admin(kafka.bootstrap)
        for topic in ("growing-users", "growing-visits"):
            client.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
        written.visit("later", 3)  # half of them in partitions that the stream does not know
        has_read(first + 20)
        process.kill()
        process.wait()

    said = call(kafka, settings, "rescale", "growing")
    if said.returncode == exits.CONFLICT:  # it was killed in a batch: a start completes it, with the old partitions
        assert "has begun batch" in said.stderr or "not read yet" in said.stderr, said.stderr
        caught_up(kafka, settings)
        said = call(kafka, settings, "rescale", "growing")
    assert said.returncode == exits.OK, said.stderr[-3000:]
    done = json.loads(said.stdout.splitlines()[-1])
    assert done["change"]["partitions"] == {"growing-users": [2, 4], "growing-visits": [2, 4]}
    assert done["change"]["partitioners"] == {"growing-users": "murmur2", "growing-visits": "murmur2"}
    plan = stored_plan(paths.current.plan)
    assert plan is not None and plan.tasks == (4, 4) and paths.switched == ("rescaled-1",)

    caught_up(kafka, settings)
    written.require(settings)
    written.visit("home", 2)
    with run(kafka, settings, "growing") as process:
        until(lambda: (beat := beat_of(settings, "growing")) is not None and beat.pid == process.pid
              and beat.records_total >= 40, "it goes on")  # fmt: skip
        process.kill()
        process.wait()
    written.visit("last", 1)
    caught_up(kafka, settings)
    written.require(settings)


def call(kafka: LiveStack, settings: Settings, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tests.spark.{module}", *arguments],
        env=environment(kafka, settings), capture_output=True, text=True, check=False, start_new_session=True,
    )  # fmt: skip


def caught_up(kafka: LiveStack, settings: Settings) -> None:
    done = call(kafka, settings, "pipelines", "growing", "--until-caught-up")
    assert done.returncode == exits.OK, done.stderr[-3000:]
