"""How tasks take their turns in a micro-batch, the same in a stream and in a replay.

A task runs once, in its turn, with everything that is there for it. If stages send records in a cycle, their tasks take
turns until nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Protocol

from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.task import Task
from deltaworks.topology.stages import StageGroup

TaskId = tuple[int, int]
"""`(stage, task)`"""
Sent = Iterable[tuple[TaskId, RecordBatch]]
"""What a task has sent to others."""


@dataclass
class Inputs:
    """The inputs of one task's turn; empty in a tick without records."""

    ranges: list[Range] = field(default_factory=list)
    exchanges: list[RecordBatch] = field(default_factory=list)


class Member(Protocol):
    """One task in one micro-batch."""

    def turn(self, inputs: Inputs, *, last: bool) -> Sent:
        """Processes and commits; returns what the task sends to others.

        Args:
            inputs: records, or nothing in a tick.
            last: the task has no other turn in this batch.
        """


def together(group: StageGroup, tasks: Sequence[int]) -> list[list[TaskId]]:
    """The tasks that take turns with each other, in their order: all tasks of a cycle, or a single task.

    Args:
        group: the stages.
        tasks: number of tasks per stage.
    """
    every = [(stage, task) for stage in group.stages for task in range(tasks[stage])]
    return [every] if group.cyclic else [[task] for task in every]


def rounds(
    groups: Iterable[StageGroup], tasks: Sequence[int], waiting: dict[TaskId, Inputs]
) -> Iterator[tuple[StageGroup, list[TaskId], dict[TaskId, Inputs]]]:
    """Goes through the tasks that have something to do, in the order in which data flows.

    Args:
        groups: the stages.
        tasks: number of tasks per stage.
        waiting: the inputs of tasks; the caller adds what they send each other.

    Returns:
        The group, the members, and their inputs, which are no longer in `waiting`.
    """
    for group in groups:
        for members in together(group, tasks):
            if inputs := {task: waiting.pop(task) for task in members if task in waiting}:
                yield group, members, inputs


def take_turns(
    members: Sequence[TaskId], inputs: Mapping[TaskId, Inputs], member: Callable[[TaskId], Member], *, cyclic: bool
) -> list[tuple[TaskId, RecordBatch]]:
    """Runs every member until none has anything to do.

    Args:
        members: one task, or all of a cycle.
        inputs: inputs of the members that have any; a task without inputs runs when others send it something.
        member: called before the first turn of a task.
        cyclic: members send records to each other.

    Returns:
        What they have sent to other tasks.
    """
    waiting = {task: Inputs([*given.ranges], [*given.exchanges]) for task, given in inputs.items()}
    sent: list[tuple[TaskId, RecordBatch]] = []
    while waiting:
        for task in members:
            given = waiting.pop(task, None)
            if given is None:
                continue
            for to, records in member(task).turn(given, last=not cyclic):
                if to in members:
                    waiting.setdefault(to, Inputs()).exchanges.append(records)
                else:
                    sent.append((to, records))
    return sent


def process(
    kernel: Task,
    inputs: Inputs,
    read: Callable[[list[Range]], Iterable[list[RecordBatch]]],
    wall_ms: int,
    *,
    in_slices: bool = False,
) -> None:
    """Runs one turn of a task, up to its commit.

    Args:
        kernel: the task.
        inputs: records, or nothing in a tick.
        read: gives the records of ranges, in portions that may be processed one after the other.
        wall_ms: the time of the micro-batch.
        in_slices: hold few records at a time: `read` is called per range, and the answers are read alternately.

    Raises:
        StreamsError: a record failed, and the pipeline's error policy is to fail.
    """
    if in_slices and inputs.ranges:
        kernel.process_slices(_slices(inputs, read), wall_ms)
        kernel.punctuate(wall_ms)
    elif inputs.ranges or inputs.exchanges:
        for portion in _portions(inputs, read):
            kernel.process(portion, wall_ms)
        kernel.punctuate(wall_ms)
    else:
        kernel.tick(wall_ms)


def _portions(
    inputs: Inputs, read: Callable[[list[Range]], Iterable[list[RecordBatch]]]
) -> Iterable[list[RecordBatch]]:
    """Portions that the kernel may process one after the other; inputs that must be merged come in one portion."""
    inputs.exchanges.sort(key=lambda exchange: (exchange.topic, exchange.partition, exchange.offsets[0]))
    if not inputs.ranges:
        return [inputs.exchanges]
    portions = read(inputs.ranges)
    if not inputs.exchanges:
        return portions
    return [[*(batch for portion in portions for batch in portion), *inputs.exchanges]]


def _slices(
    inputs: Inputs, read: Callable[[list[Range]], Iterable[list[RecordBatch]]]
) -> dict[tuple[str, int], Iterable[RecordBatch]]:
    slices: dict[tuple[str, int], Iterable[RecordBatch]] = {
        (each.topic, each.partition): chain.from_iterable(read([each])) for each in inputs.ranges
    }
    inputs.exchanges.sort(key=lambda exchange: (exchange.topic, exchange.partition, exchange.offsets[0]))
    for at, exchanges in groupby(inputs.exchanges, key=lambda exchange: (exchange.topic, exchange.partition)):
        slices[at] = list(exchanges)
    return slices
