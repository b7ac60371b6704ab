"""What a stream left, beside what a replay of its batches left: tables row by row, stores byte by byte."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from deltaworks import Pipeline, Plan, faults
from deltaworks.control import batches
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.replay.executors import Executor, InProcess
from deltaworks.runtime.replay.host import ReplayHost
from deltaworks.runtime.replay.steps import Step, globals_start, recorded_steps
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path, open_store
from deltaworks.runtime.task_loop import TaskId
from tests.hosts.in_process import InProcessStream
from tests.support.fault_hooks import InjectedFault

POINTS = (
    "replay.opened", "replay.step", "delta.before_parquet", "delta.after_parquet", "replay.result_written",
    "replay.local_committed", "replay.before_commit", "delta.before_commit", "delta.after_commit", "delta.before_pages",
    "replay.committed", "replay.noted", "replay.cleared",
)  # fmt: skip
"""Of task chunks, then of the driver."""
Rows = list[dict[str, Any]]
Stores = dict[TaskId, dict[str, list[tuple[bytes, bytes]]]]


def replay_host(
    stream: InProcessStream,
    root: Path,
    *,
    max_records: int,
    clients: Callable[[], Reader] | None = None,
    executor: Executor | None = None,
    pipeline: Pipeline | None = None,
    run_id: str = "replay",
    sink_limits: Mapping[str, int] | None = None,
    local: Path | None = None,
) -> ReplayHost:
    """A host that replays a stream; what is left out is as in the stream."""
    assert stream.kafka is not None
    return ReplayHost(
        pipeline or stream.pipeline,
        tasks=stream.tasks,
        exchange_partitions=stream.worker.config.exchange_partitions,
        sink_partitions=stream.kafka.partitions,
        sink_limits=sink_limits,
        root=root,
        run_id=run_id,
        clients=clients or stream.kafka.reader,
        executor=executor or InProcess(),
        max_records=max_records,
        local=local,
        answers=stream.paths.answers,
    )


def steps_of(stream: InProcessStream) -> list[Step]:
    """The recorded batches of a stream."""
    kafka = stream.kafka
    assert kafka is not None
    topics = {topic: kafka.count(topic) for topic in stream.plan.global_topics}
    return list(recorded_steps(batches.read(stream.batches), globals_start(batches.read(stream.batches), topics)))


def tables_of(root: Path, pipeline: Pipeline) -> dict[str, Rows]:
    """Every row of every table, in an order that does not depend on files."""
    return {
        schema.name: sorted(DeltaTable(root / schema.name).to_pyarrow_table().to_pylist(), key=repr)
        for schema in plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table)
    }


def streamed_stores(stream: InProcessStream) -> Stores:
    """What the tasks of a stream have committed; tasks without entries are left out."""
    found: Stores = {}
    for task, state in stream.states.items():
        local = stream.worker.task(*task).local
        open_store(local, state)
        found[task] = _contents(local, stores_of(stream.plan.stages[task[0]]))
    return {task: stores for task, stores in found.items() if stores}


def replayed_stores(root: Path, plan: Plan, tasks: tuple[int, ...]) -> Stores:
    """Likewise of a replay."""
    found: Stores = {}
    for stage in plan.stages:
        for task in range(tasks[stage.index]):
            path = local_path(root / "state", stage.index, task)
            if path.exists():
                local = LocalStore(path, stores_of(stage))
                found[stage.index, task] = _contents(local, stores_of(stage))
                local.close()
    return {task: stores for task, stores in found.items() if stores}


def assert_same(stream: InProcessStream, root: Path) -> None:
    """Tables and stores."""
    found, expected = tables_of(root / "tables", stream.pipeline), tables_of(stream.settings.tables, stream.pipeline)
    assert found.keys() == expected.keys()
    for table, rows in expected.items():
        assert len(found[table]) == len(rows), table
        assert found[table] == rows, table
    assert replayed_stores(root, stream.plan, stream.tasks) == streamed_stores(stream)


def run_with_kills(root: Path, make: Callable[[], ReplayHost], steps: list[Step], rng: random.Random) -> set[str]:
    """Runs to the end, killed at each point in turn, if it gets there; one that has ended begins again from nothing.

    Args:
        root: folder of the run.
        make: a host in a new process.
        steps: what to replay.
        rng: decides the order of the points, and when they are reached.

    Returns:
        Where it was killed.
    """
    killed: set[str] = set()
    for point in rng.sample(POINTS, len(POINTS)):
        with _kill_at(point, rng.randint(1, 3)):
            try:
                make().run(steps)
                shutil.rmtree(root)
            except InjectedFault as fault:
                killed.add(str(fault).partition(":")[0])
    make().run(steps)
    return killed


@contextmanager
def _kill_at(wanted: str, times: int) -> Iterator[None]:
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point.startswith(wanted)
        if reached == times:
            raise InjectedFault(point)

    faults.arm(hook)
    try:
        yield
    finally:
        faults.arm(None)


def _contents(local: LocalStore, stores: Mapping[str, bool]) -> dict[str, list[tuple[bytes, bytes]]]:
    entries = {name: list(local.reader(name).scan(b"", None)) for name in stores}
    return {name: found for name, found in entries.items() if found}
