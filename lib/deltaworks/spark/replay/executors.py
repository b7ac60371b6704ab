"""Where units run: in this process, or as the tasks of a Spark job."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from deltaworks import faults
from deltaworks.kernel.task import GARBAGE_THRESHOLDS
from deltaworks.spark import failures
from deltaworks.spark.replay.runner import UnitRunner
from deltaworks.spark.replay.units import Unit, UnitResult, Work


class Executor(Protocol):
    """Runs units that do not depend on each other."""

    def run(self, work: Work, units: Sequence[Unit]) -> list[UnitResult]:
        """In the order of the units.

        Raises:
            StreamsError: a record failed, and the pipeline says fail.
            KafkaReadError: records are gone, or the broker did not answer.
            StateError: a local store is ahead, or cannot be read.
        """


class InProcess:
    """One unit after the other, here."""

    def __init__(self) -> None:
        self._runner: UnitRunner | None = None

    def run(self, work: Work, units: Sequence[Unit]) -> list[UnitResult]:
        if self._runner is None or self._runner.work is not work:
            self._runner = UnitRunner(work)
        return [self._runner.run(unit) for unit in units]


class OnSpark:
    """A Spark job per call, with a task per unit; a unit whose worker died runs again.

    All workers need the folder of the run.
    """

    def __init__(self, spark: SparkSession, *, fault_hook: str | None = None) -> None:
        """
        Args:
            spark: where to run.
            fault_hook: `module:function`, called once per worker process (tests only).
        """
        self._spark, self._fault_hook = spark, fault_hook
        self._work: tuple[Work, bytes] | None = None

    def run(self, work: Work, units: Sequence[Unit]) -> list[UnitResult]:
        if self._work is None or self._work[0] is not work:
            self._work = work, cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
        tasks = [msgspec.msgpack.encode(unit) for unit in units]
        rows = self._spark.sparkContext.parallelize(tasks, len(tasks))
        try:
            results = rows.mapPartitions(partial(_run_here, work.run_id, self._work[1], self._fault_hook)).collect()
        except Py4JJavaError as error:
            raise failures.as_error(error) from error
        return [msgspec.msgpack.decode(result, type=UnitResult) for result in results]


_runners: dict[str, UnitRunner] = {}
"""By run id, at most one: a Python worker outlives the tasks that Spark runs in it."""


def _run_here(run_id: str, work: bytes, fault_hook: str | None, units: Iterable[bytes]) -> Iterator[bytes]:
    """In a worker."""
    runner = _runners.get(run_id)
    if runner is None:
        _runners.clear()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        faults.install(fault_hook)
        runner = _runners[run_id] = UnitRunner(cloudpickle.loads(work))
    for unit in units:
        yield msgspec.msgpack.encode(runner.run(msgspec.msgpack.decode(unit, type=Unit)))
