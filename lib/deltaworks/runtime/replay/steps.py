"""What a replay processes: the micro-batches of a stream, recorded or made up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from deltaworks.control.batches import BatchRecord
from deltaworks.kafka.ranges import Offsets, Range

_STEP_COST = 25
"""The cost of a step besides its records, in records."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch."""

    batch: int
    """Its id in the stream."""
    wall_ms: int
    ranges: tuple[Range, ...]
    """What the step reads of the topics whose records go to tasks."""
    tick: bool = False
    """Tasks that depend on the wall clock run, with records or without."""
    globals: Offsets = {}
    """How far the topics of global tables have been read: the next offset of each of their partitions."""

    @property
    def records(self) -> int:
        """Offsets to read, including those of transaction markers."""
        return sum(each.stop - each.start for each in self.ranges)


def globals_start(records: Iterable[BatchRecord], topics: Mapping[str, int]) -> Offsets:
    """Where the stream began to read the topics of its global tables; 0 where it never read anything.

    Args:
        records: all records of batches.
        topics: the topics of global tables, with their partitions.
    """
    start: Offsets = {topic: {} for topic in topics}
    for record in records:
        for topic in topics.keys() & record.offsets.keys():
            for partition, (first, _) in record.offsets[topic].items():
                start[topic].setdefault(partition, first)
    return {topic: {str(p): start[topic].get(str(p), 0) for p in range(count)} for topic, count in topics.items()}


def recorded_steps(records: Iterable[BatchRecord], start: Offsets) -> Iterator[Step]:
    """The batches of a stream, in order.

    Args:
        records: from the first batch of the checkpoint on: only together they say how far global tables had been read.
        start: where the topics of global tables began, see `globals_start`; all other topics belong to tasks.
    """
    position = start
    for record in records:
        ranges = []
        for topic, parts in record.offsets.items():
            if topic in start:
                position = {**position, topic: {**position[topic], **{p: stop for p, (_, stop) in parts.items()}}}
            else:
                ranges += [Range(topic, int(p), first, stop) for p, (first, stop) in parts.items()]
        yield Step(
            batch=record.batch, wall_ms=record.wall_clock_ms, ranges=tuple(ranges), tick=record.tick, globals=position
        )


def begun_later(steps: Iterable[Step], first_batch: int, whole: Collection[str]) -> Iterator[Step]:
    """The same steps; those before a batch keep only the topics that are read from the beginning.

    Args:
        steps: the steps in order.
        first_batch: the first batch of which everything is read.
        whole: the topics that are read from the beginning.
    """
    for step in steps:
        if step.batch >= first_batch:
            yield step
        elif ranges := tuple(each for each in step.ranges if each.topic in whole):
            yield msgspec.structs.replace(step, ranges=ranges, tick=False)


def chunks(steps: Iterable[Step], max_records: int, first_ends: int | None = None) -> Iterator[list[Step]]:
    """Groups consecutive steps that are committed together.

    Args:
        steps: the steps in order.
        max_records: of a chunk, including those of global tables; a larger step is a chunk of its own.
        first_ends: the last batch of the first chunk, whatever it holds; None: no special first chunk.

    Raises:
        ValueError: there is no such batch, or batches are not in order.
    """
    chunk: list[Step] = []
    size, last = 0, -1
    for step in steps:
        if step.batch <= last:
            raise ValueError(f"batch {step.batch} comes after batch {last}")
        last = step.batch
        cost = step.records + _STEP_COST
        news = _between(chunk[-1].globals, step.globals) if chunk else 0
        if chunk and first_ends is None and size + cost + news > max_records:
            yield chunk
            chunk, size, news = [], 0, 0
        chunk.append(step)
        size += cost + news
        if step.batch == first_ends:
            yield chunk
            chunk, size, first_ends = [], 0, None
    if first_ends is not None:
        raise ValueError(f"batch {first_ends}, up to which tasks have been replayed, is not among the batches")
    if chunk:
        yield chunk


def _between(before: Offsets, after: Offsets) -> int:
    """How many records global tables have read from one step to the next."""
    if before is after:
        return 0
    return sum(stop - before[topic][p] for topic, parts in after.items() for p, stop in parts.items())
