"""A replay, phase by phase, beside a stream in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from deltaworks import Pipeline
from deltaworks.control import jobs
from deltaworks.control.checkpoint import CheckpointPlan
from deltaworks.control.paths import PipelinePaths
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.replay import phases, runs
from deltaworks.replay.model import Phase, ReplayPaths, ReplayPlan, ReplayRequest
from deltaworks.replay.phases import ReplayRun, Report
from deltaworks.runtime.replay.steps import begun_later
from deltaworks.settings import Settings
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryBroker
from tests.hosts.replays import replay_host, steps_of, tables_of

Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Engines:
    """Spark's part in this process; the gate says what the test wants."""

    stream: InProcessStream
    passes: bool = True

    def process(
        self, settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, report: Report
    ) -> None:
        steps = [step for step in steps_of(self.stream) if step.batch <= plan.last_batch]
        if plan.begin is not None:
            steps = list(begun_later(steps, plan.begin.batch, plan.begin.topics))
        host = replay_host(self.stream, paths.root, max_records=400, pipeline=pipeline, run_id=plan.run_id)
        host.run(steps, lambda progress: report(f"{progress.records} records"))

    def judge(
        self,
        settings: Settings,
        pipeline: Pipeline,
        paths: ReplayPaths,
        plan: ReplayPlan,
        scope: Scope,
        report: Report,
    ) -> bool:
        return self.passes

    def hand_over(
        self, settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, report: Report
    ) -> None:
        raise AssertionError("no test here hands over")


@dataclass
class Beside:
    """A stream that has processed its records, and is stopped."""

    stream: InProcessStream
    pipeline: Pipeline
    """What a replay finds in `jobs/`."""
    broker: MemoryBroker

    @property
    def settings(self) -> Settings:
        return self.stream.settings

    def request(self, **options: Any) -> ReplayRequest:
        return ReplayRequest(pipeline=self.pipeline.name, requested_by="a test", **options)

    def start(self, **options: Any) -> ReplayRun:
        return runs.start(self.settings, self.request(**options))

    def advance(self, run: ReplayRun, until: Phase = "clean", *, passes: bool = True) -> list[Phase]:
        with run.held():
            return run.advance(until, lambda phase: lambda line: None, Engines(self.stream, passes)).done

    def rows(self) -> Rows:
        return tables_of(self.settings.tables, self.stream.pipeline)


def stand_beside(stream: InProcessStream, patch: pytest.MonkeyPatch) -> Beside:
    """Stops a stream; replays that are started from now on are of it."""
    stream.committer.close()
    assert stream.kafka is not None
    found = Beside(stream, stream.pipeline, MemoryBroker(stream.kafka))
    plan = CheckpointPlan(
        lineage="test",
        query_id=stream.query_id,
        fingerprint=stream.plan.fingerprint(),
        partitions={topic: stream.kafka.count(topic) for topic in stream.plan.source_topics},
        tasks=stream.tasks,
        shards=2,
    )
    PipelinePaths.of(stream.settings, stream.pipeline.name).current.plan.write_bytes(msgspec.json.encode(plan))
    for module in (phases, runs):
        patch.setattr(module, "Broker", lambda bootstrap: found.broker)
    patch.setattr(jobs, "load", lambda settings, name: found.pipeline)
    return found
