"""Processors that users write: the context they work with, and how their records go in and out.

Exceptions of a processor are handled at its own node; records already forwarded stay.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from deltaworks.errors import StateError, StreamsError
from deltaworks.kernel.context import NO_HEADERS, NOWHERE, Process, TaskContext
from deltaworks.kernel.errors import described
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.punctuation import Schedule
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.access import StoreAccess, access
from deltaworks.topology.durations import wrong_duration
from deltaworks.topology.nodes.base import Node
from deltaworks.topology.nodes.processor_api import FixedKeyProcessorNode, ProcessorNode
from deltaworks.topology.nodes.sources import Source
from deltaworks.topology.processors import (
    FixedKeyRecord,
    PunctuationType,
    Punctuator,
    Record,
    RecordMetadata,
)
from deltaworks.topology.state_stores import DeclaredStore

_MILLISECOND = timedelta(milliseconds=1)


def processing(node: ProcessorNode | FixedKeyProcessorNode, wiring: Wiring) -> Process:
    """Makes one object per task, which is initialized when all processors of the task are built."""
    record_of: Any = Record if isinstance(node, ProcessorNode) else FixedKeyRecord
    processor, context = node.supplier(), UserContext(node, wiring, node.connected, node.reads)
    handle, failed = processor.process, context.failed
    wiring.starts.append(lambda: context.start(processor.init))
    wiring.closers.append(processor.close)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        record = record_of(key, value, timestamp_ms, headers)
        try:
            handle(record)
        except Exception as error:
            failed(error, record)

    return process


class UserContext:
    """The context of a user's processor: `ProcessorContext`, `FixedKeyProcessorContext`."""

    def __init__(self, node: Node, wiring: Wiring, connected: tuple[str, ...], reads: tuple[str, ...] = ()) -> None:
        """
        Args:
            connected: The stores that it may use.
            reads: The stores among them that it may not write.
        """
        self._node = node
        self._context: TaskContext = wiring.context
        self._task_id = f"{wiring.stage}_{wiring.context.partition}"
        self._punctuation = wiring.punctuation
        self._stores = {name: wiring.stores[name] for name in connected}
        self._reads = reads
        self._global_stores = wiring.global_stores
        self._all_stores = wiring.stores.keys()
        self._forward = wiring.forward(node.name)
        self._children = {child: wiring.processes[child] for child in wiring.children.get(node.name, ())}
        self._flushes = wiring.flushes
        self._global = any(isinstance(each, Source) and each.whole for each in wiring.nodes.values())
        self._starting = False
        self._accesses: dict[str, StoreAccess] = {}

    def start(self, init: Any) -> None:
        """Initializes the processor."""
        self._starting = True
        try:
            init(self)
        except (StreamsError, StateError):
            raise
        except Exception as error:
            text = f"KeyError: {error.args[0]}" if isinstance(error, KeyError) and error.args else described(error)
            raise StreamsError(
                f"'{self._node.name}' from {self._node.origin} cannot start: {text}",
                hint="its init runs whenever a task is built; it gets stores and schedules, and forwards nothing",
            ) from error
        self._starting = False

    @property
    def task_id(self) -> str:
        return self._task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        if self._starting or not (source := self._context.coordinates).topic:
            return None
        return RecordMetadata(source.topic, source.partition, source.offset)

    @property
    def current_stream_time_ms(self) -> int:
        return self._context.stream_time_ms

    @property
    def current_system_time_ms(self) -> int:
        return self._context.wall_clock_ms

    def forward(self, record: Record[Any, Any] | FixedKeyRecord[Any, Any], child: str | None = None) -> None:
        if self._starting:
            raise RuntimeError(f"'{self._node.name}' forwards in init, which runs whenever a task is built again")
        try:
            headers = record.headers
        except AttributeError:
            raise TypeError(
                f"forward takes a Record, such as record.with_value(...), but got a {record.__class__.__name__}"
            ) from None
        send = self._forward if child is None else self._child(child)
        if self._flushes and headers != self._context.headers:
            # Updates that a record cache keeps until the commit are forwarded with their original headers.
            return self._forward_disguised(send, record)
        return send(record.key, record.value, record.timestamp_ms, headers)

    def failed(self, error: Exception, record: Record[Any, Any] | FixedKeyRecord[Any, Any]) -> None:
        """Handles an exception of the processor on a record."""
        self._context.failed(self._node.name, error, record.key, record.value, record.timestamp_ms, record.headers)

    def state_store(self, store: str | DeclaredStore[Any], /) -> StoreAccess:
        name = store.name if isinstance(store, DeclaredStore) else store
        found = self._accesses.get(name)
        if found is None:
            found = self._accesses[name] = self._access(name)
        return found

    def schedule(
        self, interval: timedelta, type: PunctuationType, punctuator: Punctuator, *, start_ms: int | None = None
    ) -> Schedule:
        if self._global:
            raise RuntimeError(f"'{self._node.name}' fills a global store and cannot schedule: it belongs to no task")
        if not isinstance(type, PunctuationType):
            raise TypeError(f"schedule takes PunctuationType.STREAM_TIME or .WALL_CLOCK_TIME, not {type!r}")
        if not isinstance(interval, timedelta):
            raise TypeError(wrong_duration(interval, "the interval of a punctuator"))
        interval_ms = interval // _MILLISECOND
        if interval_ms < 1:
            raise ValueError(f"the interval of a punctuator must be at least a millisecond, not {interval}")
        if start_ms is None:
            start_ms = 0 if type is PunctuationType.STREAM_TIME else self._context.wall_clock_ms + interval_ms
        elif start_ms < 0:
            raise ValueError(f"the start of a punctuator must not be negative, but is {start_ms}")
        return self._punctuation.schedule(
            self._node.name,
            self._punctuate,
            punctuator,
            type,
            first_ms=start_ms,
            interval_ms=interval_ms,
            lasting=self._starting,
        )

    def commit(self) -> None:
        """Does nothing: the host commits after each micro-batch, the test driver after each record."""

    def _child(self, name: str) -> Process:
        if name not in self._children:
            known = ", ".join(sorted(self._children)) or "none"
            raise KeyError(f"'{self._node.name}' has no child '{name}'; it has: {known}")
        return self._children[name]

    def _forward_disguised(self, send: Process, record: Record[Any, Any] | FixedKeyRecord[Any, Any]) -> None:
        context = self._context
        number, index = context.number, context.index
        context.disguise(record.timestamp_ms, record.headers)
        try:
            send(record.key, record.value, record.timestamp_ms, record.headers)
        finally:
            context.number, context.index = number, index

    def _punctuate(self, punctuator: Punctuator, now_ms: int) -> None:
        context = self._context
        number, index = context.number, context.index
        context.resume(NOWHERE, now_ms, NO_HEADERS)
        try:
            punctuator(now_ms)
        except Exception as error:
            context.failed(self._node.name, error, None, None, now_ms, NO_HEADERS)
        finally:
            context.number, context.index = number, index

    def _access(self, name: str) -> StoreAccess:
        if name in self._stores:
            why = "something else fills it" if name in self._reads else None
            return access(self._stores[name], self._context, read_only=why)
        if name in self._global_stores:
            return access(self._global_stores[name], self._context, read_only="it is global, and filled from its topic")
        if name in self._all_stores:
            raise KeyError(
                f"the store '{name}' is not connected to '{self._node.name}'; name it where the processor is added:"
                f" .process(..., '{name}')"
            )
        known = ", ".join(sorted({*self._stores, *self._global_stores})) or "none"
        raise KeyError(
            f"there is no store '{name}' for '{self._node.name}'; it can use: {known}. A store is added with"
            f" add_state_store(...) and named where the processor is added: .process(..., '{name}')"
        )
