"""Where a micro-batch ends: pure arithmetic on offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deltaworks.errors import KafkaReadError
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.idling import Idling

_FIRST_STEP_MS = 1_000
_LAST_MS = 1 << 43
"""In the year 2248."""
OffsetsAt = Callable[[int], Offsets]
"""Time -> the first offset of every partition at or after it."""
Part = tuple[str, str]
"""Topic and partition."""


def count_records(start: Offsets, end: Offsets) -> int:
    """From one position to another."""
    return sum(stop - start[t][p] for t, parts in end.items() for p, stop in parts.items())


def limit_offsets(start: Offsets, end: Offsets, max_records: int) -> Offsets:
    """Cuts a backlog to `max_records`, every partition in proportion to what it has, and at least one record each."""
    total = count_records(start, end)
    if total <= max_records:
        return end
    backlog = {(t, p): stop - start[t][p] for t, parts in end.items() for p, stop in parts.items()}
    share = max_records / total
    return {
        topic: {p: start[topic][p] + min(backlog[topic, p], int(backlog[topic, p] * share) + 1) for p in parts}
        for topic, parts in end.items()
    }


def require_growing(start: Offsets, end: Offsets) -> None:
    """A topic that ends before what was read has been made anew; going on would lose records without a word.

    Raises:
        KafkaReadError: names the partitions.
    """
    shrunk = [
        f"{topic}-{p} ends at {stop}, read up to {start[topic][p]}"
        for topic, parts in end.items()
        for p, stop in parts.items()
        if stop < start[topic][p]
    ]
    if shrunk:
        raise KafkaReadError(
            f"source topics hold less than was read from them: {'; '.join(shrunk)}",
            hint="were they deleted and created again? A new checkpoint starts from the beginning",
        )


def cut_by_time(
    start: Offsets, end: Offsets, max_records: int, offsets_at: OffsetsAt, hint_ms: int
) -> tuple[Offsets, int]:
    """Cuts a backlog of several topics at one time, so that what is older goes first, as in Kafka Streams.

    The cut is the latest time with at most `max_records` before it, found by doubling and halving from the last one.
    Where too many records carry one time, that time is cut in proportion.

    Args:
        start: first offset of the batch.
        end: what is there.
        max_records: of the batch.
        offsets_at: per partition, the first offset at or after a time.
        hint_ms: where to begin the search: the cut of the batch before.

    Returns:
        The end of the batch and its time.
    """

    def upto(time_ms: int) -> Offsets:
        found = offsets_at(time_ms)
        return {t: {p: min(max(found[t][p], start[t][p]), end[t][p]) for p in parts} for t, parts in end.items()}

    low, high, step = hint_ms, hint_ms, _FIRST_STEP_MS
    while low > 0 and count_records(start, upto(low)) > max_records:
        high, low, step = low, max(0, low - step), step * 2
    while high < _LAST_MS and count_records(start, upto(high)) <= max_records:
        low, high, step = high, min(_LAST_MS, high + step), step * 2
    while high - low > 1:
        middle = (low + high) // 2
        if count_records(start, upto(middle)) <= max_records:
            low = middle
        else:
            high = middle
    cut = upto(low)
    if count_records(start, cut) == 0:  # more than a batch within one millisecond
        return limit_offsets(start, upto(high), max_records), low
    return cut, low


def wait_for_others(
    tasks: Mapping[tuple[int, int], Sequence[Part]],
    start: Offsets,
    end: Offsets,
    idling: Mapping[tuple[int, int], Idling],
    newest_ms: Callable[[], Mapping[Part, int]],
    offsets_at: OffsetsAt,
    wall_clock_ms: int,
) -> Offsets:
    """Holds back the records of tasks that wait for a partition without any (`max_task_idle`).

    While all partitions of a task have records, it may process up to the newest one of the partition that is behind;
    the others then wait for that one.

    Args:
        tasks: the partitions of every task that has several.
        start: first offset of the batch.
        end: what is there.
        idling: how long each task has waited.
        newest_ms: asks for the largest timestamp of every partition.
        offsets_at: asks for offsets by time.
        wall_clock_ms: now.

    Returns:
        The end of the batch.
    """
    cut = {topic: dict(parts) for topic, parts in end.items()}
    for task, partitions in tasks.items():
        there = [(t, p) for t, p in partitions if end[t][p] > start[t][p]]
        missing = [part for part in partitions if part not in there]
        if not there:
            continue
        ready = idling[task].ready(there, missing, wall_clock_ms)
        if not ready:
            cut_to = {(t, p): start[t][p] for t, p in there}
        elif not missing:
            newest = newest_ms()
            upto = offsets_at(min(newest[part] for part in there) + 1)
            cut_to = {(t, p): min(max(upto[t][p], start[t][p]), end[t][p]) for t, p in there}
        else:
            continue
        for (topic, partition), offset in cut_to.items():
            cut[topic][partition] = offset
    return cut
