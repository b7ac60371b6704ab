"""Task chunks of a replay as the tasks of a Spark job."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from deltaworks import faults
from deltaworks.errors import DeltaworksError
from deltaworks.kernel.task import GARBAGE_THRESHOLDS
from deltaworks.runtime.replay.runner import ChunkRunner
from deltaworks.runtime.replay.task_chunks import ChunkResult, TaskChunk, Work
from deltaworks.spark.executor import of_executor


class OnSpark:
    """A Spark job per call, with a task per task chunk; a task chunk whose worker died runs again.

    A run that is shared may run on other machines. All others need the folder of the run.
    """

    def __init__(self, spark: SparkSession, *, fault_hook: str | None = None) -> None:
        """
        Args:
            spark: where to run.
            fault_hook: `module:function`, called once per worker process (tests only).
        """
        self._spark, self._fault_hook = spark, fault_hook
        self._work: tuple[Work, bytes] | None = None

    def run(self, work: Work, chunks: Sequence[TaskChunk]) -> list[ChunkResult]:
        if self._work is None or self._work[0] is not work:
            self._work = work, cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
        tasks = [msgspec.msgpack.encode(chunk) for chunk in chunks]
        rows = self._spark.sparkContext.parallelize(tasks, len(tasks))
        outcomes = rows.mapPartitions(partial(_run_here, self._work[1], self._fault_hook)).collect()
        results: list[ChunkResult] = []
        for outcome in outcomes:
            if isinstance(outcome, DeltaworksError):
                raise outcome
            results.append(msgspec.msgpack.decode(outcome, type=ChunkResult))
        return results


_runners: dict[bytes, ChunkRunner] = {}
"""Runners by their work, at most one: a Python worker outlives the tasks that Spark runs in it."""


def _run_here(work: bytes, fault_hook: str | None, chunks: Iterable[bytes]) -> Iterator[bytes | DeltaworksError]:
    """Runs task chunks in a worker. Errors that a retry would not change are returned, so that Spark does not retry."""
    runner = _runners.get(work)
    if runner is None:
        _runners.clear()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        faults.install(fault_hook)
        given: Work = cloudpickle.loads(work)
        runner = _runners[work] = ChunkRunner(given.at(of_executor()) if given.paths.is_shared else given)
    for chunk in chunks:
        try:
            yield msgspec.msgpack.encode(runner.run(msgspec.msgpack.decode(chunk, type=TaskChunk)))
        except DeltaworksError as error:
            yield error
