"""Lets a stream use more cores than its checkpoint was made for, with the same tasks.

```
made       a checkpoint beside its own, with more shards: each store is as the last batch has left it
switched   the stream goes on with it, from the same offsets, as the same query: tables and Kafka see no change
```

No key goes to another task, so replays and roll-backs take no notice (`handover`). A driver does so at its start, as
the holder of the lease, if no batch is open; `deltaworks rescale` does so between drivers. Whoever is killed before the
switch leaves the stream as it was.

Spark's state is read by a process of its own (`state_reader`): the JVM of a driver is for its query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deltaworks import clock
from deltaworks.control import checkpoint, fence
from deltaworks.control.checkpoint import CheckpointPlan
from deltaworks.control.children import ToldToStopError
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import LeaseError
from deltaworks.faults import reach
from deltaworks.runtime.state.local_store import LocalStore
from deltaworks.settings import Settings
from deltaworks.spark import handover
from deltaworks.spark.handover import WIDENED
from deltaworks.spark.state_reader import StateReader
from deltaworks.spark.stopped import ReadState, StoppedStream
from deltaworks.topology.plan import Plan

_log = logging.getLogger(__name__)


def is_needed(plan: Plan, described: CheckpointPlan, cores: int) -> bool:
    """Whether a checkpoint uses fewer of some cores than its tasks could."""
    return described.shards < checkpoint.usable(plan, described.tasks, cores)


def at_start(
    settings: Settings,
    plan: Plan,
    paths: PipelinePaths,
    generation: int,
    *,
    is_told: Callable[[], bool],
    begun: Callable[[int], None],
    read: ReadState | None = None,
) -> None:
    """Spreads the state over the cores that there are; if it cannot, the stream has what it had, and the log says why.

    Args:
        settings: with the cores that the stream may use.
        plan: of the stream.
        paths: of the stream, of which we hold the lease and nothing is open.
        generation: ours.
        is_told: whether we are to stop.
        begun: called with the id of a process that has to end before another driver begins.
        read: reads Spark's state; None: a process of its own.

    Raises:
        ToldToStopError: we are to stop; the stream has what it had.
        LeaseError: another driver has taken over.
    """
    stream = StoppedStream.of(settings, plan, paths, read or StateReader(is_told, begun))
    assert stream is not None
    before, begun_s = stream.before, clock.ticks_s()
    cores = checkpoint.usable(plan, before.tasks, settings.cores)
    print(f"spreading the state over {cores} cores; {before.shards} until now", flush=True)
    try:
        widen(stream, settings.cores, generation, is_told=is_told)
    except (LeaseError, ToldToStopError):
        raise
    except Exception as error:  # whatever it is, a start must not need it
        _log.warning("the state is not spread over %d cores, and %d are used: %s", cores, before.shards, error)
    else:
        print(f"the state is spread over {cores} cores, in {clock.ticks_s() - begun_s:.1f} s", flush=True)


def widen(stream: StoppedStream, shards: int, generation: int, *, is_told: Callable[[], bool] = lambda: False) -> str:
    """Lets a stream go on with another number of shards; returns the name of its checkpoint.

    Args:
        stream: of which nothing is open; the caller holds its lease.
        shards: see `CheckpointPlan`.
        generation: has been admitted.
        is_told: whether the caller is to stop.

    Raises:
        ConflictError: something was begun and not finished.
        QueryError: Spark's state cannot be read.
        FencedError: a newer generation has been admitted.
        ToldToStopError: we are to stop.
    """
    paths = stream.paths
    stream.require_settled()
    last = stream.last_batch()
    # Nobody else, on whatever machine, makes one of this name: a generation is admitted once, and each switch adds one.
    name = f"{WIDENED}{generation}-{len(paths.switched)}"
    try:
        _make(stream, name, last, shards, is_told)
    except BaseException:
        handover.discard_unfinished(paths)
        raise
    reach("widening.made")
    with fence.held(paths.fence, generation, stream.plan.name):
        handover.switch(paths, name)
    reach("widening.switched")
    return name


def _make(stream: StoppedStream, name: str, last: int, shards: int, is_told: Callable[[], bool]) -> None:
    with stream.stores() as stores:
        reach("widening.read")

        @contextmanager
        def opened(stage: int, task: int, of: dict[str, bool]) -> Iterator[LocalStore | None]:
            if is_told():
                raise ToldToStopError
            with stores.opened(stage, task, of) as found:
                yield None if found is None else found[0]

        stream.make_next(name, last, opened, shards=shards)
