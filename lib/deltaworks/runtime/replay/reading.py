"""How the records of a task get to it, step after step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.runtime.global_tables import Reader


@runtime_checkable
class SequentialReader(Reader, Protocol):
    """A reader that goes through many small ranges as through few large ones."""

    def sequential(self, ranges_per_step: Sequence[Sequence[Range]]) -> Iterator[list[RecordBatch]]:
        """The records of each step, those of one topic-partition in offset order; never all steps at once in memory.

        Args:
            ranges_per_step: per topic-partition ascending.
        """


def read_steps(reader: Reader, steps: Sequence[Sequence[Range]]) -> Generator[Iterable[list[RecordBatch]], None, None]:
    """Per step the records of its ranges, in portions that a task may process one after the other.

    What one step yields is taken before the next step is asked for.

    Args:
        reader: of one task.
        steps: per step what it reads.

    Raises:
        KafkaReadError: records are gone, or the broker did not answer.
    """
    if isinstance(reader, SequentialReader):
        for records in reader.sequential(steps):
            yield [records]
        return
    for ranges in steps:
        yield reader.read(list(ranges))
