"""Where a micro-batch ends: pure arithmetic on offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deltaworks.errors import KafkaReadError
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.idling import Idling
from deltaworks.runtime.batches.sizes import UNKNOWN_BYTES

_FIRST_STEP_MS = 1_000
_LAST_MS = 1 << 43
"""In the year 2248."""
OffsetsAt = Callable[[int], Offsets]
"""Time -> the first offset of every partition at or after that time."""
Part = tuple[str, str]
"""Topic and partition."""


def count_records(start: Offsets, end: Offsets) -> int:
    """The number of records between two positions."""
    return sum(stop - start[t][p] for t, parts in end.items() for p, stop in parts.items())


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much one batch may hold."""

    records: int
    bytes: int | None = None
    """The most bytes, as far as sizes are known before the records are read; None: any number."""
    record_bytes: Mapping[str, float] = field(default_factory=dict)
    """Topic -> bytes per record, see `runtime.batches.sizes`."""
    unknown_bytes: float = UNKNOWN_BYTES
    """Bytes per record of a topic that `record_bytes` does not have."""

    def fits(self, start: Offsets, end: Offsets) -> bool:
        """Whether one batch may hold the records between two positions."""
        if count_records(start, end) > self.records:
            return False
        return (
            self.bytes is None
            or sum(self.size(topic) * count_records(start, {topic: parts}) for topic, parts in end.items())
            <= self.bytes
        )

    def size(self, topic: str) -> float:
        """Bytes of a record."""
        return self.record_bytes.get(topic, self.unknown_bytes)


def limit_offsets(start: Offsets, end: Offsets, limit: Limit) -> Offsets:
    """Cuts a backlog to what a batch may hold: one record of every partition, then the rest in proportion to backlogs.

    The result never exceeds the limit, unless the limit is below a single record. If the limit does not allow one
    record of each partition, those with the largest backlog go first; the others follow once their backlog has grown.
    """
    if limit.fits(start, end):
        return end
    backlog = {
        (t, p): stop - start[t][p] for t, parts in end.items() for p, stop in parts.items() if stop > start[t][p]
    }
    taken = dict.fromkeys(backlog, 0)
    records, size = limit.records, float("inf") if limit.bytes is None else float(limit.bytes)
    for part in sorted(backlog, key=lambda part: (-backlog[part] * limit.size(part[0]), part)):
        if any(taken.values()) and (records < 1 or size < limit.size(part[0])):
            continue
        taken[part] = 1
        records, size = records - 1, size - limit.size(part[0])
    left = {part: backlog[part] - 1 for part in backlog if taken[part]}
    left_bytes = sum(count * limit.size(topic) for (topic, _), count in left.items())
    share = max(0.0, min(1.0, records / max(1, sum(left.values())), size / max(1.0, left_bytes)))
    for part, count in left.items():
        taken[part] += int(count * share)
    return {t: {p: start[t][p] + taken.get((t, p), 0) for p in parts} for t, parts in end.items()}


def require_growing(start: Offsets, end: Offsets) -> None:
    """Refuses a topic that ends before what was read: it was recreated, and going on would silently lose records.

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
            hint="were they deleted and recreated? A new checkpoint starts from the beginning",
        )


def cut_by_time(start: Offsets, end: Offsets, limit: Limit, offsets_at: OffsetsAt, hint_ms: int) -> tuple[Offsets, int]:
    """Cuts a backlog of several topics at one time, so that older records go first, as in Kafka Streams.

    The cut is the latest time before which there is no more than a batch may hold. The search doubles and halves from
    the last cut. If too many records share one time, they are cut in proportion. So are records that a search by time
    does not find: they have no timestamp, or one so far in the future that its unit must be wrong.

    Args:
        start: first offset of the batch.
        end: where the topics end.
        limit: how much the batch may hold.
        offsets_at: per partition, the first offset at or after a time.
        hint_ms: the cut of the batch before, where the search begins.

    Returns:
        The end of the batch and its time. If there is a backlog, the batch has records of it.
    """

    def upto(time_ms: int) -> Offsets:
        found = offsets_at(time_ms)
        return {t: {p: min(max(found[t][p], start[t][p]), end[t][p]) for p in parts} for t, parts in end.items()}

    low = high = min(max(hint_ms, 0), _LAST_MS)
    step = _FIRST_STEP_MS
    while low > 0 and not limit.fits(start, upto(low)):
        high, low, step = low, max(0, low - step), step * 2
    while high < _LAST_MS and limit.fits(start, upto(high)):
        low, high, step = high, min(_LAST_MS, high + step), step * 2
    while high - low > 1:
        middle = (low + high) // 2
        if limit.fits(start, upto(middle)):
            low = middle
        else:
            high = middle
    cut = limit_offsets(start, upto(low), limit)  # records without a time may exceed the limit
    if count_records(start, cut) == 0:
        cut = limit_offsets(start, upto(high), limit)
    if count_records(start, cut) == 0:
        cut = limit_offsets(start, end, limit)
    return cut, low


def cut_backlog(start: Offsets, end: Offsets, limit: Limit, offsets_at: OffsetsAt, hint_ms: int) -> tuple[Offsets, int]:
    """The end of a batch: the whole backlog, or a part cut by proportion (one topic) or by time (several topics).

    For arguments and result see `cut_by_time`.
    """
    if limit.fits(start, end):
        return end, hint_ms
    if len(end) == 1:
        return limit_offsets(start, end, limit), hint_ms
    return cut_by_time(start, end, limit, offsets_at, hint_ms)


def wait_for_others(
    tasks: Mapping[tuple[int, int], Sequence[Part]],
    start: Offsets,
    end: Offsets,
    idling: Mapping[tuple[int, int], Idling],
    newest_ms: Callable[[], Mapping[Part, int]],
    offsets_at: OffsetsAt,
    wall_clock_ms: int,
) -> Offsets:
    """Holds back the records of tasks that wait for a partition without records (`max_task_idle`).

    A task whose partitions all have records may process up to the newest record of the partition that is behind; the
    other partitions then wait for that one.

    Args:
        tasks: the partitions of every task that has several.
        start: first offset of the batch.
        end: where the topics end.
        idling: how long each task has waited.
        newest_ms: asks for the largest timestamp of every partition.
        offsets_at: asks for offsets by time.
        wall_clock_ms: the time now.

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
