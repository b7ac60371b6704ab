"""Where units run. `deltaworks.spark.replay.executors` has the one that runs them as the tasks of a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deltaworks.runtime.replay.runner import UnitRunner
from deltaworks.runtime.replay.units import Unit, UnitResult, Work


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
