"""Reads history without the records of persons whose data was erased."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deltaworks.control.erasures import Forgotten
from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.history import HistoryReader
from deltaworks.topology.plan import Plan


def forgetting(history: Callable[[], HistoryReader], paths: PipelinePaths, plan: Plan) -> Callable[[], Reader]:
    """Readers of a pipeline's history, without records of persons whose data was erased.

    Args:
        history: makes readers of all records.
        paths: of the pipeline.
        plan: has the serdes of the topics.
    """
    forgotten = Forgotten.of(paths, plan)
    return history if forgotten is None else Forgetting(history, forgotten)


@dataclass(frozen=True)
class Forgetting:
    """Makes readers; is sent to the processes that read."""

    history: Callable[[], HistoryReader]
    forgotten: Forgotten

    def __call__(self) -> ForgettingReader:
        return ForgettingReader(self.history(), self.forgotten)


class ForgettingReader:
    """`SequentialReader` that leaves records out.

    Args:
        reader: has all records.
        forgotten: says which.
    """

    def __init__(self, reader: HistoryReader, forgotten: Forgotten) -> None:
        self._reader, self._forgotten = reader, forgotten

    def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
        """See `HistoryReader`."""
        return map(self._left, self._reader.read(ranges))

    def sequential(self, ranges_per_step: Sequence[Sequence[Range]]) -> Iterator[list[RecordBatch]]:
        """See `HistoryReader`."""
        return map(self._left, self._reader.sequential(ranges_per_step))

    def beginning(self, topic: str, partition: int) -> int:
        """See `HistoryReader`."""
        return self._reader.beginning(topic, partition)

    def close(self) -> None:
        self._reader.close()

    def _left(self, portion: list[RecordBatch]) -> list[RecordBatch]:
        return list(map(self._forgotten.left, portion))
