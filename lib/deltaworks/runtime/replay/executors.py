"""Where task chunks run. `deltaworks.spark.replay.executors` runs them as the tasks of a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deltaworks.runtime.replay.runner import ChunkRunner
from deltaworks.runtime.replay.task_chunks import ChunkResult, TaskChunk, Work


class Executor(Protocol):
    """Runs task chunks that do not depend on each other."""

    def run(self, work: Work, chunks: Sequence[TaskChunk]) -> list[ChunkResult]:
        """Returns the results in the order of the task chunks.

        Raises:
            StreamsError: a record failed, and the pipeline's error policy is to fail.
            KafkaReadError: records are gone, or the broker did not answer.
            StateError: a local store is ahead, or cannot be read.
        """


class InProcess:
    """Runs one task chunk after the other in this process."""

    def __init__(self) -> None:
        self._runner: ChunkRunner | None = None

    def run(self, work: Work, chunks: Sequence[TaskChunk]) -> list[ChunkResult]:
        if self._runner is None or self._runner.work is not work:
            self._runner = ChunkRunner(work)
        return [self._runner.run(chunk) for chunk in chunks]
