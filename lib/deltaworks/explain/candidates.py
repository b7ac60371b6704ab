"""From a trace to sets of records that may make a row, from small to large.

The *core* are the records in whose processing the row was written: for an aggregate all of them since the row last did
not exist, for any other row the last one. Each set adds records on which these depend.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from deltaworks.explain.tracing import Step, Trace
from deltaworks.topology.nodes import (
    AnyNode,
    CogroupMerge,
    DeltaSink,
    Filter,
    Map,
    MapValues,
    Merge,
    Passthrough,
    Peek,
    SelectKey,
    StreamTableJoin,
    Suppress,
    TableAggregate,
    TableFilter,
    TableMapValues,
    TableToStream,
)
from deltaworks.topology.nodes.aggregates import AggregateNode
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.plan import Plan

EVERY_OF_ITS_TASKS = "every record of its tasks"
EVERY = "every record"
_PASSING = (
    CogroupMerge, Filter, Map, MapValues, Merge, Passthrough, Peek, SelectKey, TableFilter, TableMapValues,
    TableToStream,
)  # fmt: skip
"""Operators whose result depends on the record in process only."""


@dataclass(frozen=True)
class Level:
    """A set of records that may be enough."""

    records: frozenset[int]
    what: str
    """What it adds to the core, for people."""


@dataclass(frozen=True)
class Candidates:
    """The records on which a row may depend.

    Args:
        trace: what happened up to the end of the batch that wrote the row.
        writes: the steps that wrote the core.
        closing: the step after which the row was final; None: it is not, or does not say.

    A record cache forwards the last update of a batch, with the time and the source of the last record that touched it,
    even if that record changed nothing. And what an operator holds back it gets later than in the trace. So steps after
    the last write may matter too, up to the end of the trace.
    """

    trace: Trace
    writes: tuple[int, ...]
    closing: int | None

    @cached_property
    def core(self) -> frozenset[int]:
        """The records in whose processing the row was written."""
        found = self._records(self._ancestry(self.writes))
        # A row that a punctuator wrote, or that the clock closed, has no record of its own.
        return found or self._records(self._ancestry(self._with_parents(self.writes)))

    @cached_property
    def closers(self) -> frozenset[int]:
        """The record that closed the window."""
        return frozenset() if self.closing is None else self._records(self._ancestry([self.closing])) - self.core

    @property
    def needed(self) -> frozenset[int]:
        """The records that belong to each set."""
        return self.core | self.closers

    def levels(self) -> Iterator[Level]:
        """Sets from small to large; each has those before."""
        yield Level(self.needed, "nothing else")
        before = self.needed
        for level in self._wider():
            if level.records - before:
                before |= level.records
                yield Level(before, level.what)

    def order(self, *, by_last_step: bool) -> dict[int, int]:
        """Record -> its place in the order of processing.

        Args:
            by_last_step: By the last step that came from the record, which is the order in which the task of the row
                got them; else by the first.
        """
        place = {record: steps[0] for record, steps in self.trace.own.items()}
        if by_last_step:
            for number in self._closure:
                if (record := self._record_of(number)) >= 0:
                    place[record] = max(place[record], number)
        return place

    @property
    def _last(self) -> int:
        return max(*self.writes, -1 if self.closing is None else self.closing)

    @property
    def _begin(self) -> list[int]:
        return [*self.writes, *([] if self.closing is None else [self.closing])]

    def _wider(self) -> Iterator[Level]:
        steps = set(self._ancestry(self._begin))
        for hops in (1, 1, 2, 4):
            for _ in range(hops):
                steps |= set(self._with_parents(steps))
            yield Level(self._records(steps), "what it looked up")
        yield Level(self._records(self._closure), "all that it depends on through stores")
        yield Level(self._records(self._closed(self._touching(self._closure))), "later updates of the same batch")
        newest = {self.trace.steps[number].newest for number in self._closure} - {-1}
        yield Level(self._records(self._closed([*self._closure, *newest])), "records that move stream time")
        tasks = {self.trace.steps[number].task for number in self._closure}
        for last in (self._last, len(self.trace.steps) - 1):
            mine = [number for number in range(last + 1) if self.trace.steps[number].task in tasks]
            yield Level(self._records(self._ancestry(mine)), EVERY_OF_ITS_TASKS)
            yield Level(self._records(range(last + 1)), EVERY)

    def _touching(self, steps: Collection[int]) -> set[int]:
        """The steps, and those later in the same task and batch that read or replaced what one of them wrote."""
        found, all_steps = set(steps), self.trace.steps
        batches = {(all_steps[number].task, all_steps[number].batch) for number in steps}
        for number in range(min(found, default=0), len(all_steps)):
            step = all_steps[number]
            if (step.task, step.batch) in batches and any(
                parent in found and all_steps[parent].batch == step.batch for parent in step.parents
            ):
                found.add(number)
        return found

    @cached_property
    def _closure(self) -> frozenset[int]:
        return frozenset(self._closed(self._begin))

    def _closed(self, steps: Collection[int]) -> set[int]:
        found, left = set[int](), list(steps)
        while left:
            number = left.pop()
            if number in found or number < 0:
                continue
            found.add(number)
            step = self.trace.steps[number]
            left += step.parents
            left.append(step.sender)
        return found

    def _with_parents(self, steps: Collection[int]) -> set[int]:
        found = set(steps)
        for number in steps:
            found |= set(self._ancestry(self.trace.steps[number].parents))
        return found

    def _ancestry(self, steps: Collection[int]) -> list[int]:
        """The steps, and those that sent them their records."""
        found = []
        for number in steps:
            while number >= 0:
                found.append(number)
                number = self.trace.steps[number].sender
        return found

    def _records(self, steps: Collection[int]) -> frozenset[int]:
        return frozenset(record for number in steps if (record := self.trace.steps[number].record) >= 0)

    def _record_of(self, number: int) -> int:
        """The record from which a step came."""
        step: Step = self.trace.steps[number]
        while step.record < 0 and step.sender >= 0:
            step = self.trace.steps[step.sender]
        return step.record


def holds_back(plan: Plan, sink: DeltaSink) -> bool:
    """Whether a row may be written after the batch that read the record it names: an operator before it holds records
    back until stream time has passed, and then forwards them with their own source."""
    nodes = {node.name: node for node in plan.nodes}
    left, seen = list(sink.parents), set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        node = nodes[name]
        if isinstance(node, Suppress) or (isinstance(node, StreamTableJoin) and node.grace_ms is not None):
            return True
        left += node.parents
    return False


def accumulates(plan: Plan, sink: DeltaSink) -> bool:
    """Whether each write of a row builds on the one before, as in an aggregate; otherwise it replaces it."""
    if sink.kind is TableKind.APPEND:
        return False
    nodes = {node.name: node for node in plan.nodes}
    left: list[AnyNode] = [nodes[parent] for parent in sink.parents]
    while left:
        node = left.pop()
        if isinstance(node, AggregateNode | TableAggregate):
            return True
        if isinstance(node, _PASSING):
            left += [nodes[parent] for parent in node.parents]
    return False
