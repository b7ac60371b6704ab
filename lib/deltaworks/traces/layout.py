"""The spans of a batch, laid out from its figures.

```text
batch
├─ latestOffset, walCommit, getBatch, queryPlanning      Spark's phases; our plan is made in latestOffset
├─ addBatch
│  ├─ tasks
│  │  └─ task 0-3
│  │     ├─ open, poll orders, process orders, commit, keep
│  │     └─ (below commit) commit transaction            Kafka's
│  ├─ tables
│  │  └─ commit enriched_orders
│  └─ after
└─ commitOffsets
```

Some moments are measured: those of the driver, the commits of tables, and when a task had processed and committed.
Spark and tasks only tell how long their other parts took. These are laid end to end, in the order in which they run. If
the clock of another machine would put a task outside of the batch, all of its spans are shifted into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from deltaworks.kafka.ranges import Range
from deltaworks.runtime.messages import TaskResult
from deltaworks.traces.figures import BatchFigures

Attribute = str | bool | int | float | list[str]
Kind = Literal["internal", "client", "consumer", "producer"]
_BEFORE = ("latestOffset", "walCommit", "getBatch", "queryPlanning")
"""What Spark does before it hands a batch to the driver, in this order; it may name other parts."""
_AROUND, _AFTER, _ALL = "addBatch", ("commitOffsets",), "triggerExecution"
_ROUNDED_NS = 2_000_000
"""Tasks tell moments in whole milliseconds, so a smaller difference says nothing of their clock."""
_KAFKA: Mapping[str, Attribute] = {"messaging.system": "kafka"}


@dataclass(frozen=True)
class Span:
    """A part of a batch; times are in nanoseconds since 1970."""

    name: str
    begin_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    children: Sequence[Span] = ()
    kind: Kind = "internal"
    error: str | None = None
    """The type of the error that ended it."""

    def all(self) -> Iterator[Span]:
        """This span and those below it."""
        yield self
        for child in self.children:
            yield from child.all()


@dataclass(frozen=True)
class Interval:
    """From when to when something lasted, in nanoseconds since 1970."""

    begin_ns: int
    end_ns: int

    def shift_of(self, other: Interval) -> int:
        """By how much another interval has to be shifted to lie within this one, as far as it is not longer."""
        if other.begin_ns < self.begin_ns or other.end_ns - other.begin_ns > self.end_ns - self.begin_ns:
            return self.begin_ns - other.begin_ns
        return min(0, self.end_ns - other.end_ns)

    def clipped(self, other: Interval, shift_ns: int) -> Interval:
        """What of another interval lies within this one, once it is shifted."""
        begin_ns, end_ns = (
            min(max(at + shift_ns, self.begin_ns), self.end_ns) for at in (other.begin_ns, other.end_ns)
        )
        return Interval(begin_ns, end_ns)


def batch_span(batch: BatchFigures, attributes: Mapping[str, Attribute] | None = None) -> Span:
    """The span of a batch that has ended, with all others below it.

    Args:
        batch: what is known of it.
        attributes: what the driver says of all of its batches.
    """
    ours = _ours(batch)
    own = Interval(batch.wall_ns(batch.begun_s), batch.ended_ns)
    before, add_batch, after = _spark(batch.spark_phases, own, ours, batch.error)
    children = [*before, *add_batch, *after] if add_batch else ours
    begin_ns = min([own.begin_ns, *(each.begin_ns for each in children)])
    end_ns = max([own.end_ns, *(each.end_ns for each in children)])
    return Span("batch", begin_ns, end_ns, {**_of_batch(batch), **(attributes or {})}, children, error=batch.error)


def _of_batch(batch: BatchFigures) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {
        **_KAFKA,
        "messaging.batch.message_count": batch.records,
        "deltaworks.batch.id": batch.batch_id,
        "deltaworks.generation": batch.generation,
        "deltaworks.checkpoint": batch.query_id,
    }
    if batch.intent is not None:
        found["deltaworks.batch.tick"] = batch.intent.tick
        found["deltaworks.code"] = batch.intent.code
    if _ALL in batch.spark_phases:
        found["deltaworks.spark.trigger_seconds"] = batch.spark_phases[_ALL]
    return found


def _spark(
    phases: Mapping[str, float], own: Interval, ours: Sequence[Span], error: str | None
) -> tuple[list[Span], list[Span], list[Span]]:
    """Spark's phases before, around and after what the driver does; none if it has not told."""
    if _AROUND not in phases:
        return [], [], []
    begin_ns = min(own.begin_ns, own.end_ns - _ns(phases[_AROUND]))
    around = Span(_AROUND, begin_ns, own.end_ns, children=ours, error=error)
    known = {*_BEFORE, *_AFTER, _AROUND, _ALL}
    first = [*_BEFORE, *(name for name in phases if name not in known)]
    before: list[Span] = []
    for name in (name for name in reversed(first) if phases.get(name)):
        before.insert(0, Span(name, begin_ns - _ns(phases[name]), begin_ns))
        begin_ns = before[0].begin_ns
    after: list[Span] = []
    end_ns = own.end_ns
    for name in (name for name in _AFTER if phases.get(name)):
        after.append(Span(name, end_ns, end_ns + _ns(phases[name])))
        end_ns = after[-1].end_ns
    return before, [around], after


def _ours(batch: BatchFigures) -> list[Span]:
    """What the driver has done: `tasks`, `tables` and `after`, as far as it came."""
    moments = [batch.begun_s, batch.processed_s, batch.committed_s, batch.ended_s]
    known = [moment for moment in moments[:3] if moment is not None]
    ends = [*known[1:], moments[3]]
    found = []
    for name, begin_s, end_s in zip(("tasks", "tables", "after"), known, ends, strict=False):
        assert end_s is not None
        inside = Interval(batch.wall_ns(begin_s), batch.wall_ns(end_s))
        span = Span(name, inside.begin_ns, inside.end_ns)
        match name:
            case "tasks":
                tasks = [_task(result, inside) for result in batch.results]
                span = replace(span, children=tasks, attributes={"deltaworks.tasks": len(tasks)} if tasks else {})
            case "tables":
                span = _tables(batch, span)
        found.append(span)
    if batch.error is not None:
        found[-1] = replace(found[-1], error=batch.error)
    return found


def _task(result: TaskResult, inside: Interval) -> Span:
    """A task: what it has done before it had processed its records lies before that, the rest around its commit."""
    counts = result.counts
    took = {phase: _ns(seconds) for phase, seconds in counts.phases.items()}
    before = [(phase, took.get(phase, 0)) for phase in ("open", "read", "process")]
    processed_ns = counts.processed_ms * 1_000_000
    committed_ns = max(counts.committed_ms * 1_000_000, processed_ns + took.get("commit", 0))
    at_ns = processed_ns - sum(length for _, length in before)
    whole = Interval(at_ns, committed_ns + took.get("keep", 0))
    shift_ns = inside.shift_of(whole)
    laid: list[tuple[str, Interval]] = []
    for phase, length in before:
        laid.append((phase, Interval(at_ns, at_ns + length)))
        at_ns += length
    commit = Interval(committed_ns - took.get("commit", 0), committed_ns)
    laid += [("commit", commit), ("keep", Interval(committed_ns, whole.end_ns))]
    children = [
        _phase(result, phase, inside.clipped(each, shift_ns)) for phase, each in laid if each.end_ns > each.begin_ns
    ]
    at = inside.clipped(whole, shift_ns)
    attributes: dict[str, Attribute] = {
        "deltaworks.stage": result.stage,
        "deltaworks.task": result.task,
        "deltaworks.records": counts.records_in,
        "deltaworks.store.opened": result.recovery,
    }
    optional = {
        "deltaworks.dropped": counts.dropped,
        "deltaworks.late": counts.late,
        "deltaworks.dead_letters": counts.dead_letters,
        "deltaworks.restored_entries": counts.restored_entries,
    }
    attributes |= {name: number for name, number in optional.items() if number}
    if abs(shift_ns) >= _ROUNDED_NS:
        attributes["deltaworks.shifted_ms"] = round(shift_ns / 1e6, 3)
    return Span(f"task {result.stage}-{result.task}", at.begin_ns, at.end_ns, attributes, children)


def _phase(result: TaskResult, phase: str, at: Interval) -> Span:
    counts = result.counts
    if phase == "commit":
        return Span(phase, at.begin_ns, at.end_ns, children=_transaction(result, at))
    if phase not in ("read", "process") or not result.ranges:
        attributes: dict[str, Attribute] = {"deltaworks.records": counts.records_in} if phase == "process" else {}
        return Span(phase, at.begin_ns, at.end_ns, attributes)
    name, operation, kind = _MESSAGING[phase]
    attributes = {
        **_KAFKA,
        "messaging.operation.type": operation,
        "messaging.operation.name": name,
        "messaging.batch.message_count": sum(each.stop - each.start for each in result.ranges),
        **_source(result.ranges),
    }
    topic = attributes.get("messaging.destination.name")
    return Span(f"{name} {topic}" if topic else name, at.begin_ns, at.end_ns, attributes, kind=kind)


_MESSAGING: Mapping[str, tuple[str, str, Kind]] = {
    "read": ("poll", "receive", "client"),
    "process": ("process", "process", "consumer"),
}
"""Phase of a task -> name of the operation for Kafka, its type, and the kind of its span."""


def _source(ranges: Sequence[Range]) -> dict[str, Attribute]:
    """What was read: topic and partition if there is one, and always the offsets, the last one excluded."""
    found: dict[str, Attribute] = {}
    topics, partitions = {each.topic for each in ranges}, {each.partition for each in ranges}
    if len(topics) == 1:
        found["messaging.destination.name"] = next(iter(topics))
        if len(partitions) == 1:
            found["messaging.destination.partition.id"] = str(next(iter(partitions)))
    found["deltaworks.offsets"] = [f"{each.topic}-{each.partition}: {each.start}..{each.stop}" for each in ranges]
    return found


def _transaction(result: TaskResult, inside: Interval) -> list[Span]:
    """The commit to Kafka, after the files of tables and before sinks of the author; none if nothing was sent."""
    counts = result.counts
    if not counts.sent:
        return []
    length = min(_ns(counts.transaction_s), inside.end_ns - inside.begin_ns)
    attributes: dict[str, Attribute] = {
        **_KAFKA,
        "messaging.operation.type": "send",
        "messaging.operation.name": "commit transaction",
        "messaging.batch.message_count": counts.sent,
        "deltaworks.skipped": result.skipped_transaction,
    }
    end_ns = inside.end_ns
    return [Span("commit transaction", end_ns - length, end_ns, attributes, kind="producer")]


def _tables(batch: BatchFigures, span: Span) -> Span:
    inside = Interval(span.begin_ns, span.end_ns)
    commits = []
    for each in batch.commits:
        begin_ns = batch.wall_ns(each.begun_s)
        added, removed = batch.files.get(each.table, (0, 0))
        at = inside.clipped(Interval(begin_ns, begin_ns + _ns(each.seconds)), 0)
        attributes: dict[str, Attribute] = {
            "deltaworks.table": each.table,
            "deltaworks.table.version": each.version,
            "deltaworks.table.rows": each.changed_rows,
            "deltaworks.table.files_added": added,
            "deltaworks.table.files_removed": removed,
            "deltaworks.skipped": each.skipped,
        }
        commits.append(Span(f"commit {each.table}", at.begin_ns, at.end_ns, attributes))
    refreshed = [each.table for each in batch.refreshed]
    return replace(span, children=commits, attributes={"deltaworks.snapshots": refreshed} if refreshed else {})


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
