"""The recorded cases, streamed in process and then replayed: `python -m tests.hosts.replayed_cases [--every N]`."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deltaworks.runtime.replay import runner
from deltaworks.settings import Settings
from deltaworks.spark.source import TICK
from deltaworks.testing.topics import RawRecord
from tests.conformance.data import Case, curated, generated, once_different, random
from tests.conformance.hosts import Run
from tests.conformance.micro_batches import CaseInMicroBatches
from tests.conformance.streaming import spread
from tests.conformance.streaming_task import pipeline_of
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import replay_host, replayed_stores, run_with_kills, steps_of, streamed_stores
from tests.support.in_memory import temporary_folder

Sent = Counter[tuple[str, RawRecord]]


def run_of(case: Case, partitions: int, rng: Random) -> Run | None:
    """The case in random micro-batches; None: it ends with an error, or depends on more than its batches."""
    given = CaseInMicroBatches(case)
    if given.plan is None or given.not_comparable or "error" in case["expected"]:
        return None
    run = given.run(given.trace.random_cut(rng), rng)
    if run.forgets:
        return None
    return spread(run, partitions) if partitions > 1 else run


def difference(case: Case, partitions: int, rng: Random) -> str | None:
    """What a replay of the case has that the stream has not; None: nothing, or there is nothing to replay."""
    run = run_of(case, partitions, rng)
    if run is None:
        return None
    with temporary_folder("deltaworks-case-") as home:
        return _difference(run, Path(home), rng)


def _difference(run: Run, home: Path, rng: Random) -> str | None:
    stream = streamed_case(run, home)
    assert stream.kafka is not None
    steps, expected = steps_of(stream), streamed_stores(stream)
    stream.worker.close()
    with sent_records() as sent:
        replay_host(stream, home / "whole", max_records=rng.choice([1, 40, 1_000])).run(steps)
    if (found := replayed_stores(home / "whole", stream.plan, stream.tasks)) != expected:
        return f"stores: {found}, of the stream: {expected}"
    streamed = Counter((topic, record) for topic, records in stream.kafka.sent.items() for record in records)
    if sent != streamed:
        return f"sent: {sent - streamed}, of the stream: {streamed - sent}"
    if len(steps) > 2:
        root = home / "killed"
        run_with_kills(root, lambda: replay_host(stream, root, max_records=rng.choice([1, 60])), steps, rng)
        if (found := replayed_stores(root, stream.plan, stream.tasks)) != expected:
            return f"stores after kills: {found}, of the stream: {expected}"
    return None


def streamed_case(run: Run, home: Path) -> InProcessStream:
    """The stream, which has run to the end."""
    kafka = MemoryKafka(dict(run.topic_partitions))
    settings = replace(Settings.from_environment({}), home=home)
    stream = InProcessStream(pipeline_of(run), settings, kafka=kafka, shards=1)
    for batch_id, batch in enumerate(run.batches):
        for part in batch.records if batch_id not in run.fed_back else ():
            headers = part.headers_of_each
            for key, value, time_ms, header in zip(part.keys, part.values, part.timestamps_ms, headers, strict=True):
                kafka.write(part.topic, RawRecord(key, value, time_ms, header), part.partition)
        end = stream.end() | ({TICK: {"0": batch_id + 1}} if batch.tick else {})
        if TICK in stream.offsets:
            end.setdefault(TICK, stream.offsets[TICK])
        stream.run(end, wall_ms=batch.wall_clock_ms)
    return stream


@contextmanager
def sent_records() -> Iterator[Sent]:
    """What the tasks of replays in this process would have written."""
    sent: Sent = Counter()

    class Noting(runner.CountingSink):
        def send(
            self, topic: str, key: Any, value: Any, timestamp_ms: int, headers: Any = (), *args: Any, **kwargs: Any
        ) -> None:
            super().send(topic, key, value, timestamp_ms, headers, *args, **kwargs)
            sent[topic, RawRecord(key, value, timestamp_ms, headers)] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "CountingSink", Noting)
        yield sent


def differing(cases: Iterable[Case], report: Callable[[str], None] = lambda line: None) -> dict[str, str]:
    """Case -> how its replay differs, with 1 partition or with 3."""
    found: dict[str, str] = {}
    for number, case in enumerate(cases):
        for partitions in (1, 3):
            try:
                each = difference(case, partitions, Random(f"{case['name']} {partitions}"))
            except Exception as error:
                each = f"{type(error).__name__}: {error}"
            if each is not None:
                found[f"{case['name']}, {partitions}"] = each
                report(f"{case['name']}, {partitions}: {each[:1000]}")
        if number % 50 == 49:
            report(f"{number + 1} cases")
    return found


def cases(every: int) -> list[Case]:
    """One in so many, of all kinds."""
    return [*curated(), *random(), *generated(), *once_different()][::every]


if __name__ == "__main__":
    begun = time.monotonic()
    chosen = cases(int(sys.argv[sys.argv.index("--every") + 1]) if "--every" in sys.argv else 1)
    wrong = differing(chosen, print)
    print(f"{len(chosen)} cases, {len(wrong)} differ, {time.monotonic() - begun:.0f} s")
    sys.exit(1 if wrong else 0)
