"""How records reach a task, step by step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.runtime.global_tables import Reader


@runtime_checkable
class SequentialReader(Reader, Protocol):
    """A reader that reads many small ranges as efficiently as a few large ones."""

    def sequential(self, ranges_per_step: Sequence[Sequence[Range]]) -> Iterator[list[RecordBatch]]:
        """The records of each step, those of each topic-partition in offset order; never holds all steps in memory.

        Args:
            ranges_per_step: ascending per topic-partition.
        """


def read_steps(reader: Reader, steps: Sequence[Sequence[Range]]) -> Generator[Iterable[list[RecordBatch]], None, None]:
    """For each step, the records of its ranges, in portions that a task may process one after the other.

    The caller takes all of a step before it asks for the next one.

    Args:
        reader: the reader of one task.
        steps: the ranges of each step.

    Raises:
        KafkaReadError: records are gone, or the broker did not answer.
    """
    if isinstance(reader, SequentialReader):
        for records in reader.sequential(steps):
            yield [records]
        return
    for ranges in steps:
        yield reader.read(list(ranges))
