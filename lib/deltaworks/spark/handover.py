"""Hands the stores of a replay over to a new checkpoint of the stream, which goes on live where the replay ended.

```
batches 0 ... E  old code  | the stream is drained
batches 0 ... E  new code  | a replay; its stores become the initial state of a checkpoint (`make_checkpoint`)
batches E+1 ...  new code  | the new checkpoint, from the offsets after E (`switch`)
```

The previous checkpoint stays as it is. `undo` lets it go on from its own end with its own code. It reads again what
the new checkpoint has read since, so the topics that the pipeline writes get those results from both.

Whoever switches or undoes holds the lease of the pipeline, so nothing runs. `lakehouse.publish.ownership` handles the
tables, and `replay.handover` leads from a request to a running stream.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import msgspec

from deltaworks.control import batches
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan, write_plan
from deltaworks.control.paths import CheckpointPaths, PipelinePaths
from deltaworks.errors import ConfigurationError, ConflictError
from deltaworks.files import link_all, make_folder, remove_tree, replace_file, sync_folder
from deltaworks.kafka.ranges import Offsets, of_topics
from deltaworks.object_path import ObjectPath
from deltaworks.runtime.state import initial_state
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.spark.checkpoint import begun_batch, committed_offsets
from deltaworks.spark.source import TICK
from deltaworks.topology.plan import Plan

ERASED = "erased-"
"""How the names of checkpoints begin that an erasure has made."""
RESCALED = "rescaled-"
"""How the names of checkpoints begin that a rescale has made."""
WIDENED = "widened-"
"""How the names of checkpoints begin that continue the one before with the same tasks on more cores; see `widening`."""


def offsets_after(paths: PipelinePaths, last_batch: int) -> Offsets:
    """The source offsets after a batch: the next offset of every partition, including global tables, and the last tick.

    Read from the record of batches; partitions without a record up to then are where the running checkpoint began.
    """
    checkpoint = paths.current
    plan = stored_plan(checkpoint.plan)
    known = committed_offsets(checkpoint.spark) or (plan.start if plan is not None else None) or {}
    offsets = {topic: dict(parts) for topic, parts in of_topics(known).items()}
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


def make_checkpoint(
    paths: PipelinePaths,
    plan: Plan,
    *,
    tasks: tuple[int, ...],
    shards: int,
    partitions: dict[str, int],
    run_id: str,
    last_batch: int,
    offsets: Offsets,
    state: Path,
) -> CheckpointPlan:
    """Makes a checkpoint beside the stream from the stores of a replay. A second call replaces the first checkpoint.

    Args:
        paths: paths of the pipeline.
        plan: plan of the code that has filled the stores and will run.
        tasks: per stage.
        shards: per stage; see `CheckpointPlan`.
        partitions: of every topic that the topology names as a source.
        run_id: id of the replay; becomes the query id.
        last_batch: the last batch that is in the stores.
        offsets: where the source continues; see `offsets_after`.
        state: folder with a local store per task, `<stage>-<task>`, that no process has open; a task without one begins
            empty.

    Raises:
        ConflictError: the stream has already switched to the checkpoint, or a store holds later batches too.
    """
    checkpoint = paths.checkpoint_of(run_id)
    if run_id in paths.switched or checkpoint.undone.exists():
        raise ConflictError(
            f"The checkpoint {run_id} at {checkpoint.root} was switched to already and owns its stores.",
            hint="make another replay, and hand over to that",
        )
    before = stored_plan(paths.current.plan)
    assert before is not None, "a replay follows a stream that has a checkpoint"

    @contextmanager
    def open_store(stage: int, task: int, stores: dict[str, bool]) -> Iterator[LocalStore | None]:
        path = local_path(state, stage, task)
        if not path.exists():
            yield None
            return
        with closing(LocalStore(path, stores, durable=True)) as local:
            _require_stand(local, path, last_batch)
            yield local

    made_plan = CheckpointPlan(
        lineage=before.lineage,
        query_id=run_id,
        fingerprint=plan.fingerprint(),
        partitions=partitions,
        tasks=tasks,
        shards=shards,
        tables=before.tables,
        first_batch=last_batch + 1,
        start=offsets,
        topics=dict(batches.topics_read(batches.read(paths.batches)).ids),
    )
    return write_checkpoint(checkpoint, plan, made_plan, open_store)


OpenStore = Callable[[int, int, dict[str, bool]], AbstractContextManager[LocalStore | None]]
"""`(stage, task, its stores and whether they are timed)` -> the task's stores; None: it begins empty."""


def write_checkpoint(
    checkpoint: CheckpointPaths, plan: Plan, described: CheckpointPlan, open_store: OpenStore
) -> CheckpointPlan:
    """Writes a checkpoint that begins with stores; a second call replaces the first checkpoint. Durable.

    Args:
        checkpoint: where; never where one runs.
        plan: has the stores.
        described: what the checkpoint is made for, without its initial state.
        open_store: opens the stores, one task after the other.

    Returns:
        The plan of the checkpoint.
    """
    made = CheckpointPaths.at(checkpoint.here.with_name(f".{checkpoint.here.name}"))
    checkpoint.plan.unlink(missing_ok=True)
    for leftover in (made.root, checkpoint.here, checkpoint.root):
        remove_tree(leftover)
    make_folder(made.initial_state)
    for stage in plan.stages:
        stores = stores_of(stage)
        for task in range(described.tasks[stage.index]):
            with open_store(stage.index, task, stores) as local:
                target = initial_state.path_of(made.initial_state, stage.index, task)
                initial_state.write(target, local, stores, described.first_batch)
    sync_folder(made.initial_state)
    described = msgspec.structs.replace(described, initial_state=made.initial_state.name)
    if isinstance(checkpoint.root, ObjectPath):  # the plan comes last: without it, there is no checkpoint
        link_all((file, checkpoint.initial_state / file.name) for file in sorted(made.initial_state.iterdir()))
        write_plan(checkpoint.plan, described)
        shutil.rmtree(made.root)
        return described
    write_plan(made.plan, described)
    made.root.rename(checkpoint.root)
    sync_folder(checkpoint.root.parent)
    return described


def switch(paths: PipelinePaths, name: str, *, accept_unfinished: bool = False) -> None:
    """Makes a checkpoint the stream's, from the next start on. Does nothing if it already is.

    Args:
        paths: paths of the pipeline.
        name: of a checkpoint that `make_checkpoint` or an erasure has made.
        accept_unfinished: switch even if the running checkpoint has begun a batch and not finished it. Some of its
            tasks may have written their records of it, which the new checkpoint writes again. Only for a stream that
            fails in that batch every time; otherwise a start is enough to finish it.

    Raises:
        ConfigurationError: there is no such checkpoint.
        ConflictError: it has been undone, or the stream has moved on since the batch that the checkpoint follows.
    """
    if paths.switched[-1:] == (name,):
        return
    require_switchable(paths, name, accept_unfinished=accept_unfinished)
    _point(paths, (*paths.switched, name))


def require_switchable(paths: PipelinePaths, name: str, *, accept_unfinished: bool = False) -> None:
    """Raises what `switch` would raise; changes nothing."""
    checkpoint = paths.checkpoint_of(name)
    plan = stored_plan(checkpoint.plan)
    if plan is None:
        raise ConfigurationError(
            f"There is no checkpoint {name} at {checkpoint.root}.", hint="a replay makes it when it hands over"
        )
    if checkpoint.undone.exists() or name in paths.switched:
        raise ConflictError(
            f"The checkpoint {name} was undone: the checkpoint before it goes on in its place.",
            hint="make another replay, and hand over to that",
        )
    _require_end(paths, name, plan, accept_unfinished=accept_unfinished)


def undo(paths: PipelinePaths, name: str | None = None) -> None:
    """Makes the previous checkpoint the stream's again, from the next start on; sets the record of later batches aside.

    Those that have continued it on more cores end with it.

    Args:
        paths: paths of the pipeline.
        name: of the checkpoint to undo; nothing happens if it is already undone. None: the running one.

    Raises:
        ConfigurationError: there is none, or another one runs.
    """
    switched = paths.switched
    if name is not None and name not in switched and paths.checkpoint_of(name).undone.exists():
        return
    require_last(paths, name)
    at = _last(switched)
    assert at is not None
    ended = [paths.checkpoint_of(each) for each in switched[at:]]
    plan = stored_plan(ended[0].plan)
    assert plan is not None
    for each in ended:  # the first one, of which `settle` asks, begins
        each.undone.touch()
    batches.set_aside(paths.batches, plan.first_batch, ended[0].set_aside)
    _point(paths, switched[:at])


def require_last(paths: PipelinePaths, name: str | None = None) -> None:
    """Raises unless a checkpoint is the last one that was switched to; None: unless there is one.

    Those that continue it on more cores do not count.

    Raises:
        ConfigurationError: it is not.
        ConflictError: data was erased since, and with it every earlier checkpoint; or the stream was rescaled.
    """
    switched = paths.switched
    at = _last(switched)
    last = "" if at is None else switched[at]
    if last.startswith(ERASED) and name in (None, *switched):
        raise ConflictError(
            f"Data was erased from the state of this stream ({last}), and every earlier checkpoint was deleted "
            "with it: there is nothing to go back to.",
            hint="replay with the code of before, and hand over to that",
        )
    if last.startswith(RESCALED) and name in (None, *switched):
        raise ConflictError(
            f"The stream goes on with other tasks since then ({last}), and its tables with it: there is no way "
            "back to an earlier checkpoint.",
            hint="replay days since then with the code of before, and publish them",
        )
    if not last or name not in (None, last):
        raise ConfigurationError(
            f"{name or 'The first checkpoint'} is not the checkpoint that was switched to last; nothing to undo.",
            hint=f"checkpoints that were switched to; the last one runs: {', '.join(switched) or 'none'}",
        )


def predecessor(paths: PipelinePaths, name: str) -> CheckpointPaths:
    """The checkpoint that ran before one that was switched to."""
    at = paths.switched.index(name)
    return paths.checkpoint_of(paths.switched[at - 1]) if at else paths.first


def expire(paths: PipelinePaths, before_s: float) -> None:
    """Deletes the files of checkpoints that ended before a time (seconds since 1970); they cannot run again.

    And what is left of those that a start has not finished.
    """
    discard_unfinished(paths)
    for name in paths.switched:
        if paths.checkpoint_of(name).plan.stat().st_mtime < before_s:
            ended = predecessor(paths, name)
            for folder in (*ended.all_of_spark, ended.local, ended.initial_state):
                remove_tree(folder)
    for made in paths.made_checkpoints():
        if made.undone.exists() and made.undone.stat().st_mtime < before_s:
            for folder in (made.here, made.root):
                remove_tree(folder)


def discard_unfinished(paths: PipelinePaths) -> None:
    """Deletes checkpoints that were to continue this one on more cores, and that nobody has switched to."""
    switched = paths.switched
    for made in paths.made_checkpoints():
        if made.root.name.startswith(WIDENED) and made.root.name not in switched and not made.undone.exists():
            remove_tree(made.root)
    for half in (paths.root / paths.checkpoints.name).glob(f".{WIDENED}*"):
        remove_tree(half)


def settle(paths: PipelinePaths) -> None:
    """Completes an interrupted `undo`; called before the stream runs."""
    switched = paths.switched
    at = _last(switched)
    if at is not None and paths.checkpoint_of(switched[at]).undone.exists():
        undo(paths)


def _last(switched: tuple[str, ...]) -> int | None:
    """The position of the last checkpoint but those that continue it; None: they continue the first one."""
    return next((at for at in reversed(range(len(switched))) if not switched[at].startswith(WIDENED)), None)


def _require_stand(local: LocalStore | None, path: Path, last_batch: int) -> None:
    """Checks a store's version, which counts batches. (It is lower if the task had nothing to do in some of them.)"""
    version = 0 if local is None else local.version().number
    if version > last_batch + 1:
        raise ConflictError(
            f"The store {path} is at batch {version - 1}, after batch {last_batch}.",
            hint="let the replay finish the chunk that it has begun, and hand over at its end",
        )


def _require_end(paths: PipelinePaths, name: str, plan: CheckpointPlan, *, accept_unfinished: bool) -> None:
    """Refuses unless the running checkpoint ends just before the new one: no batch is lost or done twice."""
    expected, found = plan.first_batch - 1, batches.last_number(paths.batches)
    if found != expected:
        raise ConflictError(
            f"The checkpoint {name} goes on after batch {expected}, but the stream is at batch {found}.",
            hint="stop the stream, replay the batches since, and make the checkpoint again",
        )
    before = stored_plan(paths.current.plan)
    begun = begun_batch(paths.current.spark)
    if before is not None and begun is not None and before.first_batch + begun > expected and not accept_unfinished:
        raise ConflictError(
            f"The stream has begun batch {before.first_batch + begun} and not finished it; "
            "tasks may have written records of it that the new checkpoint would write again.",
            hint="start the stream once more, and stop it when it has caught up; then replay what it did",
        )


def _point(paths: PipelinePaths, switched: tuple[str, ...]) -> None:
    if switched:
        replace_file(paths.pointer, "".join(f"{name}\n" for name in switched).encode(), durable=True)
    else:
        paths.pointer.unlink()
