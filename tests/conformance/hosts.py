"""Hosts other than the test driver: a host runs the micro-batches of a case and says what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltaworks import Plan, StreamsError
from deltaworks.kernel.errors import ErrorPolicy, dead_letter_record
from deltaworks.runtime.task_loop import TaskId
from deltaworks.testing.recorded import MicroBatch, Recording, Restarts, TaskOutput, run_recorded
from deltaworks.testing.topics import RawRecord

Entries = list[tuple[bytes, bytes]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a host is asked to run."""

    plan: Plan
    topic_partitions: Mapping[str, int]
    batches: Sequence[MicroBatch]
    errors: ErrorPolicy
    dead_letter_topic: str | None
    restarts: Restarts = lambda batch_id, task: False
    fed_back: frozenset[int] = frozenset()
    """Batches whose records the topology has written itself, into a topic that it reads."""
    forgets: bool = False
    """Processors of the case keep something in attributes, which a restart or a failed attempt would lose."""
    peeked: list[dict[str, Any]] = field(default_factory=list)
    """Functions of the plan append to it what they peek. A host that runs something twice has to clear it in between;
    one whose tasks are in other processes sees nothing."""


@dataclass(frozen=True)
class Failure:
    """The stream has ended with an error."""

    batch_id: int
    kind: str
    message: str


@dataclass
class Observed:
    """What was there at the end, or when the stream failed."""

    topics: dict[str, list[RawRecord]] = field(default_factory=dict)
    """What has been committed, in the dead letter topic too; per key in the order in which it was written."""
    stores: dict[TaskId, dict[str, Entries]] = field(default_factory=dict)
    """Per task and store, the store `__task__` included."""
    global_stores: dict[str, Entries] | None = None
    """None: the host does not show them."""
    peeked: list[dict[str, Any]] | None = None
    """`node`, `key`, `value`. None: the host does not show it."""
    error: Failure | None = None


Host = Callable[[Run], Observed]


def recorded(run: Run) -> Observed:
    """All stages in one process, see `run_recorded`."""
    taken: list[MicroBatch] = []
    try:
        return _observed(run, run.batches, _recording(run, noting(run.batches, taken)))
    except StreamsError as error:
        before = run.batches[: len(taken) - 1]
        found = _observed(run, before, _recording(run, before))
        found.error = Failure(len(taken) - 1, type(error).__name__, str(error))
        return found


def noting(batches: Sequence[MicroBatch], taken: list[MicroBatch]) -> Iterator[MicroBatch]:
    """The same batches; `taken` says afterwards how far somebody came."""
    for batch in batches:
        taken.append(batch)
        yield batch


def _recording(run: Run, batches: Iterable[MicroBatch]) -> Recording:
    run.peeked.clear()
    return run_recorded(run.plan, run.topic_partitions, batches, errors=run.errors, restarts=run.restarts)


def _observed(run: Run, batches: Sequence[MicroBatch], recording: Recording) -> Observed:
    peeked = list(run.peeked)
    written = {task: _written(run, output) for task, output in sorted(recording.tasks.items())}
    writers = Counter(topic for topics in written.values() for topic in topics)
    if any(count > 1 for count in writers.values()):
        topics = _batch_by_batch(run, batches)
    else:
        topics = {topic: records for each in written.values() for topic, records in each.items()}
    return Observed(topics, recording.stores, peeked=peeked)


def _written(run: Run, output: TaskOutput) -> dict[str, list[RawRecord]]:
    topics = {topic: list(records) for topic, records in output.topics.items()}
    if run.dead_letter_topic is not None:
        for letter in output.dead_letters:
            key, value, headers = dead_letter_record(letter)
            record = RawRecord(key, value, letter.timestamp_ms, headers)
            topics.setdefault(run.dead_letter_topic, []).append(record)
    return topics


def _batch_by_batch(run: Run, batches: Sequence[MicroBatch]) -> dict[str, list[RawRecord]]:
    """Where several tasks write to one topic, a recording does not say who came first; runs of fewer batches do."""
    topics: dict[str, list[RawRecord]] = {}
    seen: Counter[tuple[TaskId, str]] = Counter()
    for count in range(1, len(batches) + 1):
        for task, output in sorted(_recording(run, batches[:count]).tasks.items()):
            for topic, records in _written(run, output).items():
                topics.setdefault(topic, []).extend(records[seen[task, topic] :])
                seen[task, topic] = len(records)
    return topics
