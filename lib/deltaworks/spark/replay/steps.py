"""What a replay processes: the micro-batches of a stream, as they were recorded or as they are made up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from deltaworks.control.batches import BatchRecord
from deltaworks.kafka.ranges import Offsets, Range


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch."""

    batch: int
    """Its id in the stream."""
    wall_ms: int
    ranges: tuple[Range, ...]
    """What it reads of the topics whose records go to tasks."""
    tick: bool = False
    """Tasks that depend on the wall clock run, with records or without."""
    globals: Offsets = {}
    """How far the topics of global tables have been read: the next offsets."""

    @property
    def records(self) -> int:
        """Offsets to read, those of transaction markers included."""
        return sum(each.stop - each.start for each in self.ranges)


def recorded_steps(records: Iterable[BatchRecord], global_topics: Collection[str]) -> Iterator[Step]:
    """The batches of a stream, in order.

    Args:
        records: from the first batch of the checkpoint on, since only together they say how far global tables were.
        global_topics: topics of global tables.
    """
    globals_: Offsets = {}
    for record in records:
        ranges = []
        for topic, parts in record.offsets.items():
            for partition, (start, stop) in parts.items():
                if topic in global_topics:
                    globals_ = {**globals_, topic: {**globals_.get(topic, {}), partition: stop}}
                else:
                    ranges.append(Range(topic, int(partition), start, stop))
        yield Step(
            batch=record.batch, wall_ms=record.wall_clock_ms, ranges=tuple(ranges), tick=record.tick, globals=globals_
        )
