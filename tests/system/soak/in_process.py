"""A stream of the soak in one process: `python -m tests.system.soak.in_process PIPELINE HOME KEPT BATCHES SEED POINT`.

Without Kafka and Spark. It runs some batches and kills itself at a point, so that losing power under what deltaworks
itself keeps takes seconds.

Kafka and Spark's state are pickled outside of the home, at the end of each batch and where transactions are committed:
they are what never loses anything here.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from deltaworks import faults
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.system.soak.hooks import BOOT, set_boot_id
from tests.system.soak.sample import START_MS, Sample

STEPS = 400
END = "the end"
"""In the place of a point: everything that is left, and no kill."""


def kafka_with_sample(pipeline: str, seed: int) -> MemoryKafka:
    """All records that the pipeline will ever get."""
    job = import_module(f"tests.system.soak.jobs.{pipeline}").pipeline
    plan, sample = job.plan(), Sample(seed)
    kafka = MemoryKafka({topic.name: topic.partitions for topic in job.topics})
    for _ in range(STEPS):
        for record in sample.step():
            if record.topic in (*plan.source_topics, *plan.global_topics):
                kafka.write(record.topic, RawRecord(record.key, record.value, record.timestamp_ms, ()))
    return kafka


def main(pipeline: str, home: str, kept: str, batches: str, seed: str, point: str) -> None:
    job, rng = import_module(f"tests.system.soak.jobs.{pipeline}").pipeline, random.Random(int(seed))
    folder = Path(kept)
    set_boot_id(folder / BOOT)
    kafka: MemoryKafka = pickle.loads((folder / "kafka").read_bytes())
    stream = InProcessStream(job, replace(Settings.from_environment(), home=Path(home)), kafka=kafka)
    if (folder / "spark").exists():
        stream.states, stream.offsets, stream.batch_id = pickle.loads((folder / "spark").read_bytes())

    def keep() -> None:
        (folder / "kafka").write_bytes(pickle.dumps(kafka))
        (folder / "spark").write_bytes(pickle.dumps((stream.states, stream.offsets, stream.batch_id)))

    while (open_batch := stream.intents.get(stream.batch_id)) is not None:
        stream._run(open_batch, [])
    keep()
    if point == END:
        stream.run(stream.end())
        stream.tick(stream.clock(stream.batch_id) + 60_000)
        stream.committer.refresh_snapshots(force=True)
        keep()
        return

    def part() -> dict[str, dict[str, int]]:
        """The records of some more time, of each partition: joins are not to see one side long before the other."""
        until_ms = START_MS + (stream.batch_id + 1) * rng.randrange(400_000, 600_000)
        end = {topic: dict(parts) for topic, parts in stream.offsets.items()}
        for topic, parts in stream.end().items():
            for p, stop in parts.items():
                times = [record.timestamp_ms for record in kafka.records.get(topic, {}).get(int(p), ())]
                while end[topic][p] < stop and times[end[topic][p]] < until_ms:
                    end[topic][p] += 1
        return end

    for _ in range(int(batches)):
        stream.run(part())
        keep()

    def hook(reached: str) -> None:
        if reached == "driver.after_tasks":  # all transactions are committed
            (folder / "kafka").write_bytes(pickle.dumps(kafka))
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    stream._armed = lambda failures: nullcontext()  # type: ignore[method-assign,assignment,return-value]
    faults.arm(hook)
    stream.run(part())
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
