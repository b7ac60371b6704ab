"""How far back a replay of some days has to read: the lookback of their results, as a time.

A replay may begin with a later batch if this changes no result. It leaves out records that are older than the days by
the lookback or more, if all of them were read before any other record. They would only have left windows, sessions and
join partners that are too old for the days. They cannot make a record late either: stream time was before the lookback
when they had been read, and records of the days are at least as new. So a node sends the same records with a time in
the days if each of its inputs is the same as far back as the node remembers.

Tables are read from the beginning, because a row may be untouched for a year. Where that is not enough, the replay
needs all history, and `NeedsAllHistory` says why: results without a window; users' processors, whose memory is
unknown; sessions with a maximum, which begin where the previous one ended; left and outer joins of streams, whose
records wait until something makes Kafka Streams look at them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from deltaworks.topology.nodes import (
    AnyNode,
    Branch,
    CallOut,
    CogroupMerge,
    CustomSink,
    DeltaSink,
    ExchangeSink,
    ExtractedTopicSink,
    Filter,
    FixedKeyProcessorNode,
    FlatMap,
    FlatMapValues,
    ForeignKeyAnswer,
    ForeignKeyRegister,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    ForeignKeyUpdate,
    GlobalTableJoin,
    JoinWindow,
    Map,
    MapValues,
    Merge,
    Passthrough,
    Peek,
    ProcessorNode,
    SelectKey,
    SessionAggregate,
    SlidingAggregate,
    Source,
    StreamAggregate,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
    Suppress,
    TableAggregate,
    TableFilter,
    TableGroupBy,
    TableJoinMerge,
    TableMapValues,
    TableSource,
    TableTableJoin,
    TableToStream,
    TableTransformValues,
    TopicSink,
    WindowAggregate,
)
from deltaworks.topology.nodes.aggregates import AggregateNode, Count
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.plan import Plan
from deltaworks.topology.windows import EmitStrategy, UnlimitedWindows

_OF_USERS = (ProcessorNode, FixedKeyProcessorNode, TableTransformValues)
"""Their memory and their clock are unknown."""


Sink = DeltaSink | TopicSink | ExtractedTopicSink


class NeedsAllHistory(Exception):
    """A result depends on records of any age; the text says which one, and why."""


@dataclass(frozen=True)
class _Memory:
    """The records on which the output of a node depends."""

    back_ms: int = 0
    """Records with a time in the days depend on inputs that are older by this much."""
    sessions: bool = False
    """Its records belong to sessions; only those of sessions that begin in the days are the same."""
    ragged: bool = False
    """Records older than the days may be missing or too many, so an exchange numbers later ones differently."""


def tables_from_the_beginning(plan: Plan, topics: Collection[str]) -> frozenset[str]:
    """The topics from which tables are filled."""
    found: set[str] = set()
    for node in plan.nodes:
        if isinstance(node, TableSource):
            for parent in _parents(plan, node):
                if isinstance(parent, Source) and not parent.exchange:
                    found |= {topic for topic in topics if _reads(parent, topic)}
    return frozenset(found)


def lookback_ms(plan: Plan, sinks: Collection[Sink], *, dead_letters: bool, whole: Collection[str]) -> int:
    """How much older than the days the records may be on which results of the days depend.

    Args:
        plan: of the code that is replayed.
        sinks: whose results are wanted: rows of windows that begin on the days, records with times on the days.
        dead_letters: whether the dead letters of the days are wanted too.
        whole: topics that are read from the beginning.

    Raises:
        NeedsAllHistory: they depend on records of any age.
    """
    memories = _Memories(plan, frozenset(whole))
    wanted = [memories.of_sink(sink) for sink in sinks]
    if dead_letters:
        wanted += [memories.of_dead_letters(node) for node in plan.nodes]
    return max((memory.back_ms for memory in wanted), default=0)


class _Memories:
    def __init__(self, plan: Plan, whole: frozenset[str]) -> None:
        self._parents = {node.name: list(_parents(plan, node)) for node in plan.nodes}
        self._complete = _complete(plan, self._parents, whole)
        self._known: dict[str, _Memory] = {}
        self._asked: set[str] = set()

    def of_sink(self, sink: Sink) -> _Memory:
        """The memory of a sink's output."""
        memory = self._of(sink)
        if memory.sessions and not (isinstance(sink, DeltaSink) and sink.kind is TableKind.WINDOWED):
            raise NeedsAllHistory(f"{sink.name} has every update of sessions, however long ago they began")
        return memory

    def of_dead_letters(self, node: AnyNode) -> _Memory:
        """The memory of a node's dead letters."""
        if self._only_counts(node):
            return _Memory()
        memory = self._of(node)
        if memory.sessions:
            raise NeedsAllHistory(f"dead letters of {node.name} are of sessions, however long ago they began")
        return memory

    def _only_counts(self, node: AnyNode) -> bool:
        """Whether a node only has counts of records, on which nothing can fail."""
        match node:
            case AggregateNode():
                return isinstance(node.aggregation, Count)
            case CogroupMerge() | TableToStream() | Suppress() | DeltaSink() | TopicSink():
                return all(map(self._only_counts, self._parents[node.name]))
            case _:
                return False

    def _of(self, node: AnyNode) -> _Memory:
        if node.name in self._complete:
            return _Memory()
        if node.name not in self._known:
            if node.name in self._asked:
                raise NeedsAllHistory(f"records come back to {node.name}")
            self._asked.add(node.name)
            before = _joined([self._of(parent) for parent in self._parents[node.name]])
            self._known[node.name] = _after(node, before)
        return self._known[node.name]


def _complete(plan: Plan, parents: Mapping[str, Sequence[AnyNode]], whole: frozenset[str]) -> set[str]:
    """The nodes that depend only on topics that are read from the beginning."""
    found = {node.name for node in plan.nodes if not isinstance(node, _OF_USERS) and not _reads_others(node, whole)}
    while dependent := {name for name in found if any(parent.name not in found for parent in parents[name])}:
        found -= dependent
    return found


def _reads_others(node: AnyNode, whole: frozenset[str]) -> bool:
    return (
        isinstance(node, Source)
        and not node.exchange
        and (node.pattern is not None or not whole.issuperset(node.topics))
    )


def _after(node: AnyNode, before: _Memory) -> _Memory:
    """Adds a node's own memory to that of its inputs, some of which are not complete."""
    match node:
        case WindowAggregate() | SlidingAggregate() | SessionAggregate() if (
            node.emit is EmitStrategy.ON_WINDOW_CLOSE and node.emit_interval_ms > 0
        ):
            raise NeedsAllHistory(f"the clock decides when {node.name} looks for closed windows (emit_interval)")
        case StreamStreamJoin(alone=True):
            raise NeedsAllHistory(f"how long {node.name} waits for a partner depends on the records that waited before")
        case Source(exchange=False) if node.timestamp_extractor is not None or any(
            limit.otherwise == "clamp" for _, limit in node.timestamps
        ):
            raise NeedsAllHistory(f"{node.name} gives records its own times, by which Kafka cannot find them")
        case (
            Source() | Filter() | Map() | MapValues() | FlatMap() | FlatMapValues() | SelectKey() | Peek() | Merge()
            | Branch() | Passthrough() | CallOut() | GlobalTableJoin() | TableFilter() | TableMapValues()
            | TableToStream() | CogroupMerge() | TableJoinMerge() | DeltaSink() | TopicSink() | ExtractedTopicSink()
            | CustomSink()
        ):  # fmt: skip
            return before
        case ExchangeSink():
            if before.ragged:
                raise NeedsAllHistory(f"results of windows move to other tasks at {node.name}")
            return before
        case WindowAggregate():
            if isinstance(node.windows, UnlimitedWindows):
                raise NeedsAllHistory(f"the window of {node.name} has no end")
            return _remembering(node, before, node.windows.size_ms)
        case SlidingAggregate(windows=windows):
            return _remembering(node, before, 3 * windows.difference_ms + 1)
        case SessionAggregate(windows=windows):
            if windows.max_duration_ms is not None:
                raise NeedsAllHistory(f"sessions of {node.name} begin where the previous one became too long")
            return replace(_remembering(node, before, windows.gap_ms), sessions=True)
        case JoinWindow(windows=windows) | StreamStreamJoin(windows=windows) | StreamSelfJoin(windows=windows):
            return _remembering(node, before, max(abs(windows.before_ms), abs(windows.after_ms)))
        case StreamTableJoin():
            return before if node.grace_ms is None else _remembering(node, before, node.grace_ms)
        case Suppress():
            if not node.until_window_closes or node.buffer.emits_early:
                raise NeedsAllHistory(f"{node.name} may hold back updates of any age")
            return before
        case TableTableJoin():
            return _remembering(node, before, 0)
        case StreamAggregate() | TableGroupBy() | TableAggregate():
            raise NeedsAllHistory(f"{node.name} has results without a window")
        case (
            ForeignKeySubscribe() | ForeignKeyRegister() | ForeignKeyAnswer() | ForeignKeyUpdate() | ForeignKeyResolve()
            | TableSource()
        ):  # fmt: skip
            raise NeedsAllHistory(f"{node.name} has rows without a window")
        case TableTransformValues() | ProcessorNode() | FixedKeyProcessorNode():
            raise NeedsAllHistory(f"the memory of {node.name} is unknown")
        case _:
            assert_never(node)


def _remembering(node: AnyNode, before: _Memory, ms: int) -> _Memory:
    if before.sessions:
        raise NeedsAllHistory(f"{node.name} gets results of sessions, however long ago they began")
    return _Memory(before.back_ms + ms, ragged=True)


def _joined(inputs: list[_Memory]) -> _Memory:
    """The memory of all inputs of a node together."""
    return _Memory(
        max((each.back_ms for each in inputs), default=0),
        sessions=any(each.sessions for each in inputs),
        ragged=any(each.ragged for each in inputs),
    )


def _parents(plan: Plan, node: AnyNode) -> Iterator[AnyNode]:
    """The nodes that a node gets records from or looks rows up in, across exchanges too."""
    lookups = set(node.parents)
    match node:
        case StreamTableJoin() | TableTableJoin() | ForeignKeyAnswer() | ForeignKeyResolve():
            lookups.add(node.table)
        case StreamStreamJoin():
            lookups.add(node.other)
        case _:
            pass
    exchanges = set(node.topics) if isinstance(node, Source) and node.exchange else set()
    for other in plan.nodes:
        if other.name in lookups or (isinstance(other, ExchangeSink) and other.exchange in exchanges):
            yield other


def _reads(source: Source, topic: str) -> bool:
    return topic in source.topics or (source.pattern is not None and re.fullmatch(source.pattern, topic) is not None)
