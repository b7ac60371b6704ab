"""Hands the stores of a replay over to a new line of the stream, which goes on live where the replay has ended.

```
batches 0 ... E  old code  | the stream is drained
batches 0 ... E  new code  | a replay; its stores become the seed of the new line (`make_line`)
batches E+1 ...  new code  | the new line, from the offsets after E (`switch`)
```

The line before stays as it is. `undo` lets it go on from its own end with its own code: it reads again what the new
line has read since, so the topics that the pipeline writes get those results from both.

Who switches or undoes holds the lease of the pipeline, so nothing runs. Not here: what becomes of the tables
(`lakehouse.publish.ownership`), and the way from a request to a stream that runs again (`replay.handover`).
"""

from __future__ import annotations

import shutil
from contextlib import closing, nullcontext
from pathlib import Path

from deltaworks.control import batches
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan, write_plan
from deltaworks.control.paths import LinePaths, PipelinePaths
from deltaworks.errors import ConfigurationError, ConflictError
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.task import TASK_STORE
from deltaworks.runtime.state import initial_state
from deltaworks.runtime.state.local_store import LocalStore
from deltaworks.runtime.state.recovery import local_path
from deltaworks.spark.checkpoint import begun_batch, committed_offsets
from deltaworks.spark.source import TICK
from deltaworks.topology.plan import Plan


def offsets_after(paths: PipelinePaths, last_batch: int) -> Offsets:
    """Where the source stands after a batch: the next offset of every partition, of global tables too, the last tick.

    Read from the record of batches; partitions without a record up to then are where the running line has begun.
    """
    line = paths.line
    plan = stored_plan(line.plan)
    known = committed_offsets(line.checkpoint) or (plan.start if plan is not None else None) or {}
    offsets = {topic: dict(parts) for topic, parts in known.items() if not topic.startswith("!")}
    read: set[tuple[str, str]] = set()
    for record in batches.read(paths.batches):
        if record.tick and record.batch <= last_batch:
            offsets[TICK] = {"0": record.wall_clock_ms}
        for topic, parts in record.offsets.items():
            for partition, (start, stop) in parts.items():
                if record.batch <= last_batch:
                    offsets.setdefault(topic, {})[partition] = stop
                elif (topic, partition) not in read:
                    offsets.setdefault(topic, {})[partition] = start
                read.add((topic, partition))
    return offsets


def make_line(
    paths: PipelinePaths,
    plan: Plan,
    *,
    tasks: tuple[int, ...],
    slots: int,
    partitions: dict[str, int],
    run_id: str,
    last_batch: int,
    offsets: Offsets,
    state: Path,
) -> CheckpointPlan:
    """Makes a line from the stores of a replay; the stream does not notice. Made again, it replaces the one before.

    Args:
        paths: of the pipeline.
        plan: of the code that has filled the stores, and will run.
        tasks: per stage.
        slots: per stage; see `CheckpointPlan`.
        partitions: of every topic that the topology names as a source.
        run_id: of the replay; becomes the query id.
        last_batch: the last one that is in the stores.
        offsets: where its source goes on; see `offsets_after`.
        state: folder with a local store per task, `<stage>-<task>`, that nobody has open; a task without one begins
            empty.

    Raises:
        ConflictError: the line has been switched to already, or a store holds later batches too.
    """
    line = paths.line_of(run_id)
    if run_id in paths.switched or line.undone.exists():
        raise ConflictError(
            f"The line {run_id} at {line.root} has been switched to already; its stores are its own now.",
            hint="make another replay, and hand that over",
        )
    made = LinePaths(line.root.with_name(f".{run_id}"))
    for leftover in (made.root, line.root):
        shutil.rmtree(leftover, ignore_errors=True)
    for stage in plan.stages:
        stores = {store.name: store.timed for store in stage.stores} | {TASK_STORE: False}
        for task in range(tasks[stage.index]):
            path, target = local_path(state, stage.index, task), initial_state.seed_path(made.seed, stage.index, task)
            with closing(LocalStore(path, stores, durable=True)) if path.exists() else nullcontext() as local:
                _require_stand(local, path, last_batch)
                initial_state.write(target, local, stores, last_batch + 1)
    before = stored_plan(paths.plan)
    assert before is not None, "a replay follows a stream that has a checkpoint"
    checkpoint = CheckpointPlan(
        lineage=before.lineage,
        query_id=run_id,
        fingerprint=plan.fingerprint(),
        partitions=partitions,
        tasks=tasks,
        slots=slots,
        first_batch=last_batch + 1,
        start=offsets,
        topics=dict(batches.topics_read(batches.read(paths.batches)).ids),
        seed=made.seed.name,
    )
    write_plan(made.plan, checkpoint)
    made.root.rename(line.root)
    return checkpoint


def switch(paths: PipelinePaths, query_id: str, *, accept_unfinished: bool = False) -> None:
    """From its next start on, the stream is this line. Nothing happens if it is already.

    Args:
        paths: of the pipeline.
        query_id: a line that was made.
        accept_unfinished: switch although the running line has begun a batch that it has not finished. Some of its
            tasks may have written their records of it, which the new line writes too. Only for a stream that fails in
            that batch every time; else a start is enough to finish it.

    Raises:
        ConfigurationError: there is no such line.
        ConflictError: it has been undone, or the stream has gone on since the batch that the line follows.
    """
    if paths.switched[-1:] == (query_id,):
        return
    require_switchable(paths, query_id, accept_unfinished=accept_unfinished)
    _point(paths, (*paths.switched, query_id))


def require_switchable(paths: PipelinePaths, query_id: str, *, accept_unfinished: bool = False) -> None:
    """Raises what `switch` would raise; changes nothing."""
    line = paths.line_of(query_id)
    plan = stored_plan(line.plan)
    if plan is None:
        raise ConfigurationError(
            f"There is no line {query_id} at {line.root}.", hint="a replay makes it when it hands over"
        )
    if line.undone.exists() or query_id in paths.switched:
        raise ConflictError(
            f"The line {query_id} has run, and the line before it goes on in its place.",
            hint="make another replay, and hand that over",
        )
    _require_end(paths, plan, accept_unfinished=accept_unfinished)


def undo(paths: PipelinePaths, query_id: str | None = None) -> None:
    """From its next start on, the stream is again the line before; the record of later batches is set aside.

    Args:
        paths: of the pipeline.
        query_id: the line to undo, about which nothing happens if it has been undone already; None: the running one.

    Raises:
        ConfigurationError: there is none, or another one runs.
    """
    switched = paths.switched
    if query_id is not None and query_id not in switched and paths.line_of(query_id).undone.exists():
        return
    require_last(paths, query_id)
    line = paths.line
    plan = stored_plan(line.plan)
    assert plan is not None
    line.undone.touch()
    batches.set_aside(paths.batches, plan.first_batch, line.set_aside)
    _point(paths, switched[:-1])


def require_last(paths: PipelinePaths, query_id: str | None = None) -> None:
    """Raises `ConfigurationError` if a line is not the one that was switched to last; None: if none was."""
    switched = paths.switched
    if not switched or query_id not in (None, switched[-1]):
        raise ConfigurationError(
            f"{query_id or 'The first line'} is not a line that was switched to last, so there is nothing to undo.",
            hint=f"switched to, the last one runs: {', '.join(switched) or 'none'}",
        )


def predecessor(paths: PipelinePaths, query_id: str) -> LinePaths:
    """The line that ran before one that was switched to."""
    at = paths.switched.index(query_id)
    return paths.line_of(paths.switched[at - 1]) if at else LinePaths(paths.root)


def expire(paths: PipelinePaths, before_s: float) -> None:
    """Deletes the checkpoints of lines that ended before a time (seconds since 1970), which then cannot run again."""
    for query_id in paths.switched:
        if paths.line_of(query_id).plan.stat().st_mtime < before_s:
            ended = predecessor(paths, query_id)
            for folder in (ended.checkpoint, ended.local, ended.seed):
                shutil.rmtree(folder, ignore_errors=True)
    for undone in paths.root.glob("lines/*/undone"):
        if undone.stat().st_mtime < before_s:
            shutil.rmtree(undone.parent)


def settle(paths: PipelinePaths) -> None:
    """Ends an `undo` that was interrupted; for who is about to run the stream."""
    if paths.line.undone.exists():
        undo(paths)


def _require_stand(local: LocalStore | None, path: Path, last_batch: int) -> None:
    """A version counts batches. (Of a task that had nothing to do in some of them, it is lower.)"""
    version = 0 if local is None else local.version().number
    if version > last_batch + 1:
        raise ConflictError(
            f"The store {path} is at batch {version - 1}, after batch {last_batch}.",
            hint="let the replay finish what it has begun, and hand over where it ends",
        )


def _require_end(paths: PipelinePaths, plan: CheckpointPlan, *, accept_unfinished: bool) -> None:
    """The running line has done exactly what comes before the new one: else batches would be lost, or done twice."""
    expected, last = plan.first_batch - 1, batches.last(paths.batches)
    found = -1 if last is None else last.batch
    if found != expected:
        raise ConflictError(
            f"The line {plan.query_id} goes on after batch {expected}, but the stream is at batch {found}.",
            hint="stop the stream, replay the batches since, and make the line anew",
        )
    before = stored_plan(paths.plan)
    begun = begun_batch(paths.checkpoint)
    if before is not None and begun is not None and before.first_batch + begun > expected and not accept_unfinished:
        raise ConflictError(
            f"The stream has begun batch {before.first_batch + begun} and not finished it; "
            "tasks may have written records of it that the new line would write again.",
            hint="start the stream once more, and stop it when it has caught up; then replay what it did",
        )


def _point(paths: PipelinePaths, switched: tuple[str, ...]) -> None:
    if switched:
        replace_file(paths.pointer, "".join(f"{query_id}\n" for query_id in switched).encode(), durable=True)
    else:
        paths.pointer.unlink()
