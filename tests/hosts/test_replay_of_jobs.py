"""Every job, streamed in random micro-batches, then replayed: the same tables, the same stores."""

from __future__ import annotations

import importlib
import random
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from jobs.sample_data.kafka import PARTITIONS
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import assert_same, replay_host, run_with_kills, steps_of
from tests.unit.jobs.recomputing import rows_of

JOBS = {"wordcount": 500, "clicks": 800, "enrichment": 1500, "invoices": 1200, "inventory": 1200, "fraud": 1500}
JOBS |= {"orders": 1200, "ads": 1000, "deliveries": 800, "customers": 700}


def streamed(job: str, home: Path, seed: int) -> InProcessStream:
    """A job that has run over random cuts of its sample data, with ticks if it depends on the clock."""
    rng = random.Random(f"{job} {seed}")
    pipeline = importlib.import_module(f"jobs.{job}").pipeline
    rows = rows_of(importlib.import_module(f"jobs.sample_data.{job}").records(JOBS[job], seed))
    plan = pipeline.plan()
    topics = {*plan.source_topics, *plan.global_topics, *plan.sink_topics}
    kafka = MemoryKafka(dict.fromkeys(topics, PARTITIONS))
    for row in rows:
        kafka.write(row.topic, RawRecord(row.key, row.value, row.timestamp_ms), row.partition)
    clock = [1_800_000_000_000]
    while len(clock) < 1_000:
        clock.append(clock[-1] + rng.choice([0, 1_000, 4_000, 10_000, 5_400_000]))
    settings = replace(Settings.from_environment({}), home=home)
    stream = InProcessStream(pipeline, settings, kafka=kafka, clock=clock.__getitem__)
    stream.run_to_the_end(rng, 60, elsewhere=None)
    return stream


@pytest.mark.parametrize("job", JOBS)
def test_a_replay_gives_the_tables_and_stores_of_the_stream(job: str, tmp_path: Path) -> None:
    stream = streamed(job, tmp_path, 1)
    steps = steps_of(stream)
    assert len(steps) > 5
    for number, max_records in enumerate((1, 700, 1_000_000)):
        root = tmp_path / f"replay-{number}"
        progress = replay_host(stream, root, max_records=max_records).run(steps)
        assert progress.last_batch == steps[-1].batch
        assert progress.records == sum(step.records for step in steps)
        assert (progress.chunks == len(steps)) is (max_records == 1)
        assert (progress.chunks == 1) is (max_records == 1_000_000)
        assert_same(stream, root)


@pytest.mark.parametrize("job", JOBS)
def test_a_replay_that_is_killed_again_and_again_gives_the_same(job: str, tmp_path: Path) -> None:
    stream, rng = streamed(job, tmp_path, 2), random.Random(f"kills {job}")
    steps, root = steps_of(stream), tmp_path / "replay"

    killed = run_with_kills(root, lambda: replay_host(stream, root, max_records=rng.choice([1, 150])), steps, rng)

    assert len(killed) > 6
    assert_same(stream, root)
