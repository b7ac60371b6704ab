"""The material from which a processor is built, besides its node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deltaworks.kernel.call_outs import Answers, NobodyAnswers
from deltaworks.kernel.context import Process, TaskContext
from deltaworks.kernel.processors.raw_records import RawRecords
from deltaworks.kernel.processors.window_clock import EmitClock, FinalClock, WindowClock
from deltaworks.kernel.punctuation import Punctuation
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.stores.subscriptions import SubscriptionStore
from deltaworks.kernel.stores.suppress import SuppressBuffer
from deltaworks.kernel.stores.time_ordered import TimeOrderedStore
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.waiting_list import WaitingList
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.topology.nodes import AnyNode, SessionAggregate, SlidingAggregate, Suppress, WindowAggregate

Windowing = WindowAggregate | SlidingAggregate | SessionAggregate


@dataclass
class Wiring:
    """The inside of a task while its processors are built, children first."""

    context: TaskContext
    stores: Mapping[str, Store]
    exchange_partitions: Mapping[str, int]
    observed_ms: Mapping[str, int]
    """Store of an aggregate -> the largest timestamp the aggregate has seen."""
    nodes: Mapping[str, AnyNode]
    global_stores: Mapping[str, Store] = field(default_factory=dict)
    """Stores of global tables and global stores; other tasks fill them."""
    emitted_ms: Callable[[str], tuple[int, int]] = lambda clock: (NEVER, NEVER)
    """Reads the times of an `EmitClock` that the task remembers."""
    answers: Answers = field(default_factory=NobodyAnswers)
    """What other systems say."""
    stage: int = 0
    """Number of the stage."""
    punctuation: Punctuation = field(default_factory=Punctuation)
    """The schedules of users' processors."""
    starts: list[Callable[[], None]] = field(default_factory=list)
    """Initialize what users wrote, the last operator first; called when all processors are built."""
    closers: list[Callable[[], None]] = field(default_factory=list)
    """Close what users wrote, the last operator first."""
    processes: dict[str, Process] = field(default_factory=dict)
    """The processors built so far, by node."""
    children: dict[str, list[str]] = field(default_factory=dict)
    flushes: list[Callable[[], None]] = field(default_factory=list)
    """Record caches, the last operator first."""
    idlers: list[Callable[[int], None]] = field(default_factory=list)
    """`(time_ms) -> None`, the last operator first: while the task is idle, time goes on to `time_ms`. Every operator
    with a time of its own adds one, which does what a record of that time would do, without a record."""
    clocks: dict[str, FinalClock] = field(default_factory=dict)
    """Clocks of windowed aggregates, by node."""
    clocks_by_store: dict[str, WindowClock] = field(default_factory=dict)
    emit_clocks: dict[str, EmitClock] = field(default_factory=dict)
    """Emit clocks by store, as the task remembers them."""

    @cached_property
    def raw_records(self) -> RawRecords:
        """The operators that see the records that a sink has written."""
        return RawRecords(self.nodes)

    def forward(self, node: str) -> Process:
        """Hands a record to every child of a node, in the order in which they were connected."""
        children = [self.processes[child] for child in self.children.get(node, ())]
        match children:
            case []:
                return nowhere
            case [child]:
                return child
            case _:
                return _everywhere(tuple(children))

    def clock(self, node: Windowing | Suppress, *, stays_open_ms: int) -> WindowClock:
        """The clock of an aggregate; the task remembers it, and the tables of its windows ask it what is final."""
        name = node.store if isinstance(node, Suppress) else node.clock
        clock = WindowClock(self.observed_ms.get(name, NEVER), stays_open_ms)
        self.clocks[node.name] = self.clocks_by_store[name] = clock
        return clock

    def emit_clock(self, node: Windowing, *, final_after_ms: int) -> EmitClock:
        """The progress of an aggregate that forwards when windows close; its tables ask it which windows are final."""
        emitted_ms, pause_until_ms = self.emitted_ms(node.clock)
        clock = EmitClock(emitted_ms, pause_until_ms, interval_ms=node.emit_interval_ms, final_after_ms=final_after_ms)
        self.clocks[node.name] = self.emit_clocks[node.clock] = clock
        return clock

    def key_value_store(self, name: str) -> KeyValueStore:
        store = self.stores[name]
        assert isinstance(store, KeyValueStore), name
        return store

    def table_store(self, name: str) -> KeyValueStore | VersionedStore:
        """The store of a table that is not windowed."""
        store = self.stores[name]
        assert isinstance(store, KeyValueStore | VersionedStore), name
        return store

    def window_store(self, name: str) -> WindowStore:
        store = self.stores[name]
        assert isinstance(store, WindowStore), name
        return store

    def subscription_store(self, name: str) -> SubscriptionStore:
        store = self.stores[name]
        assert isinstance(store, SubscriptionStore), name
        return store

    def suppress_buffer(self, name: str) -> SuppressBuffer:
        store = self.stores[name]
        assert isinstance(store, SuppressBuffer), name
        return store

    def join_window_store(self, name: str) -> JoinWindowStore:
        store = self.stores[name]
        assert isinstance(store, JoinWindowStore), name
        return store

    def waiting_list(self, name: str) -> WaitingList:
        store = self.stores[name]
        assert isinstance(store, WaitingList), name
        return store

    def join_buffer(self, name: str) -> TimeOrderedStore:
        store = self.stores[name]
        assert isinstance(store, TimeOrderedStore), name
        return store

    def global_table(self, name: str) -> KeyValueStore:
        store = self.global_stores[name]
        assert isinstance(store, KeyValueStore), name
        return store

    def session_store(self, name: str) -> SessionStore:
        store = self.stores[name]
        assert isinstance(store, SessionStore), name
        return store


def nowhere(key: object, value: object, timestamp_ms: int, headers: Headers) -> None:
    """The end of a branch: does nothing."""


def _everywhere(children: tuple[Process, ...]) -> Process:
    def process(key: object, value: object, timestamp_ms: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp_ms, headers)

    return process
