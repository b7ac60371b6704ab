"""What the semantics say, once more: slow, in plain words, and independent of the kernel.

One stage or two, with two tasks each. No chunks, ranks, caches, bytes or commits: all records that a task ever took are
kept in lists and dicts, and looked through again and again. Only the hash of a key is the kernel's; it has tests of its
own. The same topologies for the kernel are in `test_reference.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from deltaworks.kernel.partitioning import partition_of

TASKS = 2
LEFT, RIGHT = "left", "right"


class Entry(Enum):
    """How the records of two topics become one stream."""

    MERGED = "both topics are read as one"
    TABLE = "a stream left-joins a table"
    STREAMS = "two streams are joined, at most so many milliseconds apart"


@dataclass(frozen=True)
class Shape:
    """A topology: what comes in is written to `seen`; then texts per key and window, whose updates go to `windows`."""

    entry: Entry
    exchange: bool
    """Records get a new key before they are grouped: the first letter of the value."""
    size_ms: int
    advance_ms: int
    grace_ms: int
    """Of the windows, and of the join of two streams, which are at most `size_ms` apart."""


@dataclass(frozen=True)
class Row:
    """A record."""

    time_ms: int
    key: str | None
    value: str | None


Partition = tuple[str, int]
"""`(topic, number)`; after an exchange `(exchange, upstream task)`."""
MicroBatch = Mapping[Partition, Sequence[Row]]


@dataclass
class Result:
    """What the tasks of one stage produced."""

    topics: dict[tuple[str, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    """`(topic, task)` -> records."""
    late: list[int] = field(default_factory=list)
    """Per micro-batch, of how many windows records were late."""


def results(shape: Shape, batches: Iterable[MicroBatch]) -> Result:
    """What comes out; restarts are nothing that the semantics know of."""
    result = Result()
    entries = [_ENTRIES[shape.entry](shape) for _ in range(TASKS)]
    windows = [_Windows(shape) for _ in range(TASKS)]
    for batch in batches:
        late_before = sum(each.late for each in windows)
        hopped: list[dict[Partition, list[Row]]] = [defaultdict(list) for _ in range(TASKS)]
        for task in range(TASKS):
            read = {name: rows for name, rows in batch.items() if name[1] == task}
            for (topic, _), row in lowest_head_first(read):
                for entered in entries[task].take(topic, row):
                    result.topics["seen", task].append(entered)
                    if shape.exchange:
                        key = new_key(entered.value)
                        to = hopped[partition_of(key.encode(), TASKS)]
                        to["exchange", task].append(Row(entered.time_ms, key, entered.value))
                    else:
                        result.topics["windows", task] += windows[task].take(entered)
        for task in range(TASKS):
            for _, row in lowest_head_first(hopped[task]):
                result.topics["windows", task] += windows[task].take(row)
        result.late.append(sum(each.late for each in windows) - late_before)
    return result


def lowest_head_first(partitions: Mapping[Partition, Sequence[Row]]) -> Iterator[tuple[Partition, Row]]:
    """The order contract: of the first records that are left, the one with the lowest timestamp; ties by partition."""
    left = {name: list(rows) for name, rows in partitions.items()}
    while heads := [(rows[0].time_ms, name) for name, rows in left.items() if rows]:
        _, name = min(heads)
        yield name, left[name].pop(0)


def new_key(value: str | None) -> str:
    return (value or "n")[0]


def added(text: str, value: str | None) -> str:
    return f"{text} {value or 'nothing'}"


def pair(value: str, other: str | None) -> str:
    return f"{value}+{other or 'nothing'}"


class _Merged:
    def __init__(self, shape: Shape) -> None:
        pass

    def take(self, topic: str, row: Row) -> list[Row]:
        return [row]


class _WithTable:
    def __init__(self, shape: Shape) -> None:
        self._rows: dict[str, str | None] = {}

    def take(self, topic: str, row: Row) -> list[Row]:
        if topic == RIGHT:
            if row.key is not None:
                self._rows[row.key] = row.value
            return []
        if row.value is None:
            return []
        found = None if row.key is None else self._rows.get(row.key)
        return [Row(row.time_ms, row.key, pair(row.value, found))]


class _Streams:
    """A record finds every earlier one of the other side that is near enough and has not been forgotten.

    Forgotten is what is older than the newest record of its side by the retention or more.
    """

    def __init__(self, shape: Shape) -> None:
        self._apart_ms = shape.size_ms
        self._retention_ms = 2 * shape.size_ms + shape.grace_ms
        self._taken: dict[str, list[Row]] = {LEFT: [], RIGHT: []}

    def take(self, topic: str, row: Row) -> list[Row]:
        if row.key is None or row.value is None:
            return []
        other_side = self._taken[RIGHT if topic == LEFT else LEFT]
        newest_ms = max((each.time_ms for each in other_side), default=0)
        partners = [
            other
            for other in other_side
            if other.key == row.key
            and abs(other.time_ms - row.time_ms) <= self._apart_ms
            and other.time_ms > newest_ms - self._retention_ms
        ]
        partners.sort(key=lambda other: other.time_ms)
        self._taken[topic].append(row)
        return [
            Row(
                max(row.time_ms, other.time_ms),
                row.key,
                pair(row.value, other.value) if topic == LEFT else pair(other.value or "", row.value),
            )
            for other in partners
        ]


_ENTRIES: dict[Entry, Callable[[Shape], _Merged | _WithTable | _Streams]] = {
    Entry.MERGED: _Merged,
    Entry.TABLE: _WithTable,
    Entry.STREAMS: _Streams,
}


class _Windows:
    """The text of a window is what its records said, one after the other; each record moves time, then may be late."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._taken: list[Row] = []
        self._texts: dict[tuple[str, int], Row] = {}
        self.late = 0

    def take(self, row: Row) -> list[Row]:
        if row.key is None:
            return []
        self._taken.append(row)
        now_ms = max(each.time_ms for each in self._taken)
        updates = []
        for start_ms in range(0, row.time_ms + 1, self._shape.advance_ms):
            end_ms = start_ms + self._shape.size_ms
            if row.time_ms >= end_ms:
                continue
            if end_ms <= now_ms - self._shape.grace_ms:
                self.late += 1
                continue
            before = self._texts.get((row.key, start_ms), Row(-1, None, ""))
            text = added(before.value or "", row.value)
            self._texts[row.key, start_ms] = update = Row(
                max(before.time_ms, row.time_ms), f"{row.key}@{start_ms}", text
            )
            updates.append(update)
        return updates
