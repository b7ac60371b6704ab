"""Host `task`: the streaming host's tasks, store protocol and transactions in one process, restarted and failing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from deltaworks import DeadLetters, Pipeline, Plan, StreamsBuilder, StreamsError
from deltaworks.kernel.stores.state import StateReader
from deltaworks.kernel.task import TASK_STORE
from deltaworks.runtime.task_loop import TaskId
from deltaworks.settings import Settings
from deltaworks.spark.source import TICK
from deltaworks.testing.recorded import MicroBatch
from deltaworks.testing.topics import RawRecord
from tests.conformance.hosts import Entries, Failure, Host, Observed, Run
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.support.fault_points import DRIVER, WORKER
from tests.support.in_memory import temporary_folder

_POINTS = sorted(point for point in {*WORKER, *DRIVER} if not point.startswith("kafka."))


@dataclass(frozen=True, kw_only=True)
class CasePipeline(Pipeline):
    """The plan of a case, as a host gets it."""

    case_plan: Plan

    def plan(self) -> Plan:
        return self.case_plan


def pipeline_of(run: Run, name: str = "case") -> CasePipeline:
    """With the error handlers of the case."""
    return CasePipeline(
        name=name,
        topology=_not_called,
        case_plan=run.plan,
        deserialization_handler=run.errors.deserialization,
        processing_handler=run.errors.processing,
        production_handler=run.errors.production,
        dead_letters=DeadLetters(topic=run.dead_letter_topic, keep_bytes=run.errors.keep_bytes),
    )


def _not_called(builder: StreamsBuilder) -> None:
    raise AssertionError("a case has a plan")


def task_host(rng: Random, *, failures: float = 0.5, lost_disks: float = 0.2, shards: int = 2) -> Host:
    """A host that fails and restarts.

    Args:
        rng: decides.
        failures: share of the batches of which attempts fail, up to three of them, at random points.
        lost_disks: share of the restarts of a task at which its local store is gone.
        shards: as in `Routes`; with one, a single operator runs all stages.
    """

    def host(run: Run) -> Observed:
        with temporary_folder("deltaworks-case-") as home:
            return _run(run, Path(home), rng, failures, lost_disks, shards)

    return host


def _run(run: Run, home: Path, rng: Random, failures: float, lost_disks: float, shards: int) -> Observed:
    settings = replace(Settings.from_environment({}), home=home)
    kafka = MemoryKafka(dict(run.topic_partitions))
    stream = InProcessStream(pipeline_of(run), settings, kafka=kafka, shards=shards)
    error: Failure | None = None
    for batch_id, batch in enumerate(run.batches):
        if batch_id not in run.fed_back:
            _write(kafka, batch)
        end = stream.end() | ({TICK: {"0": batch_id + 1}} if batch.tick else {})
        if TICK in stream.offsets:
            end.setdefault(TICK, stream.offsets[TICK])
        if any(run.restarts(batch_id, task) for task in stream.routes):
            stream.lose_disk(rng.choice(list(stream.routes))) if rng.random() < lost_disks else stream.lose_worker()
        fails = not run.forgets and rng.random() < failures
        fail_at = rng.sample(_POINTS, rng.randint(1, 3)) if fails else []
        try:
            stream.run(end, fail_at, wall_ms=batch.wall_clock_ms)
        except StreamsError as failed:
            error = Failure(batch_id, type(failed).__name__, str(failed))
            break
    stores, global_stores = _stores(stream), _global_stores(stream)
    stream.close()
    return Observed(kafka.sent, stores, global_stores, error=error)


def _write(kafka: MemoryKafka, batch: MicroBatch) -> None:
    for part in batch.records:
        headers = part.headers_of_each
        for key, value, timestamp_ms, header in zip(part.keys, part.values, part.timestamps_ms, headers, strict=True):
            kafka.write(part.topic, RawRecord(key, value, timestamp_ms, header), part.partition)


def _stores(stream: InProcessStream) -> dict[TaskId, dict[str, Entries]]:
    """What the tasks have committed."""
    found: dict[TaskId, dict[str, Entries]] = {}
    for task, state in stream.states.items():
        stream.worker.open(task, stream.committed(task, state))
        local = stream.worker.task(*task).local
        names = [*(store.name for store in stream.plan.stages[task[0]].stores), TASK_STORE]
        found[task] = _contents({name: local.reader(name) for name in names})
    return found


def _global_stores(stream: InProcessStream) -> dict[str, Entries] | None:
    if not stream.plan.global_stages:
        return {}
    stream.open_globals()
    assert stream.worker.globals is not None
    return _contents(stream.worker.globals.readers)


def _contents(readers: Mapping[str, StateReader]) -> dict[str, Entries]:
    entries = {name: list(reader.scan(b"", None)) for name, reader in readers.items()}
    return {name: found for name, found in entries.items() if found}
